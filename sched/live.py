"""A run as it goes, in the terminal: queue, batch, pool, users, rates.

A redraw costs what it costs; the next one is put off until all of them together
are a small part of the run's time. So watching slows a run by a bounded share,
on any machine and with any number of users.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from batchproof.sched.config import Limits
from batchproof.sched.metrics import REQUEST_ENDS
from batchproof.sched.simulation import Simulation

GAP_S_MIN: Final = 0.1
"""Between two redraws: at most ten a second."""
DRAWING_SHARE_MAX: Final = 0.03
"""The part of the processor's time that drawing may take."""
USERS_SHOWN: Final = 12

Clock = Callable[[], float]

_WIDTH: Final = 48
_LEVELS: Final = "▁▂▃▄▅▆▇█"


@contextmanager
def live_view(
    limits: Limits,
    title: str,
    console: Console,
    wall: Clock = time.perf_counter,
    processor: Clock = time.process_time,
) -> Iterator[Callable[[Simulation], None]]:
    """Yield what to call now and then with the simulation; it redraws when it is time to."""
    with Live(console=console, auto_refresh=False, transient=True) as screen:
        frames = Frames(limits, title)
        pace = Pace(wall, processor)

        def watch(simulation: Simulation) -> None:
            if pace.is_due():
                with pace.drawing():
                    screen.update(Text(frames.draw(simulation, wall())), refresh=True)

        yield watch


class Pace:
    """Decides when to redraw: by the wall, and by the processor time that redraws cost so far."""

    def __init__(self, wall: Clock, processor: Clock) -> None:
        self._wall, self._processor = wall, processor
        self._next_wall, self._next_processor = wall(), processor()

    def is_due(self) -> bool:
        """Tell whether it is time to redraw."""
        return self._wall() >= self._next_wall and self._processor() >= self._next_processor

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Take the cost of a redraw, and put off the next one accordingly."""
        self._next_wall = self._wall() + GAP_S_MIN
        start = self._processor()
        yield
        end = self._processor()
        self._next_processor = end + (end - start) * (1 / DRAWING_SHARE_MAX - 1)


@dataclass(frozen=True)
class Totals:
    """What rates are differences of."""

    wall_s: float
    virtual_s: float
    ticks: int
    sequences: float
    fed: int
    output: int


class Frames:
    """Makes pictures of a simulation; each knows the one before, for rates."""

    def __init__(self, limits: Limits, title: str) -> None:
        self._limits = limits
        self._title = title
        self._before: Totals | None = None
        self._queue: deque[int] = deque(maxlen=_WIDTH)

    def draw(self, simulation: Simulation, wall_s: float) -> str:
        """Return the picture of this moment, a few lines; `wall_s` is the time on the wall."""
        stats = simulation.scheduler.stats()
        now = _totals(stats, simulation, wall_s)
        before, self._before = self._before or now, now
        self._queue.append(stats["live"]["waiting"])
        blocks = (
            [self._title],
            self._gauges(stats, before, now),
            _users(stats["users"]),
            _rates(simulation, stats, before, now),
        )
        return "\n\n".join("\n".join(lines) for lines in blocks)

    def _gauges(self, stats: Mapping[str, Any], before: Totals, now: Totals) -> Iterator[str]:
        live, limits = stats["live"], self._limits
        ticks = max(now.ticks - before.ticks, 1)
        batch = (now.sequences - before.sequences) / ticks
        fed = (now.fed - before.fed) / ticks
        held = limits.max_kv_blocks - live["free_blocks"]
        gauges = (
            ("queue", sparkline(self._queue), f"{live['waiting']:,} waiting"),
            ("batch", bar(batch, limits.max_batch_size), f"{batch:,.1f} sequences a tick"),
            ("budget", bar(fed, limits.token_budget), f"{fed:,.0f} tokens a tick"),
            ("KV pool", bar(held, limits.max_kv_blocks), f"{held:,} blocks held"),
        )
        for name, picture, text in gauges:
            yield f"{name:8} {picture:{_WIDTH}} {text}"


def _totals(stats: Mapping[str, Any], simulation: Simulation, wall_s: float) -> Totals:
    ticks = stats["ticks"]
    return Totals(
        wall_s=wall_s,
        virtual_s=simulation.gpu.now(),
        ticks=ticks,
        sequences=stats["batch"]["sequences_mean"] * ticks if ticks else 0.0,
        fed=stats["tokens"]["fed"],
        output=stats["tokens"]["output"],
    )


def bar(value: float, whole: int, width: int = _WIDTH) -> str:
    """Return a bar of `width` characters that is full when `value` is `whole`."""
    full = round(min(value / whole, 1.0) * width)
    return "█" * full + "░" * (width - full)


def sparkline(values: Iterable[int]) -> str:
    """Return values as bars of one character each, the largest full."""
    shown = list(values)
    most = max([*shown, 1])
    return "".join(_LEVELS[-(-value * (len(_LEVELS) - 1) // most)] for value in shown)


def _users(users: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each of the users with most requests."""
    order = sorted(users.items(), key=lambda item: (-item[1]["submitted"], item[0]))
    yield f"{'user':12} {'ended':20} {'of':>8} {'tokens':>10} {'preempted':>9} {'TTFT p50':>10}"
    for name, user in order[:USERS_SHOWN]:
        ended = sum(user[end] for end in REQUEST_ENDS)
        yield (
            f"{name:12.12} {bar(ended, max(user['submitted'], 1), 20)} {user['submitted']:8,} "
            f"{user['output_tokens']:10,} {user['preemptions']:9,} {_time(user['ttft_s']['p50'])}"
        )
    if len(order) > USERS_SHOWN:
        yield f"... and {len(order) - USERS_SHOWN:,} more users"


def _time(seconds: float) -> str:
    return f"{'-' if seconds != seconds else f'{seconds:,.3f} s':>10}"


def _rates(
    simulation: Simulation, stats: Mapping[str, Any], before: Totals, now: Totals
) -> Iterator[str]:
    requests = stats["requests"]
    ended = sum(requests[end] for end in REQUEST_ENDS)
    so_far = "" if simulation.all_arrived else " so far"
    yield (
        f"{ended:,} of {simulation.submitted:,} requests{so_far} ended, "
        f"{stats['preemptions']:,} preemptions"
    )
    virtual, wall = now.virtual_s - before.virtual_s, now.wall_s - before.wall_s
    if virtual > 0 and wall > 0:
        rate = (now.output - before.output) / virtual
        yield f"{rate:,.0f} output tokens/s, {virtual / wall:,.0f} times as fast as real time"
    yield f"{now.virtual_s:,.1f} s of virtual time, {now.ticks:,} ticks"
