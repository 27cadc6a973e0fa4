"""The reachable states of a small model as a graph, those that violate a property marked."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Final

from batchproof.sched.errors import InputError
from batchproof.sched.report.graph import Edge, Fact, Graph, Node, count_text
from batchproof.spec.counterexample import as_json, fields_of
from batchproof.spec.lifecycle import PHASES
from batchproof.spec.machine import Model, Reduced
from batchproof.spec.mini_batch import STATUS_NAMES
from batchproof.spec.property import Property
from batchproof.spec.search import Limits, Search, decide

PHASES_OF: Final[Mapping[str, Callable[[Any], list[str]]]] = {
    "mini-batch": lambda state: [STATUS_NAMES[request.status] for request in state.requests],
    "batching": lambda state: [live.phase for live in state.live],
}
"""Model -> the phases of the requests of one of its states: what states are folded by."""

_ORDER: Final = (*STATUS_NAMES[:1], *PHASES)
_LINE_CHARACTERS: Final = 44
_LINES_MAX: Final = 4


@dataclass(frozen=True)
class Step:
    """One step of the model, by the numbers of its states."""

    source: int
    dest: int
    event: Any
    violates: tuple[str, ...]


@dataclass(frozen=True)
class StateSpace:
    """All reachable states of a model, and all steps."""

    name: str
    states: Sequence[Any]
    violates: Sequence[tuple[str, ...]]
    """For each state, the properties that it violates."""
    steps: Sequence[Step]


def explore(
    model: Model, properties: Sequence[Property], states_max: int, *, reduce: bool
) -> StateSpace:
    """Return the state space of a model.

    Raises `InputError` if it has more than `states_max` states, and what the
    search raises for a model at fault, or a property that is, or that tells
    states apart which `reduce` folds together.
    """
    search = Search(model, properties, reduce=reduce, limits=Limits(max_states=states_max)).run()
    if search.stopped == "interrupted":
        raise KeyboardInterrupt
    if search.stopped is not None:
        raise InputError(
            f"{model.name}: has more than {states_max:,} states; "
            "take a smaller bound, or allow more with --max-states"
        )
    canonical = model.canonical if reduce and isinstance(model, Reduced) else None
    numbers = {state: number for number, state in enumerate(search.states)}
    invariants = [prop for prop in properties if prop.kind == "invariant"]
    of_steps = [prop for prop in properties if prop.kind == "step"]
    steps = [
        Step(number, numbers[canonical(after) if canonical else after], event, broken)
        for number, state in enumerate(search.states)
        for event, after in search.successors(state)
        for broken in [_broken(of_steps, state, event, after)]
    ]
    violates = [_broken(invariants, state) for state in search.states]
    return StateSpace(model.name, search.states, violates, steps)


def _broken(properties: Sequence[Property], *subject: Any) -> tuple[str, ...]:
    return tuple(p.name for p in properties if not decide(p, p.predicate, *subject))


def state_graph(space: StateSpace) -> Graph:
    """Return a node for each state and an edge for each step."""
    nodes = tuple(
        Node(
            f"s{number}",
            f"s{number}",
            "state",
            (*_state_lines(state), *(f"violates {name}" for name in broken)),
            {
                "state": json.dumps(as_json(state)),
                "properties": ", ".join(broken),
            },
            initial=number == 0,
            marked=bool(broken),
        )
        for number, (state, broken) in enumerate(zip(space.states, space.violates, strict=True))
    )
    edges = tuple(
        Edge(
            f"s{step.source}",
            f"s{step.dest}",
            shorten(_event_text(step.event), _LINE_CHARACTERS, placeholder=" ..."),
            facts={"event": repr(step.event), "properties": ", ".join(step.violates)},
            marked=bool(step.violates),
        )
        for step in space.steps
    )
    title = f"{space.name}: {count_text(len(nodes), 'state')}, {count_text(len(edges), 'step')}"
    return Graph("states", title, nodes, edges, downward=True)


def folded_graph(space: StateSpace) -> Graph:
    """Return a node for each way in which requests are spread over phases.

    Raises `InputError` for a model whose phases are not known (`PHASES_OF`).
    """
    phases_of = PHASES_OF.get(space.name)
    if phases_of is None:
        raise InputError(f"{space.name}: has no phases to fold by; leave out --fold")
    keys = [_spread(phases_of(state)) for state in space.states]
    folds: dict[str, list[int]] = {}
    for number, key in enumerate(keys):
        folds.setdefault(key, []).append(number)
    merged: dict[tuple[str, str, str], list[Step]] = {}
    for step in space.steps:
        kind = _event_kind(step.event)
        merged.setdefault((keys[step.source], keys[step.dest], kind), []).append(step)
    nodes = tuple(_fold(space, key, members) for key, members in folds.items())
    edges = tuple(_merged(*ends, steps) for ends, steps in merged.items())
    title = (
        f"{space.name}: {count_text(len(space.states), 'state')} folded into {len(nodes):,} "
        f"by phase, {count_text(len(space.steps), 'step')}"
    )
    return Graph("states-by-phase", title, nodes, edges, downward=True)


def _fold(space: StateSpace, key: str, members: Sequence[int]) -> Node:
    violating = [number for number in members if space.violates[number]]
    names = sorted({name for number in violating for name in space.violates[number]})
    lines = [count_text(len(members), "state")]
    if violating:
        lines.append(f"{len(violating):,} violate {', '.join(names)}")
    facts: dict[str, Fact] = {
        "states": len(members),
        "violating": len(violating),
        "properties": ", ".join(names),
    }
    return Node(key, key, "state", tuple(lines), facts, 0 in members, bool(violating))


def _merged(source: str, dest: str, kind: str, steps: Sequence[Step]) -> Edge:
    names = sorted({name for step in steps for name in step.violates})
    violating = sum(bool(step.violates) for step in steps)
    lines = [f"{len(steps):,} ×"]
    if violating:
        lines.append(f"{violating:,} violate {', '.join(names)}")
    facts: dict[str, Fact] = {
        "steps": len(steps),
        "violating": violating,
        "properties": ", ".join(names),
    }
    return Edge(source, dest, kind, tuple(lines), facts, marked=bool(names))


def _spread(phases: Sequence[str]) -> str:
    counts = ((phase, phases.count(phase)) for phase in _ORDER)
    return " · ".join(f"{count} {phase}" for phase, count in counts if count) or "nobody"


def _state_lines(state: Any) -> Iterator[str]:
    fields = fields_of(state) or {"": state}
    for place, (name, value) in enumerate(fields.items()):
        if place == _LINES_MAX:
            yield "..."
            return
        text = f"{name} {json.dumps(as_json(value))}".strip()
        yield shorten(text, _LINE_CHARACTERS, placeholder=" ...")


def _event_kind(event: Any) -> str:
    return type(event).__name__.lower() if fields_of(event) is not None else str(event)


def _event_text(event: Any) -> str:
    fields = fields_of(event)
    if fields is None:
        return str(event)
    return f"{_event_kind(event)} {' '.join(json.dumps(as_json(v)) for v in fields.values())}"
