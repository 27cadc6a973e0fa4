"""The report of a run: one page with its tables and plots, and the pictures that it links to."""

import base64
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from batchproof.sched.report.graph_formats import as_svg
from batchproof.sched.report.html_page import html_page, html_table, html_text
from batchproof.sched.report.lifecycle_graph import run_graph
from batchproof.sched.report.perfetto import perfetto_json
from batchproof.sched.report.run_history import RunHistory
from batchproof.sched.report.run_table import (
    QUANTILES,
    USER_COUNTS,
    USER_TIMES,
    figure_rows,
    reconciled,
    refused,
    run_title,
    time_rows,
    user_rows,
)
from batchproof.sched.report.svg_plots import (
    Axis,
    Series,
    distribution,
    most_by_time,
    plot,
    rate_by_time,
)
from batchproof.sched.report.timeline import timeline_page
from batchproof.spec.lifecycle import WAITING

INDEX: Final = "index.html"
RECORDING: Final = "run.jsonl.gz"
"""The recording that a report is made from, beside it."""
_LINKS: Final = {
    "timeline.html": "the timeline, to explore",
    "trace.json": "the same for Perfetto: open it in its viewer",
    "lifecycle.svg": "the life of a request, as it went in this run",
    RECORDING: "the recording: batchproof replay runs it again",
}
_USERS_PLOTTED: Final = 7


def report_files(result: Mapping[str, Any], history: RunHistory) -> dict[str, str]:
    """Return name -> content of the report of a run: of its result, and its recording."""
    lifecycle = as_svg(run_graph(history))
    title = run_title(result)
    return {
        "timeline.html": timeline_page(history, title),
        "trace.json": perfetto_json(history),
        "lifecycle.svg": lifecycle,
        INDEX: html_page(
            f"{title} - batchproof run", _body(result, history, lifecycle), styles=("report.css",)
        ),
    }


def _body(result: Mapping[str, Any], history: RunHistory, lifecycle: str) -> str:
    notes = "".join(f"<p>{html_text(note)}</p>" for note in (reconciled(result), *refused(result)))
    if not result["complete"]:
        notes += '<p class="alarm">Interrupted: these are the results so far.</p>'
    links = "".join(f'<li><a href="{name}">{name}</a> {what}</li>' for name, what in _LINKS.items())
    counts = ("user", *USER_COUNTS.values(), *USER_TIMES)
    picture = base64.b64encode(lifecycle.encode()).decode()
    plots = "\n".join(_plots(history))
    return f"""<header><h1>{html_text(run_title(result))}</h1>{notes}</header>
<main>
<nav aria-label="More of this run"><ul class="links">{links}</ul></nav>
<h2>Figures</h2>
<div class="columns">
{html_table(("figure", "value"), figure_rows(result))}
{html_table(("seconds", *QUANTILES), time_rows(result))}
</div>
<h2>Plots</h2>
<div class="plots">
{plots}
</div>
<h2>Users</h2>
{html_table(counts, user_rows(result["users"]))}
<h2>The life of a request</h2>
<div class="picture" tabindex="0" role="region" aria-label="Picture">
<img alt="The phases of a request, with how often each edge was taken"
 src="data:image/svg+xml;base64,{picture}"></div>
</main>"""


def _plots(history: RunHistory) -> Iterable[str]:
    end = history.ended_at
    ttft: dict[str, list[float]] = defaultdict(list)
    latency: dict[str, list[float]] = defaultdict(list)
    queued: dict[str, list[float]] = defaultdict(list)
    for life in history.lives:
        if life.first_token_at is not None:
            ttft[life.user].append(life.first_token_at - life.submitted_at)
        if life.ended_at is not None and life.finish_reason not in ("cancelled", "expired"):
            latency[life.user].append(life.ended_at - life.submitted_at)
            stays = (stay for stay in life.stays() if stay.phase == WAITING)
            queued[life.user].append(sum((stay.end or end) - stay.start for stay in stays))
    plots = {"TTFT by user": ttft, "Latency by user": latency, "Queue time by user": queued}
    for title, times in plots.items():
        if times:
            yield _distribution_plot(title, times)
    if history.ticks and end > 0:
        yield _queue_plot(history, end)
        yield _pool_plot(history, end)
        yield _rate_plot(history, end)


def _distribution_plot(title: str, times: Mapping[str, list[float]]) -> str:
    """Return, for the users with most requests, the share of times that are at most so long."""
    every = [time for own in times.values() for time in own]
    order = sorted(times, key=lambda user: (-len(times[user]), user))[:_USERS_PLOTTED]
    series = [Series("all", "all", distribution(every))]
    if len(times) > 1:
        series += [
            Series(user, f"user-{place}", distribution(times[user]))
            for place, user in enumerate(order, start=1)
        ]
    positive = [time for time in every if time > 0] or [1.0]
    low = min(positive)
    high = max(*every, low * 10)
    shares = Axis("share of requests", 0.0, 1.0)
    return plot(title, Axis("seconds", low, high, log=True), shares, series)


def _queue_plot(history: RunHistory, end: float) -> str:
    waiting = [(tick.start, float(tick.waiting)) for tick in history.ticks]
    batch = [(tick.start, float(tick.sequences)) for tick in history.ticks]
    high = max(1.0, *(value for _, value in (*waiting, *batch)))
    series = (
        Series("waiting", "waiting", most_by_time(waiting, end)),
        Series("in the batch", "accent", most_by_time(batch, end)),
    )
    return plot(
        "Queue and batch", Axis("seconds", 0.0, end), Axis("requests", 0.0, high * 1.05), series
    )


def _pool_plot(history: RunHistory, end: float) -> str:
    pool = history.header.limits.max_kv_blocks
    held = [(tick.end, float(pool - tick.free)) for tick in history.ticks]
    series = (Series("held", "accent", most_by_time(held, end)),)
    blocks = Axis("blocks", 0.0, pool * 1.15)
    return plot(
        "KV blocks held", Axis("seconds", 0.0, end), blocks, series, (f"pool of {pool:,}", pool)
    )


def _rate_plot(history: RunHistory, end: float) -> str:
    amounts = [
        (tick.end, float(sum(share.yielded for share in tick.shares.values())))
        for tick in history.ticks
    ]
    points = rate_by_time(amounts, end)
    high = max(1.0, *(rate for _, rate in points))
    return plot(
        "Output tokens a second",
        Axis("seconds", 0.0, end),
        Axis("tokens a second", 0.0, high * 1.05),
        (Series("output", "decoding", points),),
    )
