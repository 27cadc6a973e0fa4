"""The catalog, checked while a scheduler runs: at a cost in proportion to what changes.

The monitor keeps its own account of every live request, from nothing but what
it is told, and holds each tick against the rules. It is told by a `Scheduler`
(`Scheduler(monitor=True)`), by a recording, or by anybody's engine.
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal

from batchproof.sched.config import Admission, Limits
from batchproof.sched.errors import LimitsError
from batchproof.sched.monitor_facts import (
    NO_TIMES,
    Account,
    Stretch,
    TickFacts,
    Times,
    Violation,
    ViolationError,
)
from batchproof.sched.monitor_queue import WaitingAccounts
from batchproof.spec.lifecycle import DECODING, PREFILLING, WAITING, dest

TICKS_KEPT = 100
"""Ticks that a report holds at least, with the state before the first of them."""

PROPERTIES = frozenset(
    {
        "batch-bounded",
        "blocks-conserved",
        "blocks-cover-context",
        "budget-bounded",
        "chunk-bounded",
        "ended-once",
        "eos-ends-at-once",
        "fcfs-within-user",
        "feasible-or-refused",
        "fed-once-in-order",
        "length-is-exact",
        "never-evicts",
        "only-live-are-scheduled",
        "passed-for-cause",
        "refused-for-cause",
        "scheduled-once",
        "tick-feeds",
        "tokens-when-due",
    }
)
"""The properties of the catalog that are checked here; the others need a policy or a whole run."""


class Monitor:
    """Holds what it is told against the rules.

    `on_violation` says whether to raise `ViolationError` at the first violation,
    or to note it in `violations`, believe what was seen, and go on. `exempt`
    names the properties that are not checked. Raises `LimitsError` for a name in
    it that is not in `PROPERTIES`.
    """

    def __init__(
        self,
        limits: Limits,
        admission: Admission = "max_utilization",
        *,
        on_violation: Literal["raise", "record"] = "raise",
        exempt: Collection[str] = (),
    ) -> None:
        if unknown := set(exempt) - PROPERTIES:
            raise LimitsError(
                f"monitor: exempt from {', '.join(sorted(unknown))}, which there is not; "
                f"there are: {', '.join(sorted(PROPERTIES))}"
            )
        self.limits = limits
        self.exempt = frozenset(exempt)
        self.admission = admission
        self.violations: list[Violation] = []
        self.ticks = 0
        self._raises = on_violation == "raise"
        self._live: dict[str, Account] = {}
        self._waiting = WaitingAccounts(limits)
        self._owned: set[int] = set()
        self._submissions = 0
        self._found: list[Violation] = []
        self._kept = [Stretch({}), Stretch({})]
        """The stretch of ticks before this one, and this one."""

    @property
    def live(self) -> int:
        """How many requests are live."""
        return len(self._live)

    def blocks_to_admit(self, request_id: str) -> int:
        """Return the blocks that admitting a live request takes now; 0 if it is not live."""
        account = self._live.get(request_id)
        return 0 if account is None else self._blocks_at_admission(account)

    # --- between ticks --------------------------------------------------------

    def submitted(
        self,
        request_id: str,
        user: str,
        prompt: int,
        max_tokens: int,
        times: Times = NO_TIMES,
        priority: int = 0,
        passes: int = 0,
    ) -> None:
        """Hear of an accepted request: `prompt` is its length in tokens, `times` its deadlines.

        It passes the last `passes` of its user's waiting requests.
        """
        if request_id in self._live:
            self._violated("refused-for-cause", f"{request_id!r} is accepted, its id is live")
        elif not self._is_feasible(prompt, max_tokens):
            self._violated("feasible-or-refused", f"{request_id!r} is accepted and cannot finish")
        account = Account(user, prompt, max_tokens, self._submissions, times)
        account.request_id = request_id
        self._submissions += 1
        account.priority = priority
        self._live[request_id] = account
        self._waiting.add(account)
        for passed, wrong in self._waiting.advance(account, passes) if passes else ():
            self._live[passed.request_id] = passed
            if wrong is not None:
                self._violated("passed-for-cause", f"{request_id!r} {wrong}")
        self._note("submitted", request_id, user, prompt, max_tokens, times, priority, passes)
        self._settle()

    def refused(
        self, request_id: str, kind: str, prompt: int = 0, max_tokens: int = 0, user: str = ""
    ) -> None:
        """Hear of a refused request: it is `infeasible`, `duplicate`, `queue_full` or `invalid`."""
        self._note("refused", request_id, kind, prompt, max_tokens, user)
        if kind == "duplicate" and request_id not in self._live:
            self._violated("refused-for-cause", f"{request_id!r} is refused, its id is not live")
        if kind == "infeasible" and self._is_feasible(prompt, max_tokens):
            self._violated("refused-for-cause", f"{request_id!r} is refused and could finish")
        if kind == "queue_full" and self._waiting.has_room(user, prompt):
            self._violated("refused-for-cause", f"{request_id!r} is refused, the queue has room")
        self._settle()

    def cancelled(self, request_id: str) -> None:
        """Hear of a cancelled request."""
        account = self._live.get(request_id)
        if account is None:
            self._violated("ended-once", f"{request_id!r} is cancelled and not live")
        else:
            self._forget(request_id, account)
        self._note("cancelled", request_id)
        self._settle()

    def expired(self, request_id: str, at: float) -> None:
        """Hear of a request that has expired, and when."""
        account = self._live.get(request_id)
        if account is None:
            self._violated("ended-once", f"{request_id!r} expires and is not live")
        else:
            times = (account.deadline_s, account.admit_by_s)
            if not any(time is not None and time <= at for time in times):
                self._violated(
                    "ended-once", f"{request_id!r} expires at {at} s, before its time: {times}"
                )
            self._forget(request_id, account)
        self._note("expired", request_id, at)
        self._settle()

    # --- a tick ---------------------------------------------------------------

    def ticked(self, facts: TickFacts) -> None:
        """Hear of a completed tick."""
        if self.ticks % TICKS_KEPT == 0:
            self._kept = [self._kept[1], Stretch(self._checkpoint())]
        self._note("ticked", facts)
        for request_id in facts.preempt:
            self._preempt(request_id)
        for request_id, block in facts.grow:
            self._grow(request_id, block)
        for request_id, blocks in facts.admit:
            self._admit(request_id, blocks)
        had_live = bool(self._live)
        due: dict[str, str] = {}
        self._decode(facts, due)
        for chunk in facts.chunks:
            self._chunk(chunk, due)
        self._check_totals(facts, had_live)
        self._end(facts, due)
        free = self.limits.max_kv_blocks - len(self._owned)
        if facts.free != free:
            self._violated("blocks-conserved", f"{facts.free} blocks are free, not {free}")
        self.ticks += 1
        self._settle()

    def _preempt(self, request_id: str) -> None:
        account = self._account(request_id, "preempt", "preempted")
        if account is None:
            return
        if self.admission == "guaranteed_no_evict":
            self._violated("never-evicts", f"{request_id!r} is preempted")
        self._release(account)
        account.phase = WAITING
        account.prefilled = 0
        self._waiting.add(account)

    def _grow(self, request_id: str, block: int) -> None:
        account = self._account(request_id, None, "given a block")
        if account is None:
            return
        covered = len(account.blocks) * self.limits.block_size
        context = account.prompt + account.generated
        if (
            account.phase != DECODING
            or covered != context
            or account.generated + 1 >= (account.max_tokens)
        ):
            self._violated(
                "blocks-cover-context",
                f"{request_id!r} grows at {context} tokens in {len(account.blocks)} blocks",
            )
        self._own(request_id, account, [block])

    def _admit(self, request_id: str, blocks: Sequence[int]) -> None:
        account = self._account(request_id, "admit", "admitted")
        if account is None:
            return
        if not self._waiting.is_first(account):
            self._violated(
                "fcfs-within-user", f"{request_id!r} is admitted, an older one of its user waits"
            )
        self._waiting.remove(account)
        account = self._live[request_id] = account.copy()  # a checkpoint may hold the old one
        account.phase = PREFILLING
        account.admit_by_s, account.passed = None, self.limits.max_passes
        needed = self._blocks_at_admission(account)
        if len(blocks) != needed:
            self._violated(
                "blocks-cover-context", f"{request_id!r} takes {len(blocks)} blocks, not {needed}"
            )
        self._own(request_id, account, blocks)

    def _decode(self, facts: TickFacts, due: dict[str, str]) -> None:
        """Hold every decode against the rules: the one loop that a busy tick spends its time in."""
        live, tick = self._live, self.ticks
        block_size, eos = self.limits.block_size, self.limits.eos_token
        for request_id, token in facts.decode:
            account = live.get(request_id)
            if account is None or account.phase != DECODING:
                self._violated(
                    "only-live-are-scheduled", f"{request_id!r} decodes and is not decoding"
                )
                continue
            if account.tick == tick:
                self._violated("scheduled-once", f"{request_id!r} is in the batch twice")
            account.tick = tick
            account.generated += 1
            if token == eos:
                due[request_id] = "eos"
            elif account.generated >= account.max_tokens:
                due[request_id] = "length"
            elif len(account.blocks) * block_size < account.prompt + account.generated:
                self._violated(
                    "blocks-cover-context",
                    f"{request_id!r} has {account.prompt + account.generated} tokens "
                    f"in {len(account.blocks)} blocks",
                )

    def _chunk(self, chunk: tuple[str, int, int, int | None], due: dict[str, str]) -> None:
        request_id, position, tokens, token = chunk
        account = self._account(request_id, "first_token", "prefilled")
        if account is None:
            return
        if account.tick == self.ticks:
            self._violated("scheduled-once", f"{request_id!r} is in the batch twice")
        account.tick = self.ticks
        context = account.prompt + account.generated
        most = min(self.limits.chunk_size, context - account.prefilled)
        if not 1 <= tokens <= most:
            self._violated("chunk-bounded", f"{request_id!r} is fed {tokens}, 1 to {most} are due")
        if position != account.prefilled:
            self._violated(
                "fed-once-in-order",
                f"{request_id!r} is fed from position {position}, {account.prefilled} is next",
            )
        account.prefilled = position + tokens
        if (token is not None) != (account.prefilled >= context):
            self._violated(
                "tokens-when-due",
                f"{request_id!r} {'has no' if token is None else 'has a'} token with "
                f"{account.prefilled} of {context} fed",
            )
        if token is None:
            return
        account.phase = DECODING
        account.generated += 1
        if token == self.limits.eos_token:
            due[request_id] = "eos"
        elif account.generated >= account.max_tokens:
            due[request_id] = "length"

    def _check_totals(self, facts: TickFacts, had_live: bool) -> None:
        limits = self.limits
        sequences = len(facts.decode) + len(facts.chunks)
        tokens = len(facts.decode) + sum([chunk[2] for chunk in facts.chunks])
        if had_live and not tokens:
            self._violated("tick-feeds", "nothing is fed though requests are live")
        if tokens > limits.token_budget:
            self._violated("budget-bounded", f"{tokens} tokens, token_budget {limits.token_budget}")
        if sequences > limits.max_batch_size:
            self._violated(
                "batch-bounded", f"{sequences} sequences, max_batch_size {limits.max_batch_size}"
            )

    def _end(self, facts: TickFacts, due: dict[str, str]) -> None:
        seen = dict(facts.ended)
        if len(seen) != len(facts.ended):
            self._violated("ended-once", "a request is reported twice in one tick")
        if seen != due:
            for request_id in [*due, *(name for name in seen if name not in due)]:
                self._compare_ends(request_id, due.get(request_id), seen.get(request_id))
        for request_id in seen:
            account = self._live.get(request_id)
            if account is None:
                self._violated("ended-once", f"{request_id!r} ends and is not live")
                continue
            self._forget(request_id, account)

    def _compare_ends(self, request_id: str, due: str | None, seen: str | None) -> None:
        if due == seen:
            return
        name = "length-is-exact" if "length" in (due, seen) else "eos-ends-at-once"
        self._violated(
            name, f"{request_id!r} {f'ends by {seen}' if seen else 'goes on'}, due: {due or 'none'}"
        )

    def resume(self, request_id: str, account: Account) -> None:
        """Take up a request that was live before this monitor began."""
        account.request_id = request_id
        self._live[request_id] = account
        self._submissions = max(self._submissions, account.number + 1)
        self._owned.update(account.blocks)
        if account.phase == WAITING:
            self._waiting.add(account)

    # --- the account ------------------------------------------------------------

    def _account(self, request_id: str, event: Any, verb: str) -> Account | None:
        """Return the account of a request, which should be in a phase that allows `event`."""
        account = self._live.get(request_id)
        if account is None or (event is not None and dest(event, account.phase) is None):
            phase = "not live" if account is None else account.phase
            self._violated("only-live-are-scheduled", f"{request_id!r} is {verb} while {phase}")
        return account

    def _own(self, request_id: str, account: Account, blocks: Sequence[int]) -> None:
        for block in blocks:
            if block in self._owned or not 0 <= block < self.limits.max_kv_blocks:
                self._violated("blocks-conserved", f"block {block} of {request_id!r} is not free")
            self._owned.add(block)
        account.blocks += blocks

    def _release(self, account: Account) -> None:
        self._owned.difference_update(account.blocks)
        account.blocks = []

    def _forget(self, request_id: str, account: Account) -> None:
        if account.phase == WAITING:
            self._waiting.remove(account)
        self._release(account)
        del self._live[request_id]

    def _is_feasible(self, prompt: int, max_tokens: int) -> bool:
        peak = self.limits.blocks_at_peak(prompt, max_tokens)
        return prompt >= 1 and max_tokens >= 1 and peak <= self.limits.max_kv_blocks

    def _blocks_at_admission(self, account: Account) -> int:
        prompt, most = account.prompt, account.max_tokens
        if self.admission == "guaranteed_no_evict":
            return self.limits.blocks_at_peak(prompt, most)
        return self.limits.blocks_at_admission(prompt, account.generated, most)

    # --- violations ---------------------------------------------------------------

    def _violated(self, name: str, detail: str) -> None:
        if name not in self.exempt:
            self._found.append(Violation(self.ticks, name, detail))

    def _settle(self) -> None:
        """Report what was found in this step, once the step has been taken in whole."""
        if not self._found:
            return
        found, self._found = self._found, []
        self.violations += found
        if self._raises:
            raise ViolationError(found[0], self.report())

    def _note(self, event: str, *what: Any) -> None:
        self._kept[1].events.append((event, *what))

    def _checkpoint(self) -> dict[str, Account]:
        """Return the accounts as they are: residents copied, the others when they change."""
        return {
            request_id: account if account.phase == WAITING else account.copy()
            for request_id, account in self._live.items()
        }

    def report(self) -> dict[str, Any]:
        """Return the violations, the last ticks, and the state before them, as plain data.

        `monitor_replay.replay` takes it from there again.
        """
        older, newer = self._kept
        return {
            "limits": {name: getattr(self.limits, name) for name in Limits.__slots__},
            "admission": self.admission,
            "exempt": sorted(self.exempt),
            "violations": [violation._asdict() for violation in self.violations],
            "ticks": self.ticks,
            "start": {name: account.state() for name, account in older.start.items()},
            "events": [*older.events, *newer.events],
        }
