"""A counterexample as people read it: a table of steps, and the sentence that broke."""

from collections.abc import Mapping
from typing import Any

from batchproof.sched.report.text import table
from batchproof.spec.counterexample import Trace, fields_of
from batchproof.spec.machine import Describing, Model
from batchproof.spec.property import Property

_ABSENT = object()
_ENDINGS: Mapping[str, str] = {
    "invariant": "the last state breaks it",
    "step": "the last step breaks it",
    "liveness": "it never comes true after that",
    "witness": "the last step shows it",
}


def render(model: Model, prop: Property, trace: Trace, *, width: int = 200) -> str:
    """Return the steps of a trace as a table, ending in the sentence of the property.

    The columns are the model's own (`machine.Describing`), or else the fields
    of the state, each shown where it changed.
    """
    rows = _described(model, trace) if isinstance(model, Describing) else _changed(trace)
    columns = [name for name in rows[0] if any(row.get(name) for row in rows)]
    body = [
        [str(index), *(row.get(name, "") for name in columns)] for index, row in enumerate(rows)
    ]
    lines = [table(["step", *columns], body, width=width), ""]
    if trace.loop is not None:
        lines.append(f"From step {trace.loop} on, this goes round for ever.")
    elif prop.kind == "liveness":
        lines.append("Here the run may end, or cannot come back.")
    lines.append(f"{prop.name}: {prop.claim} ({prop.source}) - {_ENDINGS[prop.kind]}.")
    return "\n".join(lines)


def _described(model: Describing, trace: Trace) -> list[dict[str, str]]:
    befores = [None, *(step.state for step in trace.steps[:-1])]
    return [
        dict(model.describe(before, step.event, step.state))
        for before, step in zip(befores, trace.steps, strict=True)
    ]


def _changed(trace: Trace) -> list[dict[str, str]]:
    """Return the event and the fields that changed; in the first row, all fields."""
    rows: list[dict[str, str]] = []
    before: dict[str, Any] = {}
    for step in trace.steps:
        state = fields_of(step.state) or {"state": step.state}
        event = "start" if step.event is None else str(step.event)
        changes = {
            name: str(value) if before.get(name, _ABSENT) != value else ""
            for name, value in state.items()
        }
        rows.append({"event": event, **changes})
        before = state
    return rows
