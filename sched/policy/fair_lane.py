"""Fair-lane: light users get their first tokens almost as if they were alone.

A user is heavier than another if its load is at least four times the other's.
Memory goes to the user that holds the least; a light user may take it from
heavier ones, and anyone within an equal share from those over theirs, but never
a user's oldest request. While a light user waits for a first token and someone is
heavier, its side's work is the batch, the lane, with at most half as much of the
heavier users' work beside it. Credit bounds how often.

The design and what it promises: docs/explanation/fair-lane.md.
"""

from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from heapq import heappop, heappush
from itertools import chain
from typing import Any, Final, NamedTuple

from batchproof.sched.config import Admission, Limits
from batchproof.sched.policy.compose import chunks, without
from batchproof.sched.policy.credit import Credit
from batchproof.sched.policy.protocol import Candidate, Plan, UserView, View
from batchproof.spec.lifecycle import DECODING

HEAVIER: Final = 4
"""A user is heavier than another whose load it has this many times, or more."""
LANE_SHARE: Final = 2
"""In the lane, the heavier users' work is at most the light side's divided by this."""
CREDIT: Final = 2**20
"""One lane tick, or one block taken, as credit is counted."""
PURSE: Final = 16
"""Credits for how many users there are at the start."""


class Terms(NamedTuple):
    """What follows from the limits."""

    lane_ticks: int
    """Lane ticks in a full credit: enough to prefill the whole memory, and one."""
    blocks_taken: int
    """Blocks taken from users over their share in a full credit."""
    reserve: int
    """Blocks that an ordinary admission leaves free."""

    @classmethod
    def of(cls, limits: Limits) -> "Terms":
        """Return the terms for these limits."""
        memory = limits.max_kv_blocks * limits.block_size
        return cls(
            lane_ticks=-(-memory // limits.chunk_size) + 1,
            blocks_taken=limits.max_kv_blocks,
            reserve=limits.max_kv_blocks // 32,
        )


terms_of = lru_cache(Terms.of)


class Note(NamedTuple):
    """What a plan costs in credit."""

    users: int
    """How many are active."""
    lane: tuple[str, ...]
    """Whose lane it is; empty in an ordinary tick."""
    taken: tuple[tuple[str, int], ...]
    """User -> blocks taken from users over their share."""


class FairLane:
    """The user with the least memory is next; a light user's first tokens have a lane."""

    name = "fair-lane"

    def __init__(self, admission: Admission = "max_utilization") -> None:
        self.admission = admission
        self._lane = Credit()
        self._taking = Credit()

    def plan(self, view: View) -> Plan:
        """Let decodes grow, admit, and fill the batch: the lane's, or all users' in turn."""
        self._size(view.limits)
        draft = _Draft(view, self._lane, self._taking, may_preempt=self._may_preempt)
        draft.grow()
        draft.admit()
        return draft.plan()

    def completed(self, plan: Plan) -> None:
        """Charge what the tick cost, or refill."""
        note: Any = plan.note
        if note is None:
            return
        for user, blocks in note.taken:
            self._taking.spend(user, blocks * CREDIT)
        refill = self._taking.cap // (16 * (self._lane.cap // CREDIT))
        self._taking.refill(refill // note.users, refill)
        if note.lane:
            for user in note.lane:
                self._lane.spend(user, CREDIT)
        else:
            self._lane.refill(CREDIT // (4 * note.users), CREDIT // 4)

    def left(self, user_id: str) -> None:
        """Take back the credit of a user without live requests."""
        self._lane.left(user_id)
        self._taking.left(user_id)

    def state(self) -> Hashable:
        """Return the credit there is."""
        return self._lane.state(), self._taking.state()

    def restore(self, state: Any) -> None:
        """Become as a policy was whose `state` returned this."""
        lane, taking = state
        self._lane.restore(lane)
        self._taking.restore(taking)

    @property
    def _may_preempt(self) -> bool:
        return self.admission == "max_utilization"

    def _size(self, limits: Limits) -> None:
        terms = terms_of(limits)
        self._lane.cap, self._taking.cap = terms.lane_ticks * CREDIT, terms.blocks_taken * CREDIT
        self._lane.purse, self._taking.purse = self._lane.cap * PURSE, self._taking.cap * PURSE


class _Draft:
    """A plan in the making: the view, and what has been decided on top of it."""

    def __init__(self, view: View, lane: Credit, taking: Credit, *, may_preempt: bool) -> None:
        self.view = view
        self.limits = view.limits
        self.users = view.users
        self.lane_credit = lane
        self.taking_credit = taking
        self.may_preempt = may_preempt
        self.terms = terms_of(view.limits)
        self.free = view.free_blocks
        seats = min(self.limits.max_batch_size, self.limits.token_budget)
        self.decode = view.decoding if len(view.decoding) <= seats else view.decoding[:seats]
        self.prefilling = view.prefilling
        self.grown: set[int] = set()
        self.lost: dict[int, Candidate] = {}
        self.losers: set[str] = set()
        """Users that lost a request: it is next in their line, and not in this tick."""
        self.winners: set[str] = set()
        """Users that had a request admitted, and so lose none in this tick: theirs is older."""
        self.admitted: list[Candidate] = []
        self.changed: dict[str, int] = {}
        """User -> blocks that it has gained in this tick."""
        self.taken: dict[str, int] = {}

    # Who is who

    def held(self, user: UserView) -> int:
        """Return the blocks that a user would hold by this draft."""
        return user.held + self.changed.get(user.user_id, 0)

    def over_share(self, held: int) -> bool:
        """Tell whether `held` blocks are more than an equal share of the memory."""
        return held * len(self.users) > self.limits.max_kv_blocks

    def is_heavier(self, other: UserView, user: UserView) -> bool:
        """Tell whether `other` is heavier than `user`."""
        return other.load >= HEAVIER * user.load and user.outstanding <= self.limits.max_kv_blocks

    def has_heavier(self, user: UserView) -> bool:
        """Tell whether anybody is heavier than `user`."""
        return (
            self.users.heaviest >= HEAVIER * user.load
            and user.outstanding <= self.limits.max_kv_blocks
        )

    def followers(self, user: UserView) -> Iterator[Candidate]:
        """Yield a user's residents but the oldest, youngest first, that are not lost."""
        residents = user.residents
        for index in range(len(residents) - 1, 0, -1):
            if residents[index].number not in self.lost:
                yield residents[index]

    def residents(self) -> list[UserView]:
        """Return the users that have residents, in order of those in the view."""
        ids = dict.fromkeys(c.user_id for c in (*self.view.decoding, *self.view.prefilling))
        return [self.users[user] for user in ids]

    # Growth

    def grow(self) -> None:
        """Give each decode at a block boundary its block, preempting while there is none."""
        growing: Iterable[Candidate] = self.view.growing
        if not growing:
            return
        if self.decode is not self.view.decoding:
            chosen = {candidate.number for candidate in self.decode}
            growing = [candidate for candidate in growing if candidate.number in chosen]
        for candidate in growing:
            while not self.free and candidate.number not in self.lost:
                self.lose(self.growth_victim(candidate))
            if candidate.number not in self.lost:
                self.free -= 1
                self.grown.add(candidate.number)

    def growth_victim(self, candidate: Candidate) -> Candidate:
        """Return who gives way to a decode that has to grow; it may be the decode itself."""
        user = self.users[candidate.user_id]
        others = sorted(self.residents(), key=lambda other: (-self.held(other), other.user_id))
        heavier = [other for other in others if self.is_heavier(other, user)]
        over: list[UserView] = []
        if not self.over_share(self.held(user) + 1):
            over = [other for other in others if self.over_share(self.held(other))]
        for victims in (heavier, over, [user], others):
            for victim in victims:
                follower = next(self.followers(victim), None)
                if follower is not None:
                    return follower
        # Only the oldest of each user are left: of those, the oldest of all is never the victim.
        return max(
            (other.residents[0] for other in others if other.residents[0].number not in self.lost),
            key=lambda oldest: oldest.number,
        )

    def lose(self, victim: Candidate) -> None:
        """Preempt a resident."""
        blocks = victim.block_count
        self.lost[victim.number] = victim
        self.losers.add(victim.user_id)
        self.changed[victim.user_id] = self.changed.get(victim.user_id, 0) - blocks
        self.free += blocks
        if victim.number in self.grown:
            self.grown.remove(victim.number)
            self.free += 1

    # Admission

    def admit(self) -> None:
        """Admit, again and again, the oldest request of the user that holds the least memory.

        The first that finds no room ends it, so that nobody of its weight passes
        it; lighter users still may, the lightest first.
        """
        for blocked, candidate in self.in_order():
            if not self.try_to_admit(blocked, candidate):
                break
        else:
            return
        for user in self.users.by_load:
            if not self.is_heavier(blocked, user):
                return
            if user.user_id in self.losers:
                continue
            for candidate in user.waiting:
                if candidate not in self.admitted and not self.try_to_admit(user, candidate):
                    return

    def in_order(self) -> Iterator[tuple[UserView, Candidate]]:
        """Yield whose turn it is, and its oldest waiting request, as long as all are admitted."""
        again: list[tuple[int, int, UserView, Candidate, Iterator[Candidate]]] = []

        def turns(user: UserView, line: Iterator[Candidate]) -> None:
            candidate = next(line, None)
            if candidate is not None:
                heappush(again, (self.held(user), len(self.admitted), user, candidate, line))

        for user in chain(self.users.waiting_by_usage, (None,)):
            while again and (user is None or again[0][0] < user.held):
                _, _, other, candidate, line = heappop(again)
                yield other, candidate
                turns(other, line)
            if user is not None and user.user_id not in self.losers:
                line = iter(user.waiting)
                yield user, next(line)
                turns(user, line)

    def try_to_admit(self, user: UserView, candidate: Candidate) -> bool:
        """Admit a request if there is room in the batch and in memory, or can be made."""
        blocks = self.view.blocks_to_admit(candidate)
        if not self.fits_in_batch(user):
            return False
        if blocks > self.free:
            if not (self.may_preempt and self.make_room(user, blocks)):
                return False
        elif blocks + self.terms.reserve > self.free and not self.reserve_is_waived(user, blocks):
            return False
        self.free -= blocks
        self.changed[user.user_id] = self.changed.get(user.user_id, 0) + blocks
        self.admitted.append(candidate)
        self.winners.add(user.user_id)
        return True

    def reserve_is_waived(self, user: UserView, blocks: int) -> bool:
        """Tell whether a user may use up the reserve."""
        held = self.held(user)
        return not held or not self.over_share(held + blocks) or self.has_heavier(user)

    def fits_in_batch(self, user: UserView) -> bool:
        """Tell whether the batch, or the lane if it would be this user's, has room for a chunk."""
        if self.batch_has_room(self.decode, self.prefilling):
            return True
        if not self.has_lane(user):
            return False
        return self.batch_has_room(
            self.light(self.decode, user), list(self.light(self.prefilling, user))
        )

    def batch_has_room(self, decode: Iterable[Candidate], prefilling: Iterable[Candidate]) -> bool:
        sequences = tokens = 0
        chunk_size = self.limits.chunk_size
        for candidate in decode:
            if candidate.number not in self.lost:
                sequences += 1
                tokens += 1
        for candidate in (*prefilling, *self.admitted):
            if candidate.number not in self.lost:
                sequences += 1
                tokens += min(chunk_size, candidate.prefill_left)
        return sequences < self.limits.max_batch_size and tokens < self.limits.token_budget

    def light(self, candidates: Iterable[Candidate], user: UserView) -> list[Candidate]:
        """Return the requests of users that are not heavier than `user`."""
        return [c for c in candidates if not self.is_heavier(self.users[c.user_id], user)]

    def make_room(self, user: UserView, blocks: int) -> bool:
        """Preempt, youngest first, until `blocks` are free; or nobody, if that is not enough."""
        heavier: list[Candidate] = []
        over: list[Candidate] = []
        may_take_over = self.may_take_from_over_share(user, blocks)
        for other in self.residents():
            if other.user_id in self.winners:
                continue
            if self.is_heavier(other, user):
                heavier += self.followers(other)
            elif may_take_over and not self.is_heavier(user, other):
                held = self.held(other)
                for follower in self.followers(other):
                    if not self.over_share(held):
                        break
                    over.append(follower)
                    held -= follower.block_count
        victims: list[Candidate] = []
        missing = blocks - self.free
        taken = 0
        for kind in (heavier, over):
            for follower in sorted(kind, key=_number, reverse=True):
                if missing <= 0:
                    break
                victims.append(follower)
                missing -= follower.block_count
                if kind is over:
                    taken += follower.block_count
        if missing > 0:
            return False
        if taken:
            taken += self.taken.get(user.user_id, 0)
            if taken * CREDIT > self.taking_credit.of(user.user_id):
                return False
            self.taken[user.user_id] = taken
        for victim in victims:
            self.lose(victim)
        return True

    def may_take_from_over_share(self, user: UserView, blocks: int) -> bool:
        """Tell whether a user may take memory from users over their share."""
        held = self.held(user)
        return not held or not (self.over_share(user.outstanding) or self.over_share(held + blocks))

    # The batch

    def has_lane(self, user: UserView) -> bool:
        """Tell whether a user's first tokens would have a lane."""
        return self.has_heavier(user) and self.lane_credit.of(user.user_id) >= CREDIT

    def plan(self) -> Plan:
        """Return the plan: the lane's if there is one."""
        decode = without(self.decode, list(self.lost.values()))
        prefilling = [*without(self.prefilling, list(self.lost.values())), *self.admitted]
        lane = self.lane(prefilling)
        if lane:
            lightest = min(lane, key=lambda user: user.load)
            heavy = self.heavy(decode, prefilling, lightest)
            if heavy:
                return self.lane_plan(decode, prefilling, lane, lightest, heavy)
        budget = self.limits.token_budget - len(decode)
        seats = self.limits.max_batch_size - len(decode)
        prefill = chunks(self.view, _in_turn(prefilling), budget, seats)
        return self.finished(decode, prefill, ())

    def lane(self, prefilling: list[Candidate]) -> list[UserView]:
        """Return the users whose lane this tick is; none is heavier than another."""
        waiting = dict.fromkeys(c.user_id for c in prefilling if c.remaining == c.max_tokens)
        lane = [user for user in map(self.users.__getitem__, waiting) if self.has_lane(user)]
        return [user for user in lane if not any(self.is_heavier(user, other) for other in lane)]

    def heavy(
        self, decode: Iterable[Candidate], prefilling: Iterable[Candidate], lightest: UserView
    ) -> list[Candidate]:
        """Return the work of users heavier than the lightest lane user, oldest first."""
        work = [
            c for c in (*decode, *prefilling) if self.is_heavier(self.users[c.user_id], lightest)
        ]
        return sorted(work, key=_number)

    def lane_plan(
        self,
        decode: Iterable[Candidate],
        prefilling: Iterable[Candidate],
        lane: list[UserView],
        lightest: UserView,
        heavy: list[Candidate],
    ) -> Plan:
        """Return a batch of the light side's work, oldest first, and a little of the heavier's."""
        limits = self.limits
        chosen = self.light(decode, lightest)[: min(limits.max_batch_size, limits.token_budget)]
        prefill = chunks(
            self.view,
            sorted(self.light(prefilling, lightest), key=_number),
            limits.token_budget - len(chosen),
            limits.max_batch_size - len(chosen),
        )
        light_tokens = len(chosen) + sum(tokens for _, tokens in prefill)
        light_sequences = len(chosen) + len(prefill)
        tokens = min(light_tokens // LANE_SHARE, limits.token_budget - light_tokens)
        sequences = min(light_sequences // LANE_SHARE, limits.max_batch_size - light_sequences)
        for candidate in heavy[:sequences]:
            if not tokens:
                break
            if candidate.phase == DECODING:
                chosen.append(candidate)
                tokens -= 1
            else:
                fed = min(limits.chunk_size, candidate.prefill_left, tokens)
                prefill.append((candidate, fed))
                tokens -= fed
        return self.finished(chosen, prefill, tuple(sorted(user.user_id for user in lane)))

    def finished(
        self,
        decode: "list[Candidate] | Any",
        prefill: list[tuple[Candidate, int]],
        lane: tuple[str, ...],
    ) -> Plan:
        note = Note(len(self.users), lane, tuple(sorted(self.taken.items())))
        return Plan(list(self.lost.values()), decode, self.admitted, prefill, note)


def _in_turn(prefilling: list[Candidate]) -> list[Candidate]:
    """Return the oldest of each user first, then the second of each, and so on."""
    turns: dict[str, int] = {}
    order: list[tuple[int, int, Candidate]] = []
    for candidate in sorted(prefilling, key=_number):
        turn = turns[candidate.user_id] = turns.get(candidate.user_id, 0) + 1
        order.append((turn, candidate.number, candidate))
    order.sort()
    return [candidate for _, _, candidate in order]


def _number(candidate: Candidate) -> int:
    return candidate.number
