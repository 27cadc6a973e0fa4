"""`batchproof replay`: hold a recording against the rules, and run it again."""

import json as json_text
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from batchproof.sched.commands.terminal import progress_bar, until_interrupted
from batchproof.sched.replay import Outcome, Replay
from batchproof.sched.report.replay import replay_text
from batchproof.sched.run_recording import RunRecording


def replay(
    file: Annotated[str, Parameter(help="A recording that `batchproof run --record` wrote.")],
    /,
    *,
    json: Annotated[bool, Parameter(help="Print the outcome as JSON.", negative=())] = False,
) -> int:
    """Hold a recording against the specification, line by line, and run it again.

    A run of another engine, in the documented format, is held against the
    specification alone. Returns the exit code: 0 all well, 1 a line breaks a rule
    or differs, 3 interrupted.
    """
    recording = RunRecording(file)
    again = Replay(recording)
    with until_interrupted() as stop, progress_bar("replay") as show:
        outcome = again.run(stop=stop, progress=lambda line: show(line, None, "lines"))
    print(json_text.dumps(_facts(outcome), indent=2) if json else replay_text(outcome))
    if outcome.difference is not None or outcome.broken is not None:
        return 1
    return 3 if outcome.interrupted else 0


def _facts(outcome: Outcome) -> dict[str, Any]:
    difference, broken = outcome.difference, outcome.broken
    return {
        "legal": broken is None,
        "violation": None
        if broken is None
        else {"line": broken.line, **broken.violation._asdict()},
        "repeated": outcome.repeated,
        "same": difference is None,
        "complete": not outcome.interrupted,
        "lines": outcome.lines,
        "ticks": outcome.ticks,
        "exempt": outcome.exempt,
        "difference": None
        if difference is None
        else {
            "line": difference.line,
            "fields": difference.fields,
            "recorded": msgspec.to_builtins(difference.recorded),
            "replayed": msgspec.to_builtins(difference.replayed),
        },
    }
