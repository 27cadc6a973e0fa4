"""A run in the trace event format that Perfetto and chrome://tracing read.

Source: the Trace Event Format, JSON object form. The scheduler is a process
with the ticks and the counters; each user is a process, each of its requests
a thread with a slice for each phase. Times are microseconds.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from batchproof.sched.report.run_history import Life, RunHistory, TickRow

_SCHEDULER: Final = 1
_FIRST_USER: Final = 2
_TICKS_THREAD: Final = 1
_FIRST_REQUEST: Final = 2

_Event = dict[str, Any]


def perfetto_json(history: RunHistory) -> str:
    """Return the run as one JSON object, an event a line."""
    events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in _events(history))
    about = json.dumps(_about(history))
    return f'{{"displayTimeUnit":"ms",\n"otherData":{about},\n"traceEvents":[\n{events}\n]}}\n'


def _about(history: RunHistory) -> dict[str, Any]:
    header = history.header
    return {
        "producer": header.producer,
        "policy": header.policy,
        "admission": header.admission,
        "complete": history.complete,
    }


def _events(history: RunHistory) -> Iterator[_Event]:
    yield from _named(_SCHEDULER, "scheduler", 0)
    yield _thread_name(_SCHEDULER, _TICKS_THREAD, "ticks")
    users = {user: _FIRST_USER + n for n, user in enumerate(history.users)}
    for user, process in users.items():
        yield from _named(process, f"user {user}", process)
    for number, tick in enumerate(history.ticks):
        yield from _tick_events(history, number, tick)
    for number, life in enumerate(history.lives):
        yield from _life_events(history, life, users[life.user], _FIRST_REQUEST + number)


def _tick_events(history: RunHistory, number: int, tick: TickRow) -> Iterator[_Event]:
    chunks = sum(share.chunks for share in tick.shares.values())
    yield {
        "ph": "X",
        "name": f"tick {number}",
        "cat": "tick",
        "pid": _SCHEDULER,
        "tid": _TICKS_THREAD,
        "ts": _microseconds(tick.start),
        "dur": _microseconds(tick.end) - _microseconds(tick.start),
        "args": {
            "decodes": tick.sequences - chunks,
            "chunks": chunks,
            "preempted": tick.preempted,
            "tokens by user": {
                user: share.decodes + share.chunk_tokens for user, share in tick.shares.items()
            },
        },
    }
    held = history.header.limits.max_kv_blocks - tick.free
    counters = {
        "KV blocks held": held,
        "budget used (tokens)": tick.tokens,
        "batch size (sequences)": tick.sequences,
        "queue (waiting requests)": tick.waiting,
    }
    for name, value in counters.items():
        at = tick.end if name == "KV blocks held" else tick.start
        yield {
            "ph": "C",
            "name": name,
            "pid": _SCHEDULER,
            "tid": _TICKS_THREAD,
            "ts": _microseconds(at),
            "args": {"value": value},
        }


def _life_events(history: RunHistory, life: Life, process: int, thread: int) -> Iterator[_Event]:
    yield _thread_name(process, thread, life.name)
    track = {"pid": process, "tid": thread}
    about = {
        "prompt": life.prompt,
        "max_tokens": life.max_tokens,
        "generated": life.generated,
        "preemptions": life.preemptions,
        "finish_reason": life.finish_reason,
    }
    for stay in life.stays():
        end = history.ended_at if stay.end is None else stay.end
        yield {
            "ph": "X",
            "name": stay.phase,
            "cat": "phase",
            **track,
            "ts": _microseconds(stay.start),
            "dur": _microseconds(end) - _microseconds(stay.start),
            "args": about,
        }
    for move in life.moves:
        if move.event in ("preempt", "cancel", "expire"):
            yield {
                "ph": "i",
                "s": "t",
                "name": move.event,
                "cat": "phase",
                **track,
                "ts": _microseconds(move.at),
            }


def _named(process: int, name: str, place: int) -> Iterator[_Event]:
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
    yield {
        "ph": "M",
        "name": "process_sort_index",
        "pid": process,
        "args": {"sort_index": place},
    }


def _thread_name(process: int, thread: int, name: str) -> _Event:
    return {
        "ph": "M",
        "name": "thread_name",
        "pid": process,
        "tid": thread,
        "args": {"name": name},
    }


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
