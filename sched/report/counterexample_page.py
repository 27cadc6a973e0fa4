"""Counterexamples as a page: steps side by side, changes marked, one step at a time by keys."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from batchproof.sched.report.counterexample import ending
from batchproof.sched.report.graph import count_text
from batchproof.sched.report.html_page import html_page, html_text
from batchproof.spec.checker import Report, Verdict
from batchproof.spec.counterexample import Subject, Trace, as_json, fields_of
from batchproof.spec.machine import Describing, Model

_OUTCOMES: Final = {"violated": 0, "incomplete": 1, "holds": 2}
"""Outcome -> its place: what is wrong comes first."""


@dataclass(frozen=True)
class Checked:
    """One check: what of, what came out, and the model, which knows how to describe its steps."""

    subject: Subject
    report: Report
    model: Model


def counterexample_page(checks: Sequence[Checked]) -> str:
    """Return a page with every verdict, and every run that shows something."""
    shown = [
        (check, verdict, verdict.trace)
        for check in checks
        for verdict in check.report.verdicts
        if verdict.trace is not None
    ]
    numbers = {id(verdict): number for number, (_, verdict, _) in enumerate(shown)}
    verdicts = "".join(_verdicts(check, numbers) for check in checks)
    heading = _heading(checks)
    return html_page(
        f"{heading} - batchproof check",
        _BODY.format(heading=heading, verdicts=verdicts),
        styles=("counterexample.css",),
        scripts=("counterexample.js",),
        data=[_trace_data(check, verdict, trace) for check, verdict, trace in shown],
    )


def _heading(checks: Sequence[Checked]) -> str:
    outcomes = [verdict.outcome for check in checks for verdict in check.report.verdicts]
    if broken := outcomes.count("violated"):
        return f"{count_text(broken, 'verdict')} of {len(outcomes):,}: violated"
    if "incomplete" in outcomes or any(check.report.stopped for check in checks):
        return "Incomplete: no violation found so far"
    return f"All {len(outcomes):,} verdicts: holds"


def _trace_data(check: Checked, verdict: Verdict, trace: Trace) -> dict[str, Any]:
    prop = verdict.prop
    return {
        "property": prop.name,
        "outcome": verdict.outcome,
        "claim": prop.claim,
        "source": prop.source,
        "ending": ending(verdict),
        "subject": " ".join(filter(None, _names(check.subject))),
        "loop": trace.loop,
        "steps": [
            {"event": event, "summary": summary, "state": list(_flat("", step.state))}
            for step, (event, summary) in zip(
                trace.steps, _described(check.model, trace), strict=True
            )
        ],
    }


def _covered(check: Checked) -> str:
    """Return what was checked and how much of it; how long that took would differ every time."""
    report = check.report
    parts = (
        count_text(report.states, "state"),
        count_text(report.transitions, "step"),
        f"depth {report.depth}",
        *([f"INCOMPLETE: {report.stopped}"] if report.stopped else []),
    )
    return f"{' '.join(filter(None, _names(check.subject)))}: {', '.join(parts)}"


def _names(subject: Subject) -> tuple[str, str, str]:
    return subject.model, subject.bound, subject.policy or ""


def _described(model: Model, trace: Trace) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each step's event, and what else the model itself says of the step."""
    before = None
    for step in trace.steps:
        if isinstance(model, Describing):
            row = dict(model.describe(before, step.event, step.state))
            yield row.pop("event", _event(step.event)), row
        else:
            yield _event(step.event), {}
        before = step.state


def _event(event: Any) -> str:
    return "start" if event is None else str(event)


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield every plain part of a state by its path: `live[r0].blocks`, `3`; nothing of nothing."""
    record = fields_of(value)
    if record is not None:
        for name, part in record.items():
            yield from _flat(f"{path}.{name}" if path else name, part)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(f"{path}[{key}]", part)
    elif isinstance(value, Sequence) and any(fields_of(item) is not None for item in value):
        for place, item in enumerate(value):
            yield from _item(path, place, item)
    elif isinstance(value, AbstractSet | tuple | list):
        if value:
            yield path, ", ".join(str(item) for item in as_json(value))
    else:
        yield path or "state", str(as_json(value))


def _item(path: str, place: int, item: Any) -> Iterator[tuple[str, str]]:
    """Yield the parts of an item of a list, named by its request if it has one, or its place."""
    fields = dict(fields_of(item) or {})
    if type(request := fields.pop("request", None)) is int:
        yield from _flat(f"{path}[r{request}]", fields)
    else:
        yield from _flat(f"{path}[{place}]", item)


def _verdicts(check: Checked, numbers: Mapping[int, int]) -> str:
    rows = "".join(
        f"<tr><td>{_name(verdict, numbers.get(id(verdict)))}</td>"
        f'<td><span class="outcome {verdict.outcome}">{verdict.outcome}</span></td>'
        f"<td>{html_text(verdict.prop.claim)}</td><td>{html_text(verdict.note)}</td></tr>"
        for verdict in sorted(check.report.verdicts, key=lambda v: _OUTCOMES[v.outcome])
    )
    heads = "".join(
        f'<th scope="col">{head}</th>' for head in ("Property", "Verdict", "Claim", "Remark")
    )
    return (
        f"<h3>{html_text(_covered(check))}</h3>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="Verdicts">'
        f'<table class="verdicts"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _name(verdict: Verdict, number: int | None) -> str:
    name = html_text(verdict.prop.name)
    if number is None:
        return f'<span class="mono">{name}</span>'
    return f'<button type="button" class="link" data-trace="{number}">{name}</button>'


_BODY: Final = """<header><h1>{heading}</h1></header>
<main>
<nav id="traces" class="traces" aria-label="Violated properties"></nav>
<section id="trace" aria-labelledby="claim" hidden>
<p class="subject" id="subject"></p>
<h2 id="claim"></h2>
<p class="about" id="ending"></p>
<div class="toolbar" role="toolbar" aria-label="Steps">
<button type="button" id="previous">← Previous</button>
<span id="position" role="status"></span>
<button type="button" id="next">Next →</button>
<label><input type="checkbox" id="only-changed" checked> only what changes in this run</label>
<span class="about">Keys: <kbd>←</kbd> <kbd>→</kbd> <kbd>Home</kbd> <kbd>End</kbd></span>
</div>
<div class="scroll" tabindex="0" role="region" aria-label="Before and after the step">
<table id="step"></table></div>
<h3>All steps side by side</h3>
<div class="scroll" tabindex="0" role="region" aria-label="All steps" id="side-by-side">
<table id="steps"></table></div>
</section>
<section aria-labelledby="verdicts-title">
<h2 id="verdicts-title">All verdicts</h2>
<p class="about">The name of a property shows the run that violates it, or that shows what can
happen.</p>
{verdicts}
</section>
</main>"""
