"""`batchproof soak`: random runs with faults and kills, for as long as one likes."""

import json as json_text
import sys
import time
from typing import Annotated

from cyclopts import Parameter

from batchproof.sched.commands.terminal import until_interrupted
from batchproof.sched.errors import InputError
from batchproof.sched.soak import COUNTS, Soak
from batchproof.sched.soak import soak as play_cases


def soak(
    *,
    minutes: Annotated[float, Parameter(help="How long to go on; at least one case.")] = 1.0,
    seed: Annotated[int, Parameter(help="Of everything that is drawn.")] = 0,
    case: Annotated[int | None, Parameter(help="Only the case of this number.")] = None,
    ticks: Annotated[
        int | None, Parameter(help="With --case: users are at work in so many ticks only.")
    ] = None,
    json: Annotated[bool, Parameter(help="Print the result as JSON.", negative=())] = False,
) -> int:
    """Run random workloads under random limits and policies, with failing executors and kills.

    Every token is checked, and that nothing is lost or reported twice.
    Returns the exit code: 0, 1 if something is wrong, 3 if it was interrupted.
    """
    if not 0 < minutes < float("inf"):
        raise InputError(f"--minutes must be above 0, not {minutes}")
    if ticks is not None and (case is None or ticks < 0):
        raise InputError(f"--ticks {ticks} is for one --case, and at least 0")
    if case is not None and case < 0:
        raise InputError(f"--case must be at least 0, not {case}")
    end = time.monotonic() + 60 * minutes
    with until_interrupted() as stop:

        def go_on(done: Soak) -> bool:
            _progress(done)
            done.complete = not stop()
            return done.complete and time.monotonic() < end

        done = play_cases(seed, go_on=go_on, case=case, ticks=ticks)
    print(_as_json(done) if json else _as_text(done))
    if done.failure is not None:
        return 1
    return 0 if done.complete else 3


def _progress(done: Soak) -> None:
    if sys.stderr.isatty():
        print(f"\r{done.counts['cases']:,} cases, {done.counts['ticks']:,} ticks ", end="",
              file=sys.stderr, flush=True)  # fmt: skip


def _as_json(done: Soak) -> str:
    failure = None
    if done.failure is not None:
        failure = {
            "what": done.failure,
            "case": done.case,
            "ticks": done.ticks,
            "command": done.command,
        }
    counts = {name: done.counts[name] for name in COUNTS}
    return json_text.dumps(
        {"seed": done.seed, "complete": done.complete, **counts, "failure": failure}, indent=2
    )


def _as_text(done: Soak) -> str:
    lines = [f"{name.replace('_', ' '):<13}{done.counts[name]:>13,}" for name in COUNTS]
    if done.failure is None:
        lines.append("nothing lost, nothing reported twice, every token right")
    else:
        lines += [f"FAILED: case {done.case}: {done.failure}", f"again: {done.command}"]
    return "\n".join(lines)
