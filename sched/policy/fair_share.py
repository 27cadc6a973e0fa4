"""Who gets memory under fair-lane: a plan in the making, its growth and its admissions.

Memory goes to the user that holds the least or, where weights differ, that was
served the least. Who finds none may take it from heavier users; a decode that
has to grow, else from its own user's other requests, else from whoever holds
most. While anything else is left, a user's oldest request is spared. Users are
compared per weight.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from batchproof.sched.accounts import USAGE_STEPS
from batchproof.sched.config import Limits
from batchproof.sched.policy.compose import has_no_token
from batchproof.sched.policy.credit import Credit
from batchproof.sched.policy.protocol import Candidate, UserView, View
from batchproof.sched.policy.service import UNIT, Counts, Debts, least_served, summed
from batchproof.sched.weights import fair_cost, per_weight

HEAVIER: Final = 4
"""A user is heavier than another whose load it has this many times, or more."""
CREDIT: Final = 2**20
"""One lane tick, as credit is counted."""
PURSE: Final = 16
"""Full credits that there are for newcomers at the start."""
DEBT: Final = 16
"""A user's service counts until it has had this many times the memory more than others."""


class Terms(NamedTuple):
    """The numbers that the policy decides by: they follow from the limits, or are given."""

    lane_ticks: int
    """Lane ticks in a full credit: enough to prefill the whole memory, and one."""
    reserve: int
    """The most blocks that an ordinary admission leaves free, for residents to grow into."""
    step: int
    """Blocks by which usage is compared: within one step, the older request is next."""
    debt_max: int
    """The most, in parts of a block, by which a user's service puts it behind others."""
    heavier: int = HEAVIER
    credit: int = CREDIT
    purse: int = PURSE

    @classmethod
    def of(cls, limits: Limits) -> "Terms":
        """Return the terms for these limits."""
        memory = limits.max_kv_blocks * limits.block_size
        sixteenth = limits.max_kv_blocks // 16
        return cls(
            lane_ticks=-(-memory // limits.chunk_size) + 1,
            reserve=sixteenth,
            step=max(limits.max_kv_blocks // USAGE_STEPS, 1),
            debt_max=DEBT * limits.max_kv_blocks * UNIT,
        )


class Draft:
    """A plan in the making: the view, and what has been decided on top of it.

    `lane` is the credit for lane ticks, `latest` the user of the last admission,
    `debts` who was served how much. Without `may_preempt` nobody is preempted to
    admit another.
    """

    __slots__ = (
        "_gained",
        "_grown",
        "_lane",
        "_latest",
        "_losers",
        "_may_preempt",
        "_winners",
        "admitted",
        "debts",
        "decode",
        "free",
        "limits",
        "lost",
        "prefilling",
        "terms",
        "users",
        "view",
    )

    def __init__(
        self,
        view: View,
        terms: Terms,
        lane: Credit,
        latest: str | None,
        debts: Debts,
        *,
        may_preempt: bool,
    ) -> None:
        self.view = view
        self.limits = view.limits
        self.users = view.users
        self.terms = terms
        self._lane, self._latest, self._may_preempt = lane, latest, may_preempt
        self.free = view.free_blocks
        seats = min(self.limits.max_batch_size, self.limits.token_budget)
        self.decode = view.decoding if len(view.decoding) <= seats else view.decoding[:seats]
        self.prefilling = view.prefilling
        self.lost: dict[int, Candidate] = {}
        """Those to be preempted, by number."""
        self.admitted: list[Candidate] = []
        self._grown: set[int] = set()
        self._losers: set[str] = set()
        """Users that lose a request: it is next in their line, and not in this tick."""
        self._winners: set[str] = set()
        """Users that have one admitted: it is younger than any that they could lose."""
        self._gained: dict[str, int] = {}
        self.debts = debts.of_waiting(view) if view.users.weights_differ else None
        """What users that wait were served, per weight; None where all have the same weight."""

    def is_heavier(self, other: UserView, user: UserView) -> bool:
        """Tell whether `other` is heavier than `user`, per weight."""
        return (
            other.load * user.weight >= self.terms.heavier * user.load * other.weight
            and user.outstanding <= self.limits.max_kv_blocks
        )

    def has_lane(self, user: UserView) -> bool:
        """Tell whether a user's first tokens have a lane: somebody is heavier, credit is left."""
        return self._has_heavier(user) and self._lane.of(user.user_id) >= min(
            self.lane_cost(user), self._lane.cap
        )

    def lane_cost(self, user: UserView) -> int:
        """Return what a lane tick costs a user: more, the less its weight is of the average."""
        return self._fair_cost(self.terms.credit, user)

    def left(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the candidates that are not lost."""
        return [candidate for candidate in candidates if candidate.number not in self.lost]

    def charges(self, decode: Iterable[Candidate]) -> Counts:
        """Return the blocks that users take, but for recomputation, over their weights.

        Of those that have room to grow, only who is among `decode` does so in this tick.
        """
        growing = self._growing_among(decode)
        grown = (c for c in self.view.growing if c.number in growing)
        return summed(
            (
                *((c.user_id, self._fair_cost(UNIT, self.users[c.user_id])) for c in grown),
                *((c.user_id, self._admission_charge(c)) for c in self.admitted),
            )
        )

    def spare(self, decode: Iterable[Candidate]) -> None:
        """Keep who was lost for nothing: of those that have room to grow, only `decode` do so.

        The last to be lost is the first to be kept, and nobody before its user's oldest.
        """
        free = self.free + len(self._grown) - len(self._growing_among(decode))
        for victim in list(reversed(self.lost.values())):
            oldest = self.users[victim.user_id].residents[0]
            if victim.block_count <= free and (victim is oldest or oldest.number not in self.lost):
                free -= victim.block_count
                del self.lost[victim.number]

    def _growing_among(self, decode: Iterable[Candidate]) -> set[int]:
        return self._grown.intersection(candidate.number for candidate in decode)

    def _admission_charge(self, candidate: Candidate) -> int:
        blocks = self.view.blocks_to_admit(candidate) if has_no_token(candidate) else 0
        return self._fair_cost(blocks * UNIT, self.users[candidate.user_id])

    def _fair_cost(self, amount: int, user: UserView) -> int:
        return fair_cost(amount, len(self.users), self.users.weight_sum, user.weight)

    def _has_heavier(self, user: UserView) -> bool:
        return (
            self.users.heaviest * user.weight >= self.terms.heavier * user.load
            and user.outstanding <= self.limits.max_kv_blocks
        )

    def _held(self, user: UserView) -> int:
        return user.held + self._gained.get(user.user_id, 0)

    def _over_share(self, user: UserView, blocks: int) -> bool:
        """Tell whether `blocks` are more than a user's share of the memory, by weight."""
        return blocks * self.users.weight_sum > self.limits.max_kv_blocks * user.weight

    def _followers(self, user: UserView) -> Iterator[Candidate]:
        """Yield a user's residents but the oldest, youngest first."""
        residents = user.residents
        for index in range(len(residents) - 1, 0, -1):
            if residents[index].number not in self.lost:
                yield residents[index]

    def _resident_users(self) -> list[UserView]:
        ids = dict.fromkeys(c.user_id for c in (*self.view.decoding, *self.view.prefilling))
        return [self.users[user] for user in ids]

    def _lose(self, victim: Candidate) -> None:
        blocks = victim.block_count
        self.lost[victim.number] = victim
        self._losers.add(victim.user_id)
        self._gained[victim.user_id] = self._gained.get(victim.user_id, 0) - blocks
        self.free += blocks
        if victim.number in self._grown:
            self._grown.remove(victim.number)
            self.free += 1

    # Growth

    def grow(self) -> None:
        """Give each decode at a block boundary its block, oldest first, preempting if need be.

        Where more decode than fit into the batch, the seat of one that is preempted goes to the
        next, which may have to grow in turn.
        """
        everyone, seats = self.view.decoding, len(self.decode)
        lost = 0
        self._grow_chosen()
        while len(self.lost) > lost and seats < len(everyone):
            lost = len(self.lost)
            self.decode = self.left(everyone)[:seats]
            self._grow_chosen()

    def _grow_chosen(self) -> None:
        growing: Iterable[Candidate] = self.view.growing
        if growing and self.decode is not self.view.decoding:
            chosen = {candidate.number for candidate in self.decode} - self._grown
            growing = [candidate for candidate in growing if candidate.number in chosen]
        for candidate in growing:
            while not self.free and candidate.number not in self.lost:
                self._lose(self._growth_victim(candidate))
            if candidate.number not in self.lost:
                self.free -= 1
                self._grown.add(candidate.number)

    def _growth_victim(self, candidate: Candidate) -> Candidate:
        """Return who gives way to a decode that has to grow; it may be the decode itself."""
        user = self.users[candidate.user_id]
        others = sorted(
            self._resident_users(),
            key=lambda other: (
                -per_weight(self._held(other), other.weight),
                other.residents[0].number,
            ),
        )
        heavier = [other for other in others if self.is_heavier(other, user)]
        for victims in (heavier, [user], others):
            for victim in victims:
                follower = next(self._followers(victim), None)
                if follower is not None:
                    return follower
        # Only each user's oldest are left. The oldest of all is alone before it is the youngest.
        return max(self.left(other.residents[0] for other in others), key=_number)

    # Admission

    def admit(self) -> None:
        """Admit, again and again, the oldest request of the user that is next.

        The first that finds no room ends it, so that nobody of its weight passes
        it; lighter users still may, the lightest first.
        """
        order = self._by_usage() if self.debts is None else self._by_service(self.debts)
        for blocked, candidate in order:
            if not self._try_to_admit(blocked, candidate):
                break
        else:
            return
        for user in self.users.by_load:  # pragma: no branch - blocked's own user ends it
            if not self.is_heavier(blocked, user):
                return
            if user.user_id in self._losers:
                continue
            for candidate in user.waiting:
                if candidate not in self.admitted and not self._try_to_admit(user, candidate):
                    return

    def _by_service(self, debts: Mapping[str, int]) -> Iterator[tuple[UserView, Candidate]]:
        """Yield who was served least, and its oldest waiting request, as long as all are admitted.

        Blocks taken are the service.
        """
        for candidate in least_served(self.view, debts, self._admission_charge):
            if candidate.user_id not in self._losers:
                yield self.users[candidate.user_id], candidate

    def _by_usage(self) -> Iterator[tuple[UserView, Candidate]]:
        """Yield who holds the least, and its oldest waiting request, as long as all are admitted.

        Of equal usage, the user of the last admission before this tick, and who had one in this
        tick, are behind the others.
        """
        ranking = iter(self.users.waiting_by_usage)
        upcoming: list[tuple[int, bool, int, UserView, Candidate, Iterator[Candidate]]] = []

        def enter(user: UserView, line: Iterator[Candidate], *, behind: bool) -> None:
            candidate = next(line, None)
            if candidate is not None:
                usage = self._held(user) // self.terms.step
                heappush(upcoming, (usage, behind, candidate.number, user, candidate, line))

        def enter_next() -> None:
            for user in ranking:
                behind = user.user_id == self._latest
                enter(user, iter(user.waiting), behind=behind)
                if not behind:
                    return

        enter_next()
        while upcoming:
            _, behind, _, user, candidate, line = heappop(upcoming)
            has_lost = user.user_id in self._losers
            if not has_lost:
                yield user, candidate
            if not behind:
                enter_next()
            if not has_lost:
                enter(user, line, behind=True)

    def _try_to_admit(self, user: UserView, candidate: Candidate) -> bool:
        """Admit a request if there is room in the batch and in memory, or can be made."""
        blocks = self.view.blocks_to_admit(candidate)
        spare = self.free - blocks
        if spare < self._reserve() and not self._may_use_reserve(user, blocks):
            return False
        if not self._fits_in_batch(user) or (spare < 0 and not self._make_room(user, blocks)):
            return False
        self.free -= blocks
        self._gained[user.user_id] = self._gained.get(user.user_id, 0) + blocks
        self._winners.add(user.user_id)
        self.admitted.append(candidate)
        return True

    def _reserve(self) -> int:
        """Return the blocks that an ordinary admission leaves free: one to grow for each."""
        residents = len(self.view.decoding) + len(self.prefilling) + len(self.admitted)
        return min(residents - len(self.lost), self.terms.reserve)

    def _may_use_reserve(self, user: UserView, blocks: int) -> bool:
        return not self._over_share(user, self._held(user) + blocks) or self._has_heavier(user)

    def _fits_in_batch(self, user: UserView) -> bool:
        """Tell whether the batch, or the lane if it would be this user's, has room for a chunk."""
        if self._has_room(self.decode, self.prefilling):
            return True
        if not self.has_lane(user):
            return False
        decode, prefilling = (
            [c for c in side if not self.is_heavier(self.users[c.user_id], user)]
            for side in (self.decode, self.prefilling)
        )
        return self._has_room(decode, prefilling)

    def _has_room(self, decode: Sequence[Candidate], prefilling: Sequence[Candidate]) -> bool:
        """Tell whether a batch of these and all admitted has a token and a seat to spare."""
        decoding, rest = len(decode), len(prefilling) + len(self.admitted)
        if (
            decoding + rest < self.limits.max_batch_size
            and decoding + rest * self.limits.chunk_size < self.limits.token_budget
        ):
            return True
        decoding = len(self.left(decode))
        chunks = [
            min(self.limits.chunk_size, candidate.prefill_left)
            for candidate in (*self.left(prefilling), *self.admitted)
        ]
        return (
            decoding + len(chunks) < self.limits.max_batch_size
            and decoding + sum(chunks) < self.limits.token_budget
        )

    def _make_room(self, user: UserView, blocks: int) -> bool:
        """Preempt heavier users' youngest until `blocks` are free; or nobody, if too few.

        For a user that holds nothing yet, or stays within an equal share.
        """
        held = self._held(user)
        if not self._may_preempt or (held and self._over_share(user, held + blocks)):
            return False
        if not self._has_heavier(user):
            return False
        candidates: list[Candidate] = []
        for other in self._resident_users():
            if other.user_id not in self._winners and self.is_heavier(other, user):
                candidates += self._followers(other)
        missing = blocks - self.free
        victims = _youngest(candidates, missing)
        if _blocks(victims) < missing:
            return False
        for victim in victims:
            self._lose(victim)
        return True


def _youngest(candidates: Iterable[Candidate], blocks: int) -> list[Candidate]:
    """Return the youngest that hold `blocks` blocks together, or all."""
    chosen: list[Candidate] = []
    for candidate in sorted(candidates, key=_number, reverse=True):
        if blocks <= 0:
            break
        chosen.append(candidate)
        blocks -= candidate.block_count
    return chosen


def _blocks(candidates: Iterable[Candidate]) -> int:
    return sum(candidate.block_count for candidate in candidates)


def _number(candidate: Candidate) -> int:
    return candidate.number
