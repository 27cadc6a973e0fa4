"""`batchproof run`: schedule a trace or a generated workload to its end, and say how it went."""

import json as json_text
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Final

from cyclopts import Parameter

from batchproof import __version__
from batchproof.sched.commands.options import (
    SetupOptions,
    WorkloadOptions,
    checked_jobs,
    workload_facts,
)
from batchproof.sched.commands.report_folder import recording_in, write_report
from batchproof.sched.commands.terminal import Show, progress_bar, until_interrupted
from batchproof.sched.config import Limits
from batchproof.sched.errors import InputError
from batchproof.sched.inference_stub import SimulatedGPU
from batchproof.sched.isolation import isolation as slowdowns
from batchproof.sched.prompts import PromptRing
from batchproof.sched.recorder import Recorder, RecordingFile, header
from batchproof.sched.report.run_table import run_table
from batchproof.sched.request_gen import Arrival
from batchproof.sched.run_result import run_result
from batchproof.sched.scheduler import Scheduler
from batchproof.sched.simulation import Setup, Simulation
from batchproof.sched.text_files import whole_file

_FLAT: Final = Parameter(name="*")
_DEFAULT_WORKLOAD: Final = WorkloadOptions()
_DEFAULT_SETUP: Final = SetupOptions()
_DEFAULT_LIMITS: Final = Limits()


def run(
    file: Annotated[
        str | None,
        Parameter(help="A trace: Azure CSV or Mooncake JSON lines, gzip or not."),
    ] = None,
    /,
    *,
    workload: Annotated[WorkloadOptions, _FLAT] = _DEFAULT_WORKLOAD,
    setup: Annotated[SetupOptions, _FLAT] = _DEFAULT_SETUP,
    limits: Annotated[Limits, _FLAT] = _DEFAULT_LIMITS,
    record: Annotated[
        str | None, Parameter(help="Write every tick and event here; gzip if it ends in .gz.")
    ] = None,
    report: Annotated[
        str | None,
        Parameter(help="Write a page with tables, plots, the timeline and more into this folder."),
    ] = None,
    live: Annotated[
        bool, Parameter(help="Watch it in the terminal while it runs.", negative=())
    ] = False,
    monitor: Annotated[
        bool, Parameter(help="Hold every tick against the rules; stop at the first violation.")
    ] = True,
    isolation: Annotated[
        bool,
        Parameter(help="Also run each user alone; print how much slower it is.", negative=()),
    ] = False,
    jobs: Annotated[
        int | None,
        Parameter(help="Processes for --isolation; as many as there are cores if left out."),
    ] = None,
    json: Annotated[bool, Parameter(help="Print the result as JSON.", negative=())] = False,
) -> int:
    """Schedule a trace, or a generated workload, to its end, and say how it went.

    Returns the exit code: 0, 1 if a request was lost, 3 if it was interrupted.
    """
    if report is not None and record is not None:
        raise InputError("--report DIR records the run already, in DIR: leave out --record")
    if jobs is not None and not isolation:
        raise InputError("--jobs is for --isolation: add it, or leave out --jobs")
    processes = checked_jobs(jobs)
    source = workload.workload(file)
    chosen = setup.setup(limits, source, workload.seed)
    if report is not None:
        record = recording_in(report)
    with _scheduler(chosen, workload.seed, record, monitor) as (scheduler, gpu, finish):
        simulation = Simulation(scheduler, gpu, source)
        with until_interrupted() as stop, _watched(chosen, live=live) as watch:
            complete = simulation.run(stop=stop, progress=watch)
        finish(complete)
    facts = workload_facts(workload, source)
    result = run_result(__version__, chosen, facts, simulation, complete=complete)
    if report is not None:
        write_report(report, result)
    if isolation and complete:
        again = partial(workload.workload, file)
        result["isolation"] = _isolation(chosen, again, result["users"], processes)
        finished = sum(user["finished"] > 0 for user in result["users"].values())
        result["complete"] = len(result["isolation"]) == finished
    print(json_text.dumps(result, indent=2) if json else run_table(result))
    return _exit_code(result)


def _isolation(
    setup: Setup, again: Callable[[], Iterable[Arrival]], users: dict[str, Any], jobs: int
) -> dict[str, Any]:
    done = 0
    with until_interrupted() as stop, progress_bar("alone") as show:

        def finished() -> None:
            nonlocal done
            done += 1
            show(done, len(users), "users")

        return slowdowns(setup, again, users, jobs=jobs, stop=stop, finished=finished)


@contextmanager
def _scheduler(
    setup: Setup, prompt_seed: int, record: str | None, monitor: bool
) -> Iterator[tuple[Scheduler, SimulatedGPU, Callable[[bool], None]]]:
    """Yield a scheduler, its GPU, and what to call when the run is over, complete or not."""
    gpu = setup.gpu()
    if record is None:
        yield setup.scheduler(gpu, monitor=monitor), gpu, lambda _complete: None
        return
    admission = setup.scheduler(gpu).policy.admission
    with whole_file(record) as file:
        first = header(setup, admission, prompt_seed, f"batchproof {__version__}")
        recorder = Recorder(
            gpu,
            setup.limits.max_kv_blocks,
            RecordingFile(file, first).write,
            PromptRing(prompt_seed),
        )
        yield (
            setup.scheduler(recorder, recorder, monitor=monitor),
            gpu,
            lambda complete: recorder.end(complete=complete),
        )


@contextmanager
def _watched(setup: Setup, *, live: bool) -> Iterator[Callable[[Simulation], None]]:
    """Yield what shows how far a run is: on a terminal, a bar, or the live view."""
    if not (live and sys.stderr.isatty()):
        with progress_bar("run") as show:
            yield _shown(show)
        return
    from rich.console import Console

    from batchproof.sched.live import live_view

    title = f"batchproof run: {setup.policy}, {setup.latency.name}"
    with live_view(setup.limits, title, Console(stderr=True)) as watch:
        yield watch


def _shown(show: Show) -> Callable[[Simulation], None]:
    def progress(simulation: Simulation) -> None:
        done = simulation.ended + simulation.refusals.total()
        total = simulation.submitted if simulation.all_arrived else None
        note = f"{simulation.ticks:,} ticks, {simulation.gpu.now():,.0f} s of virtual time"
        show(done, total, note)

    return progress


def _exit_code(result: dict[str, Any]) -> int:
    if result["lost"]:
        print(f"batchproof: {result['lost']} requests were lost: please report it", file=sys.stderr)
        return 1
    return 0 if result["complete"] else 3
