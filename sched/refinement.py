"""The specification run under a policy: shown to it as a scheduler, its plans taken as ticks.

It sees both sides. A state of the specification becomes the read-only view that
policies plan from; the plan becomes the work of one tick; everything else, whose
output is EOS included, stays open as the specification has it.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from batchproof.sched.accounts import REQUEST_LOAD, USAGE_STEPS
from batchproof.sched.config import Limits
from batchproof.sched.policy.protocol import Candidate, Plan, Policy, StatefulPolicy, stateful
from batchproof.sched.weights import Weight, load_per_weight
from batchproof.spec.actions import Event, Tick, Work, growth
from batchproof.spec.history import remembered
from batchproof.spec.lifecycle import DECODING, RESIDENT, WAITING, Phase
from batchproof.spec.model import Batching
from batchproof.spec.state import History, Live, State, System


class SpecCandidate(NamedTuple):
    """A live request of the specification, as a policy sees it: a `policy.Candidate`."""

    request: int
    """Its id in the specification."""
    request_id: str
    user_id: str
    number: int
    phase: Phase | None
    prompt_len: int
    max_tokens: int
    remaining: int
    prefill_left: int
    block_count: int


class SpecUser(NamedTuple):
    """A user with live requests, as a policy sees it: a `policy.UserView`."""

    user_id: str
    weight: Weight
    live: int
    held: int
    outstanding: int
    residents: Sequence[Candidate]
    waiting: Sequence[Candidate]

    @property
    def load(self) -> int:
        """Blocks outstanding, and `REQUEST_LOAD` for each live request."""
        return self.outstanding + REQUEST_LOAD * self.live


class SpecUsers(Mapping[str, SpecUser]):
    """The users with live requests, as a policy sees them: a `policy.UsersView`."""

    def __init__(self, users: Sequence[SpecUser], max_kv_blocks: int) -> None:
        self._step = max(max_kv_blocks // USAGE_STEPS, 1)
        self._users = {user.user_id: user for user in users}

    def __getitem__(self, user_id: str) -> SpecUser:
        return self._users[user_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._users)

    def __len__(self) -> int:
        return len(self._users)

    @property
    def waiting_by_usage(self) -> Sequence[SpecUser]:
        """Those with a waiting request: least memory held first, then the oldest waiting."""
        queued = [user for user in self._users.values() if user.waiting]
        return sorted(queued, key=lambda user: (user.held // self._step, user.waiting[0].number))

    @property
    def by_load(self) -> Sequence[SpecUser]:
        """All of them: lightest per weight first, then in order of arrival."""
        return sorted(self._users.values(), key=load_per_weight)

    @property
    def heaviest(self) -> Weight:
        """The largest load per weight of any of them."""
        return max(map(load_per_weight, self._users.values()), default=0)

    @property
    def weight_sum(self) -> Weight:
        """The sum of their weights."""
        return sum(user.weight for user in self._users.values())

    @property
    def weights_differ(self) -> bool:
        """Whether they have more than one weight."""
        return len({user.weight for user in self._users.values()}) > 1


class SpecView:
    """A state of the specification, as a policy sees it: a `policy.View`."""

    def __init__(
        self,
        system: System,
        limits: Limits,
        state: State,
        weights: Sequence[int] = (),
    ) -> None:
        self.limits = limits
        self._weights = weights
        self.free_blocks = state.free
        self._system = system
        self._history = state.history or History()
        self._candidates = {
            live.request: _candidate(system, live, number) for number, live in enumerate(state.live)
        }
        self.decoding = tuple(self._candidates[i] for i in self._history.decoding)
        self.prefilling = tuple(self._candidates[i] for i in self._history.prefilling)
        self.growing = tuple(
            self._candidates[live.request]
            for live in state.in_phase(DECODING)
            if growth(system, live)
        )
        self.waiting = tuple(
            candidate for candidate in self._candidates.values() if candidate.phase == WAITING
        )

    @property
    def waiting_by_user(self) -> Mapping[str, Sequence[Candidate]]:
        """The waiting requests by user, for the users that have any, in order of arrival."""
        return {user.user_id: user.waiting for user in self.users.values() if user.waiting}

    @property
    def users(self) -> SpecUsers:
        """The users with live requests."""
        return self._users

    @cached_property
    def _users(self) -> SpecUsers:
        users = [self._user(user) for user in self._history.users]
        return SpecUsers(users, self.limits.max_kv_blocks)

    def blocks_to_admit(self, candidate: Candidate, /) -> int:
        """Return the blocks that admitting a waiting request would take now."""
        assert isinstance(candidate, SpecCandidate)
        generated = candidate.max_tokens - candidate.remaining
        return self._system.blocks_to_admit(candidate.request, generated)

    def _user(self, user: int) -> SpecUser:
        user_id = f"u{user}"
        weight = self._weights[user] if self._weights else 1
        mine = [c for c in self._candidates.values() if c.user_id == user_id]
        residents = [c for c in mine if c.phase in RESIDENT]
        waiting = [c for c in mine if c.phase == WAITING]
        held = sum(c.block_count for c in residents)
        outstanding = held + sum(map(self.blocks_to_admit, waiting))
        return SpecUser(user_id, weight, len(mine), held, outstanding, residents, waiting)


def _candidate(system: System, live: Live, number: int) -> SpecCandidate:
    user, prompt, max_tokens, _ = system.requests[live.request]
    decodes = live.phase == DECODING
    return SpecCandidate(
        request=live.request,
        request_id=f"r{live.request}",
        user_id=f"u{user}",
        number=number,
        phase=live.phase,
        prompt_len=prompt,
        max_tokens=max_tokens,
        remaining=max_tokens - live.generated,
        prefill_left=0 if decodes else prompt + live.generated - live.prefilled,
        block_count=live.blocks,
    )


def work_of(plan: Plan) -> Work:
    """Return the work that a plan for a `SpecView` stands for, in the plan's order."""
    return Work(
        preempt=_requests(plan.preempt),
        admit=_requests(plan.admit),
        feed=(
            *((request, 1) for request in _requests(plan.decode)),
            *zip(
                _requests(candidate for candidate, _ in plan.prefill),
                (tokens for _, tokens in plan.prefill),
                strict=True,
            ),
        ),
    )


