"""The outcome of `batchproof check`, as a table and as JSON."""

from typing import Any

from batchproof.sched.report.text import table
from batchproof.spec.checker import Report, Verdict
from batchproof.spec.counterexample import Subject, trace_as_json


def title(subject: Subject, report: Report) -> str:
    """Return one line: what was checked, and how much was covered."""
    policy = f", policy {subject.policy}" if subject.policy else ""
    covered = (
        f"{report.states:,} states, {report.transitions:,} steps, depth {report.depth}, "
        f"{report.seconds:.2f} s"
    )
    stopped = f" - INCOMPLETE: {report.stopped}" if report.stopped else ""
    return f"{subject.model} {subject.bound}{policy}: {covered}{stopped}"


def verdict_table(report: Report, *, width: int = 200) -> str:
    """Return a table of property, verdict, states, depth, seconds and remark."""
    rows = [
        (v.prop.name, v.outcome, f"{report.states:,}", str(v.depth), f"{v.seconds:.2f}", v.note)
        for v in report.verdicts
    ]
    return table(("property", "verdict", "states", "depth", "s", ""), rows, width=width)


def report_as_json(subject: Subject, report: Report) -> dict[str, Any]:
    """Return everything that was found, in JSON's terms."""
    return {
        "model": subject.model,
        "bound": subject.bound,
        "policy": subject.policy,
        "outcome": report.outcome,
        "states": report.states,
        "transitions": report.transitions,
        "depth": report.depth,
        "seconds": round(report.seconds, 6),
        "stopped": report.stopped,
        "properties": [_verdict_as_json(verdict) for verdict in report.verdicts],
    }


def _verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "name": verdict.prop.name,
        "kind": verdict.prop.kind,
        "claim": verdict.prop.claim,
        "source": verdict.prop.source,
        "outcome": verdict.outcome,
        "depth": verdict.depth,
        "seconds": round(verdict.seconds, 6),
        "note": verdict.note,
        "trace": None if verdict.trace is None else trace_as_json(verdict.trace),
    }
