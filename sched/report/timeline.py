"""The timeline of a run: one page to explore what each tick held and what became of each request.

What is drawn is drawn by the scripts in `assets` on canvases: 20,000 ticks are
no more work than the pixels they fall on. The data goes into the page in
columns, integers and differences of integers, which deflate well.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from statistics import median
from typing import Any, Final, get_args

from batchproof.sched.report.html_page import html_page, html_text
from batchproof.sched.report.lifecycle_graph import duration_text
from batchproof.sched.report.run_history import Life, RunHistory
from batchproof.spec.lifecycle import PHASES, FinishReason

_SCRIPTS: Final = (
    "timeline_model.js",
    "timeline_view.js",
    "timeline_lanes.js",
    "timeline_pool.js",
    "timeline_requests.js",
    "timeline_table.js",
    "timeline_details.js",
    "timeline_input.js",
    "timeline_main.js",
)
_REASONS: Final[tuple[FinishReason, ...]] = get_args(FinishReason)


def timeline_page(history: RunHistory, title: str) -> str:
    """Return the page for a run."""
    return html_page(
        f"{title} - timeline",
        _body(history, title),
        styles=("timeline.css",),
        scripts=_SCRIPTS,
        data=timeline_data(history),
    )


def timeline_data(history: RunHistory) -> dict[str, Any]:
    """Return what the scripts draw: times in microseconds; `_deltas` of what only grows."""
    limits = history.header.limits
    users = history.users
    return {
        "limits": {
            "max_kv_blocks": limits.max_kv_blocks,
            "token_budget": limits.token_budget,
            "max_batch_size": limits.max_batch_size,
        },
        "users": users,
        "phases": PHASES,
        "reasons": _REASONS,
        "end": _microseconds(history.ended_at),
        "ticks": _tick_columns(history, users),
        "requests": _request_columns(history, users),
        "holdings": _holding_columns(history),
    }


def _tick_columns(history: RunHistory, users: list[str]) -> dict[str, list[int]]:
    ticks = history.ticks
    place = {user: n for n, user in enumerate(users)}
    shares = [(place[user], share) for tick in ticks for user, share in tick.shares.items()]
    return {
        "start": _deltas(_microseconds(tick.start) for tick in ticks),
        "duration": [_microseconds(tick.end) - _microseconds(tick.start) for tick in ticks],
        "waiting": [tick.waiting for tick in ticks],
        "free": [tick.free for tick in ticks],
        "preempted": [tick.preempted for tick in ticks],
        "shares": [len(tick.shares) for tick in ticks],
        "share_user": [user for user, _ in shares],
        "share_decodes": [share.decodes for _, share in shares],
        "share_chunks": [share.chunks for _, share in shares],
        "share_chunk_tokens": [share.chunk_tokens for _, share in shares],
    }


def _request_columns(history: RunHistory, users: list[str]) -> dict[str, list[Any]]:
    lives = history.lives
    place = {user: n for n, user in enumerate(users)}
    moves = list(chain.from_iterable(life.moves for life in lives))
    return {
        "name": [life.name for life in lives],
        "user": [place[life.user] for life in lives],
        "prompt": [life.prompt for life in lives],
        "max_tokens": [life.max_tokens for life in lives],
        "generated": [life.generated for life in lives],
        "preemptions": [life.preemptions for life in lives],
        "reason": [_reason(life) for life in lives],
        "submitted": _deltas(_microseconds(life.submitted_at) for life in lives),
        "first_token": [
            -1
            if life.first_token_at is None
            else _microseconds(life.first_token_at) - _microseconds(life.submitted_at)
            for life in lives
        ],
        "moves": [len(life.moves) for life in lives],
        "move_phase": [PHASES.index(move.dest) for move in moves],
        "move_tick": [move.tick for move in moves],
        "move_after": [gap for life in lives for gap in _gaps(life)],
    }


def _reason(life: Life) -> int:
    return -1 if life.finish_reason is None else _REASONS.index(life.finish_reason)


def _gaps(life: Life) -> Iterator[int]:
    """Yield the time from each move to the one before it, the first from submission."""
    times = (life.submitted_at, *(move.at for move in life.moves))
    for before, after in pairwise(map(_microseconds, times)):
        yield after - before


def _holding_columns(history: RunHistory) -> dict[str, list[int]]:
    holdings = sorted(history.holdings, key=lambda holding: (holding.start, holding.block))
    return {
        "block": [holding.block for holding in holdings],
        "request": [holding.life for holding in holdings],
        "start": _deltas(holding.start for holding in holdings),
        "length": [holding.end - holding.start for holding in holdings],
    }


def _deltas(values: Iterable[int]) -> list[int]:
    return [after - before for before, after in pairwise(chain((0,), values))]


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _body(history: RunHistory, title: str) -> str:
    header = history.header
    limits = header.limits
    about = (
        f"Policy <b>{html_text(header.policy)}</b> ({html_text(header.admission)}) · "
        f"{limits.max_kv_blocks:,} blocks of {limits.block_size} tokens · "
        f"budget {limits.token_budget:,} tokens · batch at most {limits.max_batch_size:,} · "
        f"recorded by {html_text(header.producer)}"
    )
    cut = "" if history.complete else '<p class="alarm">The run was interrupted.</p>'
    tiles = "".join(
        f"<div><dt>{html_text(name)}</dt><dd>{html_text(value)}</dd></div>"
        for name, value in _figures(history)
    )
    return _BODY.format(title=html_text(title), about=about, cut=cut, tiles=tiles)


def _figures(history: RunHistory) -> Iterator[tuple[str, str]]:
    lives = history.lives
    reasons = Counter(life.finish_reason for life in lives)
    yield "requests", f"{len(lives):,}"
    yield "finished", f"{reasons['eos'] + reasons['length']:,}"
    for name, reason in (("cancelled", "cancelled"), ("expired", "expired"), ("unfinished", None)):
        count = reasons[reason]
        if count:
            yield name, f"{count:,}"
    if history.refusals:
        yield "refused", f"{len(history.refusals):,}"
    yield "users", f"{len(history.users):,}"
    yield "ticks", f"{len(history.ticks):,}"
    yield "virtual time", duration_text(history.ended_at)
    yield "output tokens", f"{sum(life.generated for life in lives):,}"
    yield "preemptions", f"{sum(life.preemptions for life in lives):,}"
    firsts = [
        life.first_token_at - life.submitted_at for life in lives if life.first_token_at is not None
    ]
    if firsts:
        yield "TTFT median", duration_text(median(firsts))


_BODY: Final = """<header>
<h1>{title}</h1>
<p class="about">{about}</p>{cut}
<dl class="tiles" id="figures">{tiles}</dl>
</header>
<main>
<section aria-labelledby="timeline-title">
<h2 id="timeline-title" class="hidden">Timeline</h2>
<div class="toolbar" role="toolbar" aria-label="Timeline tools">
<label class="search">Search <input type="search" id="search" placeholder="request id or user"
 autocomplete="off" spellcheck="false" aria-controls="requests-table"></label>