def _requests(candidates: Iterable[Candidate]) -> tuple[int, ...]:
    return tuple(c.request for c in candidates if isinstance(c, SpecCandidate))


def limits_of(system: System) -> Limits:
    """Return the limits of the specification as the scheduler's own."""
    return Limits(*system.limits, max_passes=system.max_passes)


@dataclass(frozen=True, kw_only=True)
class UnderPolicy(Batching):
    """The specification, with ticks as a policy decides them; users and EOS stay free.

    A plan that breaks a rule is carried out all the same, for the properties to
    say which.
    """

    policy: Policy
    """A new one: it is asked here for the state that a run begins with."""
    weights: tuple[int, ...] = ()
    """Each user's weight; 1 for all if there are none."""
    _remembers: StatefulPolicy | None = field(init=False, repr=False)
    _limits: Limits = field(init=False, repr=False)
    _beginning: History = field(init=False, repr=False)

    def __post_init__(self) -> None:
        remembers = stateful(self.policy)
        memory = None if remembers is None else remembers.state()
        object.__setattr__(self, "_remembers", remembers)
        object.__setattr__(self, "_limits", limits_of(self.system))
        object.__setattr__(self, "_beginning", History(memory=memory))

    def initial(self) -> Iterable[State]:
        """Return the one initial state, with a history that is empty."""
        return [state._replace(history=self._beginning) for state in super().initial()]

    def successors(self, state: State) -> Iterator[tuple[Event, State]]:
        """Yield the specification's steps, the policy's ticks among them."""
        for event, after in super().successors(state):
            memory = self._memory(state, event, after)
            history = remembered(self.system, state, event, after, memory)
            yield event, after._replace(history=history)

    def works(self, state: State) -> Iterable[Work]:
        """Return the one thing that the policy does."""
        return [work_of(self.plan(state))]

    def canonical(self, state: State) -> State:
        """Rename requests and users, unless the policy's own state may name them."""
        return super().canonical(state) if self._remembers is None else state

    def plan(self, state: State) -> Plan:
        """Return what the policy plans for a state with a live request."""
        if self._remembers is not None and state.history is not None:
            self._remembers.restore(state.history.memory)
        return self.policy.plan(self.view(state))

    def view(self, state: State) -> SpecView:
        """Return a state as the policy sees it."""
        return SpecView(self.system, self._limits, state, self.weights)

    def _memory(self, state: State, event: Event, after: State) -> Hashable:
        policy = self._remembers
        if policy is None or state.history is None:
            return None
        policy.restore(state.history.memory)
        if isinstance(event, Tick):
            policy.completed(self.plan(state))
        left = {self.system.requests[live.request].user for live in after.live}
        for user in state.history.users:
            if user not in left:
                policy.left(f"u{user}")
        return policy.state()
