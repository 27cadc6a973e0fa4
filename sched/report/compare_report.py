"""The report of a comparison: one page with its tables, and each measure plotted over the load."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from batchproof.sched.report.compare_table import (
    HEADER,
    SLO_HEADER,
    legend,
    pair_title,
    run_rows,
    runs_of,
    slo_rows,
)
from batchproof.sched.report.graph import count_text
from batchproof.sched.report.html_page import html_page, html_table, html_text
from batchproof.sched.report.svg_plots import Axis, Series, plot

INDEX: Final = "index.html"
RESULT: Final = "result.json"
"""The result that a report is made from, beside it."""
_COLOURS: Final = 7
_DECADE: Final = 10.0
"""Where the largest value is so many times the smallest, the axis is logarithmic."""


class _Measure(NamedTuple):
    """What is plotted of a run: its title, its unit, and its value, None if it has none."""

    title: str
    unit: str
    value: Callable[[Mapping[str, Any]], float | None]


_MEASURES: Final = (
    _Measure("Output tokens a second, of the limit", "share", lambda r: r["throughput_of_limit"]),
    _Measure("TTFT, median", "seconds", lambda run: run["ttft_s"]["p50"]),
    _Measure("TBT, 99th percentile", "seconds", lambda run: run["tbt_s"]["p99"]),
    _Measure("TTFT slowdown, worst user", "times alone", lambda r: r["ttft_slowdown"]["max"]),
)


def comparison_page(result: Mapping[str, Any]) -> str:
    """Return the page of a result that `compare_result` made."""
    policies = list(dict.fromkeys(run["policy"] for run in result["runs"]))
    heading = f"{count_text(len(policies), 'policy').replace('policys', 'policies')} compared"
    cut = (
        ""
        if result["complete"]
        else '<p class="alarm">Interrupted: these are the results so far.</p>'
    )
    sections = "\n".join(_section(result, pair, policies) for pair in result["capacities"])
    notes = "".join(f"<p>{html_text(line)}</p>" for line in legend(result).splitlines())
    return html_page(
        f"{heading} - batchproof compare",
        f"<header><h1>{heading}</h1>{cut}</header><main>"
        f'<nav aria-label="More of this comparison"><ul class="links"><li>'
        f'<a href="{RESULT}">{RESULT}</a> everything, for programs</li></ul></nav>'
        f"{sections}{_slo(result)}<h2>How to read it</h2>{notes}</main>",
        styles=("report.css",),
    )


def _section(result: Mapping[str, Any], pair: Mapping[str, Any], policies: Sequence[str]) -> str:
    runs = runs_of(result, pair)
    plots = "".join(_plots(runs, policies))
    return (
        f"<h2>{html_text(pair_title(result, pair))}</h2>"
        f'<div class="plots">{plots}</div>'
        f'<div class="below">{html_table(HEADER, run_rows(runs), names=2)}</div>'
    )


def _slo(result: Mapping[str, Any]) -> str:
    if not result["slo_rates"]:
        return ""
    objectives = html_text(" and ".join(result["slo"]))
    table = html_table(SLO_HEADER, slo_rows(result["slo_rates"]), names=3)
    return f"<h2>The highest rate that meets {objectives}</h2>{table}"


def _plots(runs: Sequence[Mapping[str, Any]], policies: Sequence[str]) -> Iterator[str]:
    """Yield a plot for each measure that the runs have, a line for each policy."""
    for measure in _MEASURES:
        series = [
            Series(policy, f"user-{place if place <= _COLOURS else 0}", points)
            for place, policy in enumerate(policies, start=1)
            if (points := _points(runs, policy, measure))
        ]
        if series:
            loads, y = ([point[axis] for one in series for point in one.points] for axis in (0, 1))
            x = Axis("load", min(loads), max(loads) if max(loads) > min(loads) else min(loads) + 1)
            yield plot(measure.title, x, _axis(measure.unit, y), series)


def _points(
    runs: Sequence[Mapping[str, Any]], policy: str, measure: _Measure
) -> list[tuple[float, float]]:
    of_policy = ((run["load"], measure.value(run)) for run in runs if run["policy"] == policy)
    return sorted((load, value) for load, value in of_policy if value is not None)


def _axis(unit: str, values: Sequence[float]) -> Axis:
    low, high = min(values), max(values)
    if low > 0 and high >= low * _DECADE:
        return Axis(unit, low * 0.8, high * 1.25, log=True)
    return Axis(unit, 0.0, high * 1.08 or 1.0)
