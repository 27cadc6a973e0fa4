"""The shipped scheduler under each shipped policy, as `batchproof check` sees it."""

from functools import partial
from typing import Any, Final

from batchproof.invariants.catalog import properties
from batchproof.sched.batching_family import ON_DEMAND, WRONG_ON_PURPOSE
from batchproof.sched.policy.registry import DEFAULT_POLICY, POLICIES
from batchproof.sched.shipped import Disturbance, Shipped, core_of, one_owner_each
from batchproof.spec import actions
from batchproof.spec.actions import Cancel, Refuse, Submit, Tick
from batchproof.spec.bounds import SIZES, Size
from batchproof.spec.property import Property
from batchproof.spec.registry import Bound, ModelFamily
from batchproof.spec.state import State, System


def follows_specification(system: System, before: State, event: object, after: State) -> bool:
    """Say whether the specification allows the step, and leads to just what was observed."""
    if isinstance(event, Disturbance):
        return True
    expected = _specified(system, before, event)
    return expected is not None and (expected.live, expected.free) == (after.live, after.free)


def _specified(system: System, before: State, event: Any) -> State | None:
    """Return the state that the specification gives a step, or None if it does not allow it."""
    if isinstance(event, Tick):
        if actions.objection_to_tick(system, before, event.work) is not None:
            return None
        specified, after = actions.tick(system, before, event.work, event.eos)
        return after if specified.ended == event.ended else None
    if isinstance(event, Cancel):
        objection = actions.objection_to_cancel(before, event.request)
        return None if objection else actions.cancel(before, event.request)
    objection = actions.objection_to_submit(system, before, event.request)
    if isinstance(event, Submit):
        return None if objection else actions.submit(system, before, event.request)
    return before if objection else None


def no_trace_is_left(before: State, event: object, after: State) -> bool:
    """Say whether a refusal, a failure or a restart left the whole scheduler as it was."""
    return not isinstance(event, Refuse | Disturbance) or before == after


def orders_agree(state: State) -> bool:
    """Say whether the orders that policies see are those that the steps so far imply."""
    core, history = core_of(state), state.history
    assert history is not None
    ids = [kept.request for kept in core.requests]
    return (
        tuple(ids[place] for place in core.decoding) == history.decoding
        and tuple(ids[place] for place in core.prefilling) == history.prefilling
        and tuple(int(user_id.removeprefix("u")) for user_id, _ in core.turns) == history.users
    )


def nothing_drifts(state: State) -> bool:
    """Say whether what is worked out step by step is what one works out anew."""
    return not core_of(state).drift


SOURCE: Final = "what ships is what was checked"


def shipped_properties(system: System) -> list[Property]:
    """Return what is claimed of the code that ships, besides the catalog."""
    return [
        Property(
            "follows-specification",
            "every step of the scheduler is one that the specification allows, with its outcome",
            SOURCE,
            "step",
            partial(follows_specification, system),
        ),
        Property(
            "no-trace-is-left",
            "a refused request, a failing executor and a restart leave the scheduler as it was",
            SOURCE,
            "step",
            no_trace_is_left,
        ),
        Property(
            "one-owner-each",
            "every block, by number, is free or in exactly one block table",
            SOURCE,
            "invariant",
            partial(one_owner_each, system),
        ),
        Property(
            "orders-agree",
            "the orders that policies see are those that the steps so far imply",
            SOURCE,
            "invariant",
            orders_agree,
        ),
        Property(
            "nothing-drifts",
            "lines, accounts and block boundaries, kept step by step, are as worked out anew",
            SOURCE,
            "invariant",
            nothing_drifts,
        ),
    ]


def _model(bound: Bound, policy: str | None) -> Shipped:
    size: Size = bound.parameters
    return Shipped(system=size.system, watched=size.watched, policy=policy or DEFAULT_POLICY)


def bound_of(name: str, size: Size) -> Bound:
    """Return a size as a bound at which the shipped code is checked."""
    claims = (*properties(size.system, size.watched), *shipped_properties(size.system))
    return Bound(name=name, about=size.about, parameters=size, properties=claims)


MODEL_FAMILY: Final = ModelFamily(
    name="scheduler",
    bounds={name: bound_of(name, size) for name, size in SIZES.items()},
    default_bounds=tuple(SIZES),
    build=_model,
    policies=tuple(POLICIES),
    default_policies=tuple(name for name in POLICIES if name not in WRONG_ON_PURPOSE | ON_DEMAND),
)
