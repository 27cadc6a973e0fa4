"""What a draft of fair-lane sees, made of a few requests: all of the users follows from them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from support.fair_stage import LIMITS

from batchproof.sched.accounts import REQUEST_LOAD, USAGE_STEPS
from batchproof.sched.policy.credit import Credit
from batchproof.sched.policy.fair_share import Draft, Terms
from batchproof.sched.policy.service import Debts
from batchproof.sched.weights import Weight, load_per_weight
from batchproof.spec.lifecycle import DECODING, PREFILLING, WAITING, Phase


@dataclass(frozen=True)
class Seen:
    """A request: A7 is of the user A, and older than any with a larger number."""

    name: str
    phase: Phase
    blocks: int
    """Those it holds, or would take if it waits."""
    prefill_left: int = 0
    remaining: int = 9
    max_tokens: int = 9
    grows: bool = False

    @property
    def user_id(self) -> str:
        return self.name[0]

    @property
    def number(self) -> int:
        return int(self.name[1:])

    @property
    def block_count(self) -> int:
        return 0 if self.phase == WAITING else self.blocks


def decodes(name: str, blocks: int = 1) -> Seen:
    return Seen(name, DECODING, blocks, remaining=5)


def grows(name: str, blocks: int = 1) -> Seen:
    """Return a decode that needs one more block."""
    return replace(decodes(name, blocks), grows=True)


def prefills(name: str, blocks: int = 1, left: int = 1) -> Seen:
    return Seen(name, PREFILLING, blocks, left)


def waits(name: str, blocks: int = 1, prompt: int = 1, generated: int = 0) -> Seen:
    """Return a request that waits; with tokens generated, it was preempted before."""
    return Seen(name, WAITING, blocks, prompt, 9 - generated)


def line(user: str, numbers: Iterable[int]) -> list[Seen]:
    """Return requests of a user that wait, for a block each."""
    return [waits(f"{user}{number}") for number in numbers]


class User:
    def __init__(self, user_id: str, weight: Weight, requests: list[Seen]) -> None:
        self.user_id, self.weight, self.live = user_id, weight, len(requests)
        own = sorted(requests, key=lambda seen: seen.number)
        self.residents = [seen for seen in own if seen.phase != WAITING]
        self.waiting = [seen for seen in own if seen.phase == WAITING]
        self.held = sum(seen.block_count for seen in own)
        self.outstanding = sum(seen.blocks for seen in own)
        self.load = self.outstanding + REQUEST_LOAD * self.live


class Users(dict[str, User]):
    step: int

    @property
    def waiting_by_usage(self) -> list[User]:
        waiting = [user for user in self.values() if user.waiting]
        return sorted(waiting, key=lambda u: (u.held // self.step, u.waiting[0].number))

    @property
    def by_load(self) -> list[User]:
        return sorted(self.values(), key=load_per_weight)

    @property
    def heaviest(self) -> Weight:
        return max(map(load_per_weight, self.values()))

    @property
    def weight_sum(self) -> Weight:
        return sum(user.weight for user in self.values())

    @property
    def weights_differ(self) -> bool:
        return len({user.weight for user in self.values()}) > 1


class Scene:
    """A view. Decodes are given as they were scheduled, least recently first.

    There are 32 blocks, of which the reserve is 2 and a step 8; or as many as `memory`
    says; or `free` more than are held.
    """

    def __init__(
        self,
        *requests: Seen,
        memory: int = LIMITS.max_kv_blocks,
        free: int | None = None,
        weights: dict[str, Weight] | None = None,
        **limits: int,
    ) -> None:
        held = sum(seen.block_count for seen in requests)
        if free is not None:
            memory = held + free
        self.limits = replace(LIMITS, max_kv_blocks=memory, **limits)
        self.terms = Terms.of(self.limits)
        self.decoding = [seen for seen in requests if seen.phase == DECODING]
        self.prefilling = [seen for seen in requests if seen.phase == PREFILLING]
        by_age = sorted(requests, key=lambda seen: seen.number)
        self.growing = [seen for seen in by_age if seen.grows]
        self.users = Users()
        self.users.step = max(memory // USAGE_STEPS, 1)
        for user in dict.fromkeys(seen.user_id for seen in by_age):
            own = [seen for seen in by_age if seen.user_id == user]
            self.users[user] = User(user, (weights or {}).get(user, 1), own)
        self.waiting_by_user = {u.user_id: u.waiting for u in self.users.values() if u.waiting}
        self.free_blocks = memory - held
        assert self.free_blocks >= 0

    def blocks_to_admit(self, candidate: Seen) -> int:
        return candidate.blocks

    def draft(
        self,
        latest: str | None = None,
        served: dict[str, int] | None = None,
        spent: dict[str, int] | None = None,
        may_preempt: bool = True,
    ) -> Any:
        """Return a draft on top of it; all users have full credit but for what they spent."""
        cap = self.terms.lane_ticks * self.terms.credit
        lane, debts = Credit(cap, cap * self.terms.purse), Debts()
        for user, amount in (spent or {}).items():
            lane.spend(user, amount)
        debts.restore(served or {})
        view: Any = self
        return Draft(view, self.terms, lane, latest, debts, may_preempt=may_preempt)


def names(candidates: Iterable[Any]) -> list[str]:
    return [candidate.name for candidate in candidates]


def lost(draft: Any) -> list[str]:
    """Return who is to be preempted, in the order of giving way."""
    return names(draft.lost.values())
