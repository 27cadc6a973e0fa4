"""A counterexample as people read it: a table of steps, and the sentence that broke."""

from collections.abc import Mapping
from typing import Any

from batchproof.sched.report.text import table
from batchproof.spec.checker import Verdict
from batchproof.spec.counterexample import Trace, fields_of
from batchproof.spec.machine import Describing, Model

_ABSENT = object()
_ENDINGS: Mapping[str, str] = {
    "invariant": "broken by the last state",
    "step": "broken by the last step",
    "liveness": "not so after that",
    "witness": "shown by the last step",
}


def render(model: Model, verdict: Verdict, *, width: int = 200) -> str:
    """Return the steps of a verdict's trace as a table, ending in the sentence of the property.

    The columns are the model's own (`machine.Describing`), or else the fields
    of the state, each shown where it changed. Raises `ValueError` if there is no trace.
    """
    prop, trace = verdict.prop, verdict.trace
    if trace is None:
        raise ValueError(f"the verdict on {prop.name!r} has no trace to show")
    rows = _described(model, trace) if isinstance(model, Describing) else _changed(trace)
    columns = [name for name in rows[0] if any(row.get(name) for row in rows)]
    body = [
        [str(index), *(row.get(name, "") for name in columns)] for index, row in enumerate(rows)
    ]
    lines = [table(["step", *columns], body, width=width), ""]
    if trace.loop is not None:
        lines.append(f"From step {trace.loop} on, this goes round for ever.")
    lines.append(f"{prop.name}: {prop.claim} ({prop.source}) - {ending(verdict)}.")
    return "\n".join(lines)


def ending(verdict: Verdict) -> str:
    """Return how a trace ends, in words."""
    return ", ".join(part for part in (_ENDINGS[verdict.prop.kind], verdict.note) if part)


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
