"""`batchproof timeline`: a recorded run as a page to explore, or as a trace for Perfetto."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from batchproof.sched.commands.names import known
from batchproof.sched.commands.output import write_text
from batchproof.sched.report.perfetto import perfetto_json
from batchproof.sched.report.run_history import RunHistory
from batchproof.sched.report.timeline import timeline_page
from batchproof.sched.run_recording import RunRecording

FORMATS: Final[Mapping[str, Callable[[RunHistory, str], str]]] = {
    "html": timeline_page,
    "perfetto": lambda history, _title: perfetto_json(history),
}


def timeline(
    file: Annotated[str, Parameter(help="A recording that `batchproof run --record` wrote.")],
    /,
    *,
    format: Annotated[str, Parameter(help=f"One of {', '.join(FORMATS)}.")] = "html",
    output: Annotated[
        str | None, Parameter(name=("--output", "-o"), help="Write here instead of to stdout.")
    ] = None,
) -> int:
    """Show a recorded run as one self-contained page, or as a trace that Perfetto reads.

    Returns the exit code, 0. Raises `InputError` for an unknown format, and
    files that cannot be read or written.
    """
    write = FORMATS[known("format", format, FORMATS)]
    write_text(output, write(RunHistory(RunRecording(file)), Path(file).name))
    return 0
