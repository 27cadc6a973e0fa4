"""Soak: case after case in a process of its own, killed now and then, and taken up again.

A process that runs a case writes snapshots to a file, each whole or not at all.
It ends by SIGKILL where the case says so: within a forward, with half a snapshot
written, or between two ticks. The next one goes on from the file, on a GPU that
has forgotten everything. What was reported is written with the snapshot, as a
service would: what is in neither is submitted again, what is in both was
reported twice.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from batchproof.sched.errors import InputError
from batchproof.sched.soak_case import Case, Kill, KillPlace
from batchproof.sched.soak_run import Run

COUNTS: Final = (
    "cases", "ticks", "requests", "cancelled", "expired", "refused", "preemptions",
    "failed_ticks", "restores", "kills",
)  # fmt: skip
"""What is counted. Ticks are those that were committed: what a kill undid is not among them."""


class Outcome(NamedTuple):
    """How a case went."""

    failure: str | None
    """What is wrong, None if nothing is."""
    tick: int
    """The tick that it was found in."""
    counts: dict[str, int]


@dataclass
class Soak:
    """How a soak went."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    failure: str | None = None
    case: int | None = None
    """The case that failed."""
    ticks: int | None = None
    """The fewest ticks with users at work with which it fails."""
    complete: bool = True
    """Whether it ran as long as it was told to."""

    @property
    def command(self) -> str | None:
        """The command that shows the failure again, None if there is none."""
        if self.failure is None:
            return None
        return f"batchproof soak --seed {self.seed} --case {self.case} --ticks {self.ticks}"


def soak(
    seed: int,
    *,
    go_on: Callable[[Soak], bool],
    case: int | None = None,
    ticks: int | None = None,
) -> Soak:
    """Play cases until `go_on`, asked before each but the first, says no, or one fails.

    `case` plays that one only, its script cut off after `ticks`. A case that
    fails is played again with fewer ticks, for the fewest that fail. The
    process must have no other threads: it forks. Raises `InputError` on a
    system that cannot.
    """
    if not hasattr(os, "fork"):
        raise InputError("soak: needs a system with fork and SIGKILL")
    done = Soak(seed)
    number = case or 0
    with TemporaryDirectory(prefix="batchproof-soak-") as folder:
        while True:
            drawn = Case.draw(seed, number)
            outcome = play(drawn, ticks, Path(folder))
            done.counts.update({"cases": 1, **outcome.counts})
            if outcome.failure is not None:
                done.case = number
                done.ticks, done.failure = _shrunk(drawn, ticks, outcome, Path(folder))
            number += 1
            if done.failure is not None or case is not None or not go_on(done):
                return done


def _shrunk(case: Case, ticks: int | None, outcome: Outcome, folder: Path) -> tuple[int, str]:
    """Return the fewest ticks of the script with which the case fails, and how it does then."""
    most = min(outcome.tick + 1, case.ticks if ticks is None else ticks)
    for fewer in range(most):
        failure = play(case, fewer, folder).failure
        if failure is not None:
            return fewer, failure
    assert outcome.failure is not None
    return most, outcome.failure


def play(case: Case, ticks: int | None, folder: Path) -> Outcome:
    """Play a case to its end, through as many processes as it takes."""
    committed, told = folder / "committed.json", folder / "outcome.json"
    for file in (committed, told):
        file.unlink(missing_ok=True)
    for kills in range(len(case.kills) + 1):
        status = _in_a_process(partial(_go_on, case, ticks, kills, committed, told))
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            break
    else:
        return Outcome(f"killed {len(case.kills) + 1} times: not by us", 0, {})
    if not told.exists():
        return Outcome(f"the process ended with status {status} and said nothing", 0, {})
    said = json.loads(told.read_text())
    return Outcome(said["failure"], said["tick"], {**said["counts"], "kills": kills})


def _in_a_process(work: Callable[[], None]) -> int:
    """Run `work` in a process of its own; return its wait status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who waits
    try:
        work()
    finally:
        os._exit(0)


def _go_on(case: Case, ticks: int | None, kills: int, committed: Path, told: Path) -> None:
    """Take a case up from what was committed; go on to its end, or to the next kill."""
    run: Run | None = None
    dies = _Death(case.kills[kills] if kills < len(case.kills) else None)
    failure = None
    try:
        taken_up = json.loads(committed.read_text()) if committed.exists() else None
        run = Run(case, ticks, committed=taken_up, before_forward=lambda: dies("during forward"))
        dies.run = run
        while not run.is_over():
            dies("between ticks")
            if run.step():
                _write(committed, run.committed(), lambda: dies("while a snapshot is written"))
        run.finish()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    counts = {} if run is None else run.counts
    tick = 0 if run is None else run.tick
    _write(told, {"failure": failure, "tick": tick, "counts": counts})


class _Death:
    """Kills this process, as `kill -9` does, once the run is where it is to end."""

    def __init__(self, kill: Kill | None) -> None:
        self._kill = kill
        self.run: Run | None = None

    def __call__(self, place: KillPlace) -> None:
        """Say where the process is."""
        kill = self._kill
        if kill and self.run and place == kill.place and self.run.tick >= kill.tick:
            os.kill(os.getpid(), signal.SIGKILL)


def _write(file: Path, data: Any, halfway: Callable[[], None] = lambda: None) -> None:
    """Write a file that is there whole or not at all."""
    text, partial = json.dumps(data), file.with_suffix(".partial")
    with open(partial, "w") as out:
        out.write(text[: len(text) // 2])
        out.flush()
        halfway()
        out.write(text[len(text) // 2 :])
    os.replace(partial, file)
