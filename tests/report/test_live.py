"""The live view says what the scheduler says, and takes a bounded share of the run's time."""

import io
import json
import os
import pty
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console
from support.report_samples import PRESSED

from batchproof.sched.live import (
    DRAWING_SHARE_MAX,
    GAP_S_MIN,
    Frames,
    Pace,
    bar,
    live_view,
    sparkline,
)
from batchproof.sched.request_gen import PoissonWorkload
from batchproof.sched.simulation import Setup, Simulation


def simulation(requests: int = 60) -> Simulation:
    setup = Setup(limits=PRESSED)
    gpu = setup.gpu()
    return Simulation(setup.scheduler(gpu), gpu, PoissonWorkload(requests=requests, rate=40))


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("cost", [0.0, 0.001, 0.02, 0.5])
def test_redraws_are_few_and_cheap_whatever_they_cost(cost: float) -> None:
    wall, processor = Clock(), Clock()
    pace = Pace(wall, processor)
    drawn, step = 0, 0.004
    while processor.now < 60:
        for clock in (wall, processor):
            clock.now += step
        if pace.is_due():
            with pace.drawing():
                drawn += 1
                wall.now += cost
                processor.now += cost
    assert drawn >= 2
    assert drawn <= wall.now / GAP_S_MIN
    assert (drawn - 1) * cost <= DRAWING_SHARE_MAX * processor.now


def test_a_frame_says_what_the_scheduler_says() -> None:
    run = simulation()
    frames = Frames(PRESSED, "a title")
    run.run(stop=lambda: run.ticks >= 40)
    before = run.scheduler.stats()
    frames.draw(run, 1.0)
    run.run(stop=lambda: run.ticks >= 60)
    stats = run.scheduler.stats()
    frame = frames.draw(run, 3.0)
    lines = {line.split()[0]: line for line in frame.splitlines() if line}
    held = PRESSED.max_kv_blocks - stats["live"]["free_blocks"]
    assert frame.startswith("a title\n")
    assert f"{held} blocks held" in lines["KV"]
    assert f"{stats['live']['waiting']} waiting" in lines["queue"]
    fed = (stats["tokens"]["fed"] - before["tokens"]["fed"]) / 20
    assert f"{fed:,.0f} tokens a tick" in lines["budget"]
    output = stats["tokens"]["output"] - before["tokens"]["output"]
    assert f"{output / (stats['elapsed_s'] - before['elapsed_s']):,.0f} output tokens/s" in frame
    for user, figures in stats["users"].items():
        assert lines[user].split()[2:4] == [
            f"{figures['submitted']:,}",
            f"{figures['output_tokens']:,}",
        ]
    assert stats["live"]["waiting"] > 0


def test_the_view_redraws_while_the_run_goes_on() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    run = simulation(400)
    with live_view(PRESSED, "a title", console, processor=lambda: 0.0) as watch:
        complete = run.run(progress=watch)
    assert complete
    assert "a title" in out.getvalue()
    assert "KV pool" in out.getvalue()


def test_many_users_are_cut_and_long_names_too() -> None:
    users = {
        f"user-with-a-long-name-{n}": {
            "submitted": 5,
            "finished": 2,
            "cancelled": 0,
            "expired": 0,
            "refused": 1,
            "output_tokens": 7,
            "preemptions": 0,
            "ttft_s": {"p50": float("nan")},
        }
        for n in range(30)
    }
    stats = {**simulation().scheduler.stats(), "users": users}
    frozen = SimpleNamespace(
        scheduler=SimpleNamespace(stats=lambda: stats),
        gpu=SimpleNamespace(now=lambda: 0.0),
        submitted=0,
        all_arrived=True,
    )
    frame = Frames(PRESSED, "t").draw(frozen, 0.0)
    assert "... and 18 more users" in frame
    assert max(map(len, frame.splitlines())) <= 80


def test_bars_and_sparklines_fill_their_range() -> None:
    assert bar(1, 4, 8) == "██░░░░░░"
    assert bar(9, 4, 4) == "████"
    assert sparkline([0, 1, 7, 14]) == "▁▂▅█"
    assert sparkline([0, 0]) == "▁▁"


COMMAND = [sys.executable, "-m", "batchproof", "run", "--requests", "300", "--json"]


def test_results_are_the_same_watched_or_not() -> None:
    plain = subprocess.run(COMMAND, capture_output=True, check=True)
    piped = subprocess.run([*COMMAND, "--live"], capture_output=True, check=True)
    assert piped.stdout == plain.stdout
    assert piped.stderr == b""  # no terminal, nothing to watch on

    master, terminal = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "--live"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm"},
    ) as process:
        os.close(terminal)
        shown = read_all(master)
        out = process.stdout.read()
    assert out == plain.stdout
    assert json.loads(out)["complete"]
    assert "batchproof run: " in shown
    assert "KV pool" in shown


def read_all(terminal: int) -> str:
    """Read a terminal until whoever writes to it is gone."""
    parts = []
    try:
        while part := os.read(terminal, 65_536):
            parts.append(part)
    except OSError:
        pass
    os.close(terminal)
    return b"".join(parts).decode()
