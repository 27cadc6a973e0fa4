"""Fair-lane: light users get their first tokens almost as if they were alone.

A user is heavier than another if its load, per weight, is at least four times the other's.
Memory goes by `fair_share`. While a light user waits for a first token and a
heavier one has work, the batch is the lane: the first tokens of the light side,
and beside them a limited share of all other work. Credit bounds how often.

The design and what it promises: docs/explanation/fair-lane.md.
"""

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from batchproof.sched.config import Admission, Limits
from batchproof.sched.policy.compose import chunks, has_no_token
from batchproof.sched.policy.credit import Credit
from batchproof.sched.policy.fair_share import Draft, Terms
from batchproof.sched.policy.protocol import Candidate, Plan, UsersView, UserView, View
from batchproof.sched.policy.service import Counts, Debts
from batchproof.sched.policy.tick_time import TickTime
from batchproof.sched.weights import Weight, load_per_weight, per_weight
from batchproof.spec.lifecycle import DECODING

LANE_SHARE: Final = 2
"""The other work in the lane is at most the lane's own divided by this."""
LANE_TIME: Final = 4
"""More of it is taken while that makes the lane's time longer by at most its time over this."""


class Note(NamedTuple):
    """What a plan means for the policy's state."""

    users: int
    """How many are active."""
    costs: Counts
    """Whose lane it is, and what it costs each; empty in an ordinary tick."""
    lane_rest: int
    """Sequences of the lane, fewer than `LANE_SHARE`, that the next lane tick also counts."""
    service: tuple[Counts, Counts] | None
    """Where weights differ: the debts of those who wait, and what the tick serves."""

    @property
    def lane(self) -> tuple[str, ...]:
        """Whose lane it is."""
        return tuple(user for user, _ in self.costs)


