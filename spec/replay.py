"""Replay: whether a model still has a run that was once a counterexample."""

from collections.abc import Sequence
from typing import Any

from batchproof.spec.machine import Ending, Fair, Model, Reduced
from batchproof.spec.property import Property
from batchproof.spec.search import DEADLOCK, decide

Choice = tuple[str, int]
"""An event's text, and which of the model's steps with that text, in its order."""


def reproduces(
    model: Model, prop: Property, choices: Sequence[Choice], *, loop: int | None = None
) -> bool:
    """Say whether `model` can make these choices, and `prop` is broken by the run they make.

    Raises:
        PropertyError: a predicate raised.

    """
    run = _run(model, choices)
    if run is None:
        return False
    states = [state for _, state in run]
    if prop.name == DEADLOCK.name:
        return _may_stop(model, states[-1], dead=True)
    if prop.kind == "invariant":
        return not decide(prop, prop.predicate, states[-1])
    if prop.kind == "step":
        return not decide(prop, prop.predicate, states[-2], run[-1][0], states[-1])
    if prop.kind == "witness":
        return decide(prop, prop.predicate, states[-2], run[-1][0], states[-1])
    return _pending_at_end(prop, states) and _goes_on(model, prop, run, loop)


def _run(model: Model, choices: Sequence[Choice]) -> list[tuple[Any, Any]] | None:
    """Return the `(event, state)` of each choice, None if the model lacks one of them."""
    run: list[tuple[Any, Any]] = []
    for text, nth in choices:
        steps = model.successors(run[-1][1]) if run else ((None, s) for s in model.initial())
        alike = [step for step in steps if not run or repr(step[0]) == text]
        if nth >= len(alike):
            return None
        run.append(alike[nth])
    return run


def _pending_at_end(prop: Property, states: Sequence[Any]) -> bool:
    pending = False
    for state in states:
        if decide(prop, prop.predicate, state):
            pending = False
        elif prop.trigger is None or decide(prop, prop.trigger, state):
            pending = True
    return pending


def _goes_on(
    model: Model, prop: Property, run: Sequence[tuple[Any, Any]], loop: int | None
) -> bool:
    """Say whether the run can stay as it is for ever: it goes round, ends, or is lost."""
    last = run[-1][1]
    if loop is None:
        return _may_stop(model, last, dead=False) or _is_lost(model, prop, last)
    around = [state for _, state in run[loop:]]
    form = model.canonical if isinstance(model, Reduced) else lambda state: state
    if form(around[0]) != form(last) or any(decide(prop, prop.predicate, s) for s in around):
        return False
    taken = {_class(model, event) for event, _ in run[loop + 1 :]}
    enabled = [{_class(model, event) for event, _ in model.successors(s)} for s in around]
    return set.intersection(*enabled) - {None} <= taken


def _may_stop(model: Model, state: Any, *, dead: bool) -> bool:
    """Say whether a run may end in `state`; with `dead`, whether it must though it may not."""
    events = [event for event, _ in model.successors(state)]
    if dead:
        return not events and not (isinstance(model, Ending) and model.may_end(state))
    return all(_class(model, event) is None for event in events)


def _class(model: Model, event: Any) -> str | None:
    return model.fairness(event) if isinstance(model, Fair) else "any event"


def _is_lost(model: Model, prop: Property, state: Any) -> bool:
    """Say whether nothing reachable from `state` satisfies the predicate."""
    seen = {state: None}
    for here in (todo := [state]):
        if decide(prop, prop.predicate, here):
            return False
        for _, after in model.successors(here):
            if after not in seen:
                seen[after] = None
                todo.append(after)
    return True
