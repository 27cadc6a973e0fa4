"""A run that shows something, as data: to be read, stored, replayed, or handed to TLA+ tools."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from batchproof.spec.machine import Model
from batchproof.spec.property import Property


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run: the event, and the state that it led to."""

    event: Any
    """None for the first step, which is an initial state."""
    state: Any


@dataclass(frozen=True, slots=True)
class Trace:
    """A run from an initial state; with `loop`, one that goes round for ever.

    Of a finite trace, the last state is where the claim broke. Of a lasso, the
    last state equals the one at index `loop`, up to the model's symmetry.
    """

    steps: tuple[Step, ...]
    loop: int | None = None

    @property
    def length(self) -> int:
        """The number of events."""
        return len(self.steps) - 1


@dataclass(frozen=True, slots=True)
class Subject:
    """What was checked when a trace was found, by the names that `registry` knows."""

    model: str
    bound: str
    policy: str | None


def fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass, a named tuple or a mapping, by name; None of others."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    names = getattr(value, "_fields", None)
    if isinstance(value, tuple) and names is not None:
        return dict(zip(names, value, strict=True))
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    return None


def as_json(value: Any) -> Any:
    """Return `value` in JSON's terms: records as objects, tuples and sorted sets as arrays."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        return value.name
    record = fields_of(value)
    if record is not None:
        return {name: as_json(part) for name, part in record.items()}
    if isinstance(value, Mapping):
        return [[as_json(key), as_json(part)] for key, part in value.items()]
    return _collection(value, as_json, lambda items: items, lambda items: items)


def trace_as_json(trace: Trace) -> dict[str, Any]:
    """Return a trace as a JSON object: `steps` of `event` and `state`, and `loop`."""
    return {
        "steps": [{"event": _event(s.event), "state": as_json(s.state)} for s in trace.steps],
        "loop": trace.loop,
    }


def trace_as_itf(trace: Trace, subject: Subject, prop: Property) -> dict[str, Any]:
    """Return a trace in the Informal Trace Format of Apalache and other TLA+ tools.

    Source: Apalache ADR 015. Each field of the state is a variable; a state
    without fields is the variable `state`. Events are in the states' `#meta`.
    """
    states = [fields_of(step.state) or {"state": step.state} for step in trace.steps]
    itf: dict[str, Any] = {
        "#meta": {
            "format": "ITF",
            "description": f"{subject.model} {subject.bound}: {prop.name}: {prop.claim}",
        },
        "vars": list(states[0]),
        "states": [
            {
                "#meta": {"index": index, "event": _event(step.event)},
                **{name: _as_itf(value) for name, value in state.items()},
            }
            for index, (step, state) in enumerate(zip(trace.steps, states, strict=True))
        ],
    }
    if trace.loop is not None:
        itf["loop"] = trace.loop
    return itf


def trace_as_pytest(trace: Trace, subject: Subject, prop: Property, model: Model) -> str:
    """Return the source of a pytest test that is red as long as `model` has this run."""
    choices = [f"    ({json.dumps(text)}, {nth}),\n" for text, nth in _choices(model, trace)]
    name = "".join(c if c.isalnum() else "_" for c in prop.name)
    policy = "None" if subject.policy is None else json.dumps(subject.policy)
    docstring = f"{subject.model} {subject.bound}: {prop.name}, by a run of {trace.length} steps"
    return f'''"""{docstring}.

Claim: {prop.claim}.
Red while the model still has the run, green once it has not.
"""

from batchproof.spec.registry import load
from batchproof.spec.replay import reproduces

CHOICES = [  # the event, and which of the model's steps of that name, in its order
{"".join(choices)}]


def test_{name}() -> None:
    family = load({json.dumps(subject.model)})
    bound = family.bounds[{json.dumps(subject.bound)}]
    prop = family.find({json.dumps(prop.name)}, bound)
    model = family.build(bound, {policy})
    assert not reproduces(model, prop, CHOICES, loop={trace.loop}), prop.claim
'''


def _choices(model: Model, trace: Trace) -> Iterable[tuple[str, int]]:
    """Yield, for each step, the event's text and the place among the steps with that text."""
    initial = [Step(None, state) for state in model.initial()]
    yield "initial", initial.index(trace.steps[0])
    for before, step in zip(trace.steps, trace.steps[1:], strict=False):
        alike = [
            after
            for event, after in model.successors(before.state)
            if repr(event) == repr(step.event)
        ]
        yield repr(step.event), alike.index(step.state)


def _event(event: Any) -> str | None:
    return None if event is None else repr(event)


def _as_itf(value: Any) -> Any:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return {"#bigint": str(value)}
    if isinstance(value, Enum):
        return value.name
    record = fields_of(value)
    if record is not None:
        return {name: _as_itf(part) for name, part in record.items()}
    if isinstance(value, Mapping):
        return {"#map": [[_as_itf(key), _as_itf(part)] for key, part in value.items()]}
    if value is None:
        return {"#unserializable": "None"}
    return _collection(value, _as_itf, lambda items: {"#tup": items}, lambda items: {"#set": items})


def _collection(
    value: Any,
    convert: Callable[[Any], Any],
    wrap_sequence: Callable[[list[Any]], Any],
    wrap_set: Callable[[list[Any]], Any],
) -> Any:
    """Convert a sequence or a set; sets are put in the order of their items' JSON text."""
    if isinstance(value, AbstractSet):
        return wrap_set(sorted(map(convert, value), key=json.dumps))
    if isinstance(value, Sequence):
        return wrap_sequence([convert(item) for item in value])
    return repr(value)
