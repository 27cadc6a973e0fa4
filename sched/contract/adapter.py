"""How a scheduler of any make is driven, and how what it does is told to a monitor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from batchproof.sched.config import Admission, Limits
from batchproof.sched.monitor import Monitor
from batchproof.sched.monitor_facts import TickFacts, Violation
from batchproof.spec.lifecycle import FinishReason

NextToken = Callable[[str], int]
"""The model: the token that a request of this id yields next."""


@dataclass(frozen=True)
class StepReport:
    """What one step of a scheduler did."""

    fed: Mapping[str, int] = field(default_factory=dict)
    """Request -> tokens fed: of a prompt, or of what is recomputed, a chunk; of a decode, one."""
    emitted: Mapping[str, int] = field(default_factory=dict)
    """Request -> the token that it yielded."""
    ended: Mapping[str, FinishReason] = field(default_factory=dict)
    """Request -> why it ended in this step."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Request -> KV blocks that it holds after this step; those left out hold none."""


class SchedulerAdapter(Protocol):
    """A scheduler under test, behind three calls."""

    def submit(self, request_id: str, user_id: str, prompt: list[int], max_tokens: int) -> bool:
        """Submit a request; return whether it was accepted."""
        ...

    def cancel(self, request_id: str) -> bool:
        """Cancel a request; return whether there was anything to cancel."""
        ...

    def step(self, next_token: NextToken) -> StepReport:
        """Run one iteration; ask `next_token` for what the model yields."""
        ...


class Account:
    """Tells a monitor what the reports of a scheduler say, and keeps what the test needs.

    Reports count blocks; the monitor wants them by number, so numbers are given
    here. What a request holds says whether it was preempted, admitted or grew.
    """

    def __init__(self, limits: Limits, admission: Admission) -> None:
        self.monitor = Monitor(limits, admission, on_violation="record")
        self._free = list(range(limits.max_kv_blocks))
        self._held: dict[str, list[int]] = {}
        self._fed: dict[str, int] = {}
        """Resident -> tokens of its context fed in this residency."""
        self._decodes: set[str] = set()
        self._places: dict[str, int] = {}
        self.live: dict[str, str] = {}
        """Live request -> its user."""

    def submitted(self, request_id: str, user_id: str, prompt: int, max_tokens: int) -> None:
        """Take an accepted request."""
        self.live[request_id] = user_id
        self._places[request_id] = len(self._places)
        self.monitor.submitted(request_id, user_id, prompt, max_tokens)

    def cancelled(self, request_id: str) -> None:
        """Take a cancelled request."""
        self._forget(request_id)
        self.monitor.cancelled(request_id)

    def stepped(self, report: StepReport) -> None:
        """Take a step."""
        preempt = [
            request_id
            for request_id in self._held
            if not report.held.get(request_id) and request_id not in report.ended
        ]
        for request_id in preempt:
            self._release(request_id)
        grow: list[tuple[str, int]] = []
        admit: list[tuple[str, list[int]]] = []
        touched = {r for r, blocks in report.held.items() if blocks} | report.fed.keys()
        for request_id in sorted(touched, key=self._place):
            self._take(request_id, report, grow, admit)
        decode = [(r, report.emitted.get(r, -1)) for r in report.fed if r in self._decodes]
        chunks = [
            (r, self._fed.get(r, 0), tokens, report.emitted.get(r))
            for r, tokens in report.fed.items()
            if r not in self._decodes
        ]
        for request_id, position, tokens, token in chunks:
            self._fed[request_id] = position + tokens
            if token is not None:
                self._decodes.add(request_id)
        for request_id in report.ended:
            self._forget(request_id)
        free = len(self._free)
        self.monitor.ticked(
            TickFacts(preempt, grow, admit, decode, chunks, list(report.ended.items()), free)
        )

    def violations(self, properties: frozenset[str]) -> list[Violation]:
        """Return what was found so far of the properties that apply."""
        return [found for found in self.monitor.violations if found.property in properties]

    def _place(self, request_id: str) -> int:
        """Return a request's place in the order of submission: in a step, the older come first."""
        return self._places.get(request_id, -1)

    def _take(
        self,
        request_id: str,
        report: StepReport,
        grow: list[tuple[str, int]],
        admit: list[tuple[str, list[int]]],
    ) -> None:
        """Give numbers to the blocks that a request took in this step."""
        had = len(self._held.get(request_id, ()))
        if request_id in report.ended:  # what it held is not seen: believe that it was right
            taken = 0 if had else self.monitor.blocks_to_admit(request_id)
        else:
            taken = report.held.get(request_id, 0) - had
        blocks = [self._free.pop() if self._free else -1 for _ in range(taken)]
        if request_id not in self._held:
            admit.append((request_id, blocks))
        else:
            grow.extend((request_id, block) for block in blocks)
        self._held.setdefault(request_id, []).extend(blocks)

    def _release(self, request_id: str) -> None:
        self._free += [block for block in self._held.pop(request_id, ()) if block >= 0]
        self._fed.pop(request_id, None)
        self._decodes.discard(request_id)

    def _forget(self, request_id: str) -> None:
        self._release(request_id)
        self.live.pop(request_id, None)