class FairLane:
    """The user with the least memory is next; a light user's first tokens have a lane."""

    name = "fair-lane"

    def __init__(
        self, admission: Admission = "max_utilization", *, terms: Terms | None = None
    ) -> None:
        self.admission: Admission = admission
        self._limits: Limits | None = None
        self._given = terms
        """None: the terms follow from the limits."""
        self.terms = terms or Terms.of(Limits())
        """What it decides by; those of the scheduler's limits from the first plan on."""
        self._lane = Credit()
        self._lane_rest = 0
        self._debts = Debts()
        self._latest: str | None = None
        """The user of the last admission."""
        self._tick_time = TickTime()

    def plan(self, view: View) -> Plan:
        """Let decodes grow, admit, and fill the batch: the lane's, or all users' in turn."""
        if self._limits is not view.limits:
            self._size(view.limits)
        may_preempt = self.admission == "max_utilization"
        draft = Draft(
            view,
            self.terms,
            self._lane,
            self._latest,
            self._debts,
            may_preempt=may_preempt,
        )
        draft.grow()
        draft.admit()
        decode = draft.left(draft.decode) if draft.lost else draft.decode
        prefilling = [*draft.prefilling, *draft.admitted]
        if draft.lost:
            prefilling = draft.left(prefilling)
        return self._lane_plan(draft, decode, prefilling) or _ordinary_plan(
            draft, decode, prefilling, self._lane_rest
        )

    def completed(self, plan: Plan, seconds: float = 0.0) -> None:
        """Charge what the tick cost, or refill; note how long it took."""
        note: Any = plan.note
        if note is None:
            return
        fed = len(plan.decode) + sum(tokens for _, tokens in plan.prefill)
        self._tick_time.add(fed, len(plan.decode) + len(plan.prefill), seconds)
        if plan.admit:
            self._latest = plan.admit[-1].user_id
        self._lane_rest = note.lane_rest
        if note.service is None:
            self._debts.clear()
        else:
            self._debts.add(*note.service)
        if note.costs:
            for user, cost in note.costs:
                self._lane.spend(user, cost)
        else:
            credit = self.terms.credit
            self._lane.refill(credit // (4 * note.users), credit // 4)

    def credit_of(self, user_id: str) -> int:
        """Return the credit that a user has for lane ticks, in parts: `Terms.credit` is one."""
        return self._lane.of(user_id)

    def left(self, user_id: str) -> None:
        """Take back the credit of a user without live requests."""
        self._lane.left(user_id)
        self._debts.left(user_id)
        if self._latest == user_id:
            self._latest = None

    def state(self) -> Hashable:
        """Return all that is remembered."""
        return (
            self._lane.state(),
            self._lane_rest,
            self._latest,
            self._debts.state(),
            self._tick_time.state(),
        )

    def restore(self, state: Any) -> None:
        """Become as a policy was whose `state` returned this."""
        lane, self._lane_rest, self._latest, debts, tick_time = state
        self._limits = None
        self._debts.restore(debts)
        self._lane.restore(lane)
        self._tick_time.restore(tick_time)

    def _size(self, limits: Limits) -> None:
        terms = self._given or Terms.of(limits)
        self._limits, self.terms = limits, terms
        self._lane.cap = terms.lane_ticks * terms.credit
        self._lane.purse = self._lane.cap * terms.purse
        self._debts.debt_max = terms.debt_max

    def _lane_plan(
        self, draft: Draft, decode: Iterable[Candidate], prefilling: list[Candidate]
    ) -> Plan | None:
        """Return the lane's batch: the light side's first tokens, others' decodes, and a share.

        None where nobody has a lane, or nobody heavier has work: then an ordinary
        batch does as well.
        """
        lane = _lane_users(draft, prefilling)
        if not lane:
            return None
        lightest = min(lane, key=load_per_weight)
        light, heavy = _sides(draft, decode, lightest)
        light_prefills, heavy_prefills = _sides(draft, sorted(prefilling, key=_number), lightest)
        if not heavy and not heavy_prefills:
            return None
        limits = draft.limits
        first = [candidate for candidate in light_prefills if has_no_token(candidate)]
        prefill = chunks(draft.view, first, limits.token_budget, limits.max_batch_size)
        tokens = sum(fed for _, fed in prefill)
        room = min(limits.token_budget - tokens, limits.max_batch_size - len(prefill))
        own = {user.user_id for user in lane}
        chosen = [candidate for candidate in light if candidate.user_id not in own][:room]
        others = chain(
            (candidate for candidate in light if candidate.user_id in own),
            (candidate for candidate in light_prefills if not has_no_token(candidate)),
            sorted((*heavy, *heavy_prefills), key=_number),
        )
        rest = self._fill(draft, chosen, prefill, others)
        draft.spare(chosen)
        return _finished(draft, chosen, prefill, rest, lane)

    def _fill(
        self,
        draft: Draft,
        decode: list[Candidate],
        prefill: list[tuple[Candidate, int]],
        others: Iterable[Candidate],
    ) -> int:
        """Add the others' share to the lane's batch; return the sequences left over for the next.

        By counts, the share is 1 / `LANE_SHARE` of the batch's tokens and of its
        sequences; where the times of late tell how long batches take, decodes go
        on until the time is longer by 1 / `LANE_TIME`.
        """
        limits = draft.limits
        sequences = len(decode) + len(prefill)
        tokens = len(decode) + sum(fed for _, fed in prefill)
        share, rest = divmod(sequences + self._lane_rest, LANE_SHARE)
        sequences_max, tokens_max = sequences + share, tokens + tokens // LANE_SHARE
        fit = self._tick_time.fit(sequences)
        time_max = 0 if fit is None else fit.time(tokens, sequences) * (LANE_TIME + 1) // LANE_TIME
        for candidate in others:
            if tokens >= limits.token_budget or sequences >= limits.max_batch_size:
                break
            within_share = sequences < sequences_max and tokens < tokens_max
            if candidate.phase == DECODING:
                if not within_share and (
                    fit is None or fit.time(tokens + 1, sequences + 1) > time_max
                ):
                    break
                decode.append(candidate)
                tokens += 1
            elif within_share:
                fed = min(
                    limits.chunk_size,
                    candidate.prefill_left,
                    min(tokens_max, limits.token_budget) - tokens,
                )
                prefill.append((candidate, fed))
                tokens += fed
            else:
                continue
            sequences += 1
        return rest


def _lane_users(draft: Draft, prefilling: Iterable[Candidate]) -> list[UserView]:
    """Return the users whose lane this tick is; none is heavier than another."""
    if len(draft.users) == 1:
        return []
    waiting = dict.fromkeys(c.user_id for c in prefilling if has_no_token(c))
    lane = [user for user in map(draft.users.__getitem__, waiting) if draft.has_lane(user)]
    return [user for user in lane if not any(draft.is_heavier(user, other) for other in lane)]


def _sides(
    draft: Draft, candidates: Iterable[Candidate], lightest: UserView
) -> tuple[list[Candidate], list[Candidate]]:
    """Return the requests of the light side, and those of users heavier than `lightest`."""
    sides: tuple[list[Candidate], list[Candidate]] = ([], [])
    is_heavy: dict[str, bool] = {}
    for candidate in candidates:
        user_id = candidate.user_id
        if user_id not in is_heavy:
            is_heavy[user_id] = draft.is_heavier(draft.users[user_id], lightest)
        sides[is_heavy[user_id]].append(candidate)
    return sides


def _ordinary_plan(
    draft: Draft, decode: Sequence[Candidate], prefilling: list[Candidate], lane_rest: int
) -> Plan:
    """Return decodes first, then chunks: the oldest of each user, then the second of each."""
    limits = draft.limits
    budget, seats = limits.token_budget - len(decode), limits.max_batch_size - len(decode)
    prefill = chunks(draft.view, _in_turn(draft.users, prefilling), budget, seats)
    return _finished(draft, decode, prefill, lane_rest)


def _in_turn(users: UsersView, prefilling: list[Candidate]) -> list[Candidate]:
    """Return the oldest of each user, then the second of each; several at a time of one by weight.

    The n-th of a user has its turn at n / weight.
    """
    if len(prefilling) < 2:
        return prefilling
    counts: dict[str, int] = {}
    order: list[tuple[Weight, int, Candidate]] = []
    for candidate in sorted(prefilling, key=_number):
        user_id = candidate.user_id
        nth = counts[user_id] = counts.get(user_id, 0) + 1
        turn = per_weight(nth, users[user_id].weight) if users.weights_differ else nth
        order.append((turn, candidate.number, candidate))
    order.sort()
    return [candidate for _, _, candidate in order]


def _finished(
    draft: Draft,
    decode: Sequence[Candidate],
    prefill: list[tuple[Candidate, int]],
    lane_rest: int,
    lane: Sequence[UserView] = (),
) -> Plan:
    costs = tuple(sorted((user.user_id, draft.lane_cost(user)) for user in lane))
    debts = draft.debts
    service = None if debts is None else (tuple(debts.items()), draft.charges(decode))
    note = Note(len(draft.users), costs, lane_rest, service)
    return Plan(list(draft.lost.values()), decode, draft.admitted, prefill, note)


def _number(candidate: Candidate) -> int:
    return candidate.number
