"""Fair-lane by itself, as `batchproof check` sees it: three users, lanes and weights.

The terms of these small machines are small too, so that lanes are had, credit
runs out, and debts reach their end.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from batchproof.invariants.catalog import RECOVERABLE, properties
from batchproof.sched.policy.compose import has_no_token
from batchproof.sched.policy.fair_lane import FairLane
from batchproof.sched.policy.fair_lane_claims import (
    Resident,
    first_token_ticks_max,
    heads_go_last,
    lane_share_is_kept,
    lane_work,
)
from batchproof.sched.policy.fair_share import Terms
from batchproof.sched.policy.service import UNIT
from batchproof.sched.refinement import SpecCandidate, SpecUser, SpecView, UnderPolicy, limits_of
from batchproof.sched.weights import fair_cost, load_per_weight
from batchproof.spec.actions import Event, Tick, growth
from batchproof.spec.bounds import SIZES
from batchproof.spec.lifecycle import RESIDENT
from batchproof.spec.property import Property
from batchproof.spec.registry import Bound, ModelFamily
from batchproof.spec.state import Limits, Request, State, System

POLICY: Final = "fair-lane"
SOURCE: Final = "fair-lane: what it promises"
WITNESS: Final = "guards against claims that hold because nothing happens"


@dataclass(frozen=True)
class FairSize:
    """One size at which fair-lane is checked."""

    about: str
    system: System
    terms: Terms
    states: int
    """Distinct states, counted one by one."""
    weights: tuple[int, ...] = ()

    def model(self) -> UnderPolicy:
        """Return fair-lane, with these terms, on the specification."""
        policy = FairLane(self.system.admission, terms=self.terms)
        return UnderPolicy(system=self.system, policy=policy, weights=self.weights)


_TERMS: Final = Terms(lane_ticks=1, reserve=0, step=1, debt_max=UNIT, heavier=2, credit=4, purse=2)
_THREE_USERS: Final = System(
    Limits(max_kv_blocks=3, block_size=2, chunk_size=2, token_budget=3, max_batch_size=2),
    (Request(0, prompt=1, max_tokens=3), Request(0, 1, 3), Request(1, 1, 2), Request(2, 1, 2)),
)
_HEAVY_BESIDE_LIGHT: Final = System(
    Limits(max_kv_blocks=2, block_size=2, chunk_size=2, token_budget=3, max_batch_size=2),
    (*(Request(0, prompt=1, max_tokens=3) for _ in range(3)), Request(1, prompt=2, max_tokens=1)),
    cancels=False,
)
_ONE_SEAT: Final = System(
    Limits(max_kv_blocks=3, block_size=2, chunk_size=2, token_budget=3, max_batch_size=1),
    (Request(0, prompt=1, max_tokens=3), Request(0, 1, 3), Request(1, 1, 3)),
)

FAIR_SIZES: Final = {
    "three-users": FairSize(
        "3 users, one of whom is twice as heavy as each of the others", _THREE_USERS, _TERMS, 21_758
    ),
    "heavy-beside-light": FairSize(
        "a user three times as heavy as the other holds all memory",
        _HEAVY_BESIDE_LIGHT,
        _TERMS._replace(heavier=3, purse=1),
        3_113,
    ),
    "one-seat": FairSize(
        "a lane brings in a decode more than the one seat has room for", _ONE_SEAT, _TERMS, 2_912
    ),
    "weights": FairSize(
        "the bound users, one of whom has twice the weight of the other",
        SIZES["users"].system,
        # A block of the user with weight 2 costs 3/4: debts are none, or this.
        _TERMS._replace(heavier=4, credit=2, purse=1, debt_max=UNIT * 3 // 4),
        38_882,
        weights=(2, 1),
    ),
}
"""Name of the bound -> its size."""


def heads_are_last(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a user's oldest resident goes only when all others have gone."""
    if not isinstance(event, Tick) or not event.work.preempt:
        return True
    residents = [
        Resident(f"u{system.requests[live.request].user}", number)
        for number, live in enumerate(before.live)
        if live.phase in RESIDENT
    ]
    numbers = {live.request: number for number, live in enumerate(before.live)}
    return heads_go_last(residents, [numbers[request] for request in event.work.preempt])


def lane_is_shared(model: UnderPolicy, state: State) -> bool:
    """Say whether what is next, if it is a lane tick, keeps to the share of others."""
    lane, plan = _lane_of(model, state)
    if not lane:
        return True
    assert isinstance(model.policy, FairLane)
    heavier = model.policy.terms.heavier
    return lane_share_is_kept([lane_work(model.view(state), plan, lane, heavier)])


def service_is_memory(model: UnderPolicy, state: State) -> bool:
    """Say whether what is next charges users, over their weights, for the blocks that it takes."""
    _, plan = _lane_of(model, state)
    if plan is None or plan.note.service is None:
        return True
    system, users = model.system, model.view(state).users
    fed = {candidate.request for candidate in plan.decode}
    first = {candidate.request for candidate in plan.admit if has_no_token(candidate)}
    taken: Counter[str] = Counter()
    for live in state.live:
        user = f"u{system.requests[live.request].user}"
        if live.request in fed:
            taken[user] += growth(system, live)
        elif live.request in first:
            taken[user] += system.blocks_to_admit(live.request, 0)
    return {user: charge for user, charge in plan.note.service[1] if charge} == {
        user: fair_cost(blocks * UNIT, len(users), users.weight_sum, users[user].weight)
        for user, blocks in taken.items()
        if blocks
    }


