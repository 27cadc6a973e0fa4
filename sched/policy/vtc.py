"""Virtual token counters (Sheng et al., "Fairness in Serving LLMs", OSDI 2024, Algorithm 2).

Each user has a counter of the service that it received: its prompts' tokens
when they are admitted, and twice its output tokens. The waiting user with the
smallest counter is admitted next. A user that begins to wait is lifted to the
smallest counter of those who wait, so that idleness earns nothing.

What differs here: a user without live requests is forgotten. A floor, the
largest that the smallest waiting counter has been, stands for it when it comes
back, so that the floor, not the user, survives idleness. And prompts are
chunked and the youngest is preempted when memory ends, as in stall-free.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Any, Final

from batchproof.sched.config import Admission
from batchproof.sched.policy.compose import admissions, chunks, decodes_first, without
from batchproof.sched.policy.protocol import Candidate, Plan, View

INPUT_WEIGHT: Final = 1
"""What a prompt token counts."""
OUTPUT_WEIGHT: Final = 2
"""What an output token counts."""


class Vtc:
    """Users are admitted by least service; decodes go first, the youngest is preempted."""

    name = "vtc"

    def __init__(self, admission: Admission = "max_utilization") -> None:
        self.admission = admission
        self._counters: dict[str, int] = {}
        self._waiting: frozenset[str] = frozenset()
        """Who waited when the last tick was planned."""
        self._floor = 0

    def plan(self, view: View) -> Plan:
        """Fill the batch with decodes, then chunks under way, then the least served users."""
        counters = self._lifted(view)
        note = tuple(counters.items())
        limits = view.limits
        decode, preempt, free = decodes_first(view)
        budget = limits.token_budget - len(decode)
        seats = limits.max_batch_size - len(decode)
        prefill = chunks(view, without(view.prefilling, preempt), budget, seats)
        if preempt:
            return Plan(preempt, decode, prefill=prefill, note=note)
        budget -= sum(tokens for _, tokens in prefill)
        seats -= len(prefill)
        order = _least_served(view, counters)
        admit, first_chunks = admissions(view, order, free, budget, seats)
        return Plan(decode=decode, admit=admit, prefill=prefill + first_chunks, note=note)

    def completed(self, plan: Plan, seconds: float = 0.0) -> None:
        """Keep the lifted counters, and charge what the tick served."""
        lifted: Any = plan.note or ()
        self._counters.update(lifted)
        self._waiting = frozenset(user for user, _ in lifted)
        if lifted:
            self._floor = max(self._floor, min(counter for _, counter in lifted))
        yielding = (c for c, tokens in plan.prefill if tokens == c.prefill_left)
        served = Counter(c.user_id for c in (*plan.decode, *yielding))
        for user, tokens in served.items():
            self._charge(user, OUTPUT_WEIGHT * tokens)
        for candidate in plan.admit:
            self._charge(candidate.user_id, _admission_charge(candidate))

    def left(self, user_id: str) -> None:
        """Forget a user; the last one to leave sets the floor, as in the paper."""
        counter = self._counters.pop(user_id, self._floor)
        self._waiting -= {user_id}
        if not self._counters:
            self._floor = max(self._floor, counter)

    def state(self) -> Hashable:
        """Return each known user's counter above the floor, and whether it waited."""
        return tuple(
            (user, counter - self._floor, user in self._waiting)
            for user, counter in sorted(self._counters.items())
        )

    def restore(self, state: Any) -> None:
        """Become as a policy was whose `state` returned this."""
        self._floor = 0
        self._counters = {user: counter for user, counter, _ in state}
        self._waiting = frozenset(user for user, _, waited in state if waited)

    def _charge(self, user: str, service: int) -> None:
        self._counters[user] = self._counters.get(user, self._floor) + service

    def _lifted(self, view: View) -> dict[str, int]:
        """Return the counters of those who wait, newcomers lifted to the least of the others."""
        known = {
            user: self._counters[user] for user in view.waiting_by_user if user in self._waiting
        }
        lowest = max(self._floor, min(known.values(), default=0))
        return {
            user: known.get(user, max(self._counters.get(user, 0), lowest))
            for user in view.waiting_by_user
        }


def _least_served(view: View, counters: dict[str, int]) -> Iterator[Candidate]:
    """Yield waiting requests: each time the oldest of the user with the smallest counter.

    Of equal counters, which lifting makes common, the user that holds less memory is next.
    """
    heap: list[tuple[int, int, int, Candidate, Iterator[Candidate]]] = []

    def push(counter: int, held: int, line: Iterator[Candidate]) -> None:
        oldest = next(line, None)
        if oldest is not None:
            heappush(heap, (counter, held, oldest.number, oldest, line))

    for user, waiting in view.waiting_by_user.items():
        push(counters[user], view.users[user].held, iter(waiting))
    while heap:
        counter, held, _, candidate, line = heappop(heap)
        yield candidate
        held += view.blocks_to_admit(candidate)
        push(counter + _admission_charge(candidate), held, line)


def _admission_charge(candidate: Candidate) -> int:
    """Return what an admission counts: the prompt, unless it has yielded tokens before."""
    first = candidate.remaining == candidate.max_tokens
    return INPUT_WEIGHT * candidate.prompt_len if first else 0
