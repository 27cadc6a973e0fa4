"""Virtual token counters (Sheng et al., "Fairness in Serving LLMs", OSDI 2024, Algorithm 2).

Each user has a counter of the service that it received, over its weight: its
prompts' tokens when they are admitted, and twice its output tokens. The waiting
user with the smallest counter is admitted next. A user that begins to wait is
lifted to the smallest counter of those who wait, so that idleness earns nothing.

What differs here: a user without live requests is forgotten. A floor, the
largest that the smallest waiting counter has been, stands for it when it comes
back, so that the floor, not the user, survives idleness. And prompts are
chunked and the youngest is preempted when memory ends, as in stall-free.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from batchproof.sched.config import Admission
from batchproof.sched.policy.compose import (
    admissions,
    chunks,
    decodes_first,
    has_no_token,
    without,
)
from batchproof.sched.policy.protocol import Candidate, Plan, View
from batchproof.sched.policy.service import UNIT, Counts, least_served, summed

INPUT_WEIGHT: Final = 1
"""What a prompt token counts."""
OUTPUT_WEIGHT: Final = 2
"""What an output token counts."""


class Note(NamedTuple):
    """What a plan means for the counters."""

    lifted: Counts = ()
    """The counters of those who wait."""
    charges: Counts = ()
    """What the tick serves users, over their weights."""


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
        limits = view.limits
        decode, preempt, free = decodes_first(view)
        budget = limits.token_budget - len(decode)
        seats = limits.max_batch_size - len(decode)
        prefill = chunks(view, without(view.prefilling, preempt), budget, seats)
        admit: list[Candidate] = []
        if not preempt:
            budget -= sum(tokens for _, tokens in prefill)
            seats -= len(prefill)
            order = least_served(view, counters, partial(_admission_charge, view))
            admit, first_chunks = admissions(view, order, free, budget, seats)
            prefill += first_chunks
        note = Note(tuple(counters.items()), summed(_charges(view, decode, prefill, admit)))
        return Plan(preempt, decode, admit, prefill, note)

    def completed(self, plan: Plan, seconds: float = 0.0) -> None:
        """Keep the lifted counters, and charge what the tick served."""
        note: Any = plan.note or Note()
        self._counters.update(note.lifted)
        self._waiting = frozenset(user for user, _ in note.lifted)
        if note.lifted:
            self._floor = max(self._floor, min(counter for _, counter in note.lifted))
        for user, charge in note.charges:
            self._counters[user] = self._counters.get(user, self._floor) + charge

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


def _charges(
    view: View,
    decode: Sequence[Candidate],
    prefill: Iterable[tuple[Candidate, int]],
    admit: Iterable[Candidate],
) -> Iterator[tuple[str, int]]:
    """Yield what a tick serves users, over their weights."""
    yielding = (c for c, tokens in prefill if tokens == c.prefill_left)
    outputs = Counter(c.user_id for c in (*decode, *yielding))
    for user, tokens in outputs.items():
        yield user, _over_weight(view, user, OUTPUT_WEIGHT * tokens)
    for candidate in admit:
        yield candidate.user_id, _admission_charge(view, candidate)


def _admission_charge(view: View, candidate: Candidate) -> int:
    """Return what an admission counts: the prompt, unless it has yielded tokens before."""
    tokens = INPUT_WEIGHT * candidate.prompt_len if has_no_token(candidate) else 0
    return _over_weight(view, candidate.user_id, tokens)


def _over_weight(view: View, user: str, service: int) -> int:
    """Return service over a user's weight, rounded up."""
    return -(-service * UNIT // view.users[user].weight)