def has_lanes(model: UnderPolicy, users: int, before: State, event: Event, after: State) -> bool:
    """Say whether a tick is the lane of so many users."""
    return isinstance(event, Tick) and len(_lane_of(model, before)[0]) == users


def _lane_of(model: UnderPolicy, state: State) -> tuple[tuple[str, ...], Any]:
    plan: Any = model.plan(state) if state.live else None
    return (plan.note.lane if plan else ()), plan


def first_token_is_in_time(model: UnderPolicy, state: State) -> bool:
    """Say whether the lightest user that waits gets its first token in time, if nobody comes."""
    promised = _promised(model, state)
    if promised is None:
        return True
    request, ticks = promised
    for _ in range(ticks):
        state = next(
            after
            for event, after in model.successors(state)
            if isinstance(event, Tick) and not event.eos
        )
        live = state.find(request)
        if live is None or live.generated:
            return True
    return False


def promises_first_token(model: UnderPolicy, before: State, event: Event, after: State) -> bool:
    """Say whether there is a first token that is promised."""
    return _promised(model, before) is not None


def _promised(model: UnderPolicy, state: State) -> tuple[int, int] | None:
    """Return the request whose first token is promised, and within how many ticks."""
    if not state.live:
        return None
    assert isinstance(model.policy, FairLane)
    policy, view, limits = model.policy, model.view(state), limits_of(model.system)
    model.plan(state)  # which makes the policy what it was in this state
    users = list(view.users.values())
    waiting = sorted((user for user in users if user.waiting), key=load_per_weight)
    if not waiting or waiting[0].live > 1 or not has_no_token(waiting[0].waiting[0]):
        return None
    lightest, request = waiting[0], waiting[0].waiting[0]
    assert isinstance(request, SpecCandidate)
    load = load_per_weight(lightest)
    heavier = [user for user in users if load_per_weight(user) >= policy.terms.heavier * load]
    memory = limits.max_kv_blocks - sum(_kept_from_others(view, u, u in heavier) for u in users)
    side = [c for user in users if user not in heavier for c in (*user.residents, *user.waiting)]
    pending = [c for c in side if has_no_token(c) and c is not request]
    older = sum(c.prefill_left for c in pending)
    ticks = first_token_ticks_max(request.prompt_len, older, limits)
    cost = fair_cost(policy.terms.credit, len(users), view.users.weight_sum, lightest.weight)
    promised = (
        heavier
        and not (len(waiting) > 1 and load_per_weight(waiting[1]) == load)
        and len(pending) < limits.max_batch_size
        and view.blocks_to_admit(request) <= memory
        and policy.credit_of(lightest.user_id) >= cost * (ticks - 1)
    )
    return (request.request, ticks) if promised else None


def _kept_from_others(view: SpecView, user: SpecUser, is_heavier: bool) -> int:
    """Return the blocks that a lighter user cannot take: of a heavier one, its oldest request's."""
    oldest = [*user.residents, *user.waiting][:1] if is_heavier else user.residents
    growing = len([c for c in view.growing if c in oldest])
    return growing + sum(c.block_count or view.blocks_to_admit(c) for c in oldest)


def own_claims(size: FairSize) -> Iterable[Property]:
    """Yield what fair-lane promises besides the catalog, at one size."""
    model = size.model()
    lanes_of = [1, 2] if size is FAIR_SIZES["three-users"] else [1]
    yield Property(
        "heads-go-last",
        "a user's oldest resident is preempted only when all others have been",
        SOURCE,
        "step",
        partial(heads_are_last, size.system),
    )
    yield Property(
        "lane-is-shared",
        "other work has at most half of the lane's tokens, and of its sequences, rounded up",
        SOURCE,
        "invariant",
        partial(lane_is_shared, model),
    )
    yield Property(
        "first-token-in-time",
        "the lightest user that waits, with someone heavier, credit and memory, has its first token"
        " within 1 + ceil(prompt / chunk) + floor(older / (budget - chunk + 1)) ticks, if nobody "
        "comes",
        SOURCE,
        "invariant",
        partial(first_token_is_in_time, model),
    )
    yield Property(
        "can-promise-first-token",
        "a first token can be promised",
        WITNESS,
        "witness",
        partial(promises_first_token, model),
    )
    if size.weights:
        yield Property(
            "service-is-memory",
            "where weights differ, a tick is charged to users, over their weights, for the blocks "
            "that it takes, but not to compute again",
            SOURCE,
            "invariant",
            partial(service_is_memory, model),
        )
    for users in lanes_of:
        yield Property(
            f"can-have-lane-of-{users}",
            f"a tick can be the lane of {users} users",
            WITNESS,
            "witness",
            partial(has_lanes, model, users),
        )


def _bound(name: str, size: FairSize) -> Bound:
    watched = tuple(range(len(size.system.requests)))
    catalog = [prop for prop in properties(size.system, watched) if prop.kind != "witness"]
    return Bound(
        name=name,
        about=size.about,
        parameters=size,
        states=size.states,
        properties=(*catalog, *own_claims(size)),
    )


MODEL_FAMILY: Final = ModelFamily(
    name="fair-lane",
    bounds={name: _bound(name, size) for name, size in FAIR_SIZES.items()},
    default_bounds=tuple(FAIR_SIZES),
    build=lambda bound, _policy: bound.parameters.model(),
    recoverable=tuple(claim for kind in RECOVERABLE for claim in kind.at(_HEAVY_BESIDE_LIGHT)),
    policies=(POLICY,),
)