<span id="matches" role="status"></span>
<span class="gap"></span>
<button type="button" id="zoom-out" aria-label="Zoom out">−</button>
<button type="button" id="zoom-in" aria-label="Zoom in">+</button>
<button type="button" id="fit">Whole run</button>
</div>
<div class="legend" id="legend" role="group" aria-label="Show one user only"></div>
<div id="timeline" class="timeline" tabindex="0" role="application"
 aria-label="Timeline of the run" aria-describedby="keys"></div>
<p id="readout" class="readout" role="status">Move over the timeline, or focus it and use the arrow
 keys, to read a tick.</p>
<details class="keys"><summary>Keys and mouse</summary><p id="keys">
<kbd>←</kbd> <kbd>→</kbd> previous and next tick · <kbd>Shift</kbd> with an arrow pans ·
<kbd>+</kbd> <kbd>−</kbd> zoom · <kbd>0</kbd> the whole run · drag pans · <kbd>Ctrl</kbd> or
<kbd>⌘</kbd> with the wheel zooms · double click zooms in · click on a bar selects its
request.</p></details>
</section>
<section aria-labelledby="requests-title" class="requests">
<h2 id="requests-title">Requests</h2>
<div id="details" class="details" role="region" aria-label="Selected request" hidden></div>
<div class="scroll"><table id="requests-table"></table></div>
<nav class="pager" aria-label="Pages of requests" id="pager"></nav>
</section>
</main>
<div id="tooltip" class="tooltip" hidden></div>"""
