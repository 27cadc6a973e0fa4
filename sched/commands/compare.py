"""`batchproof compare`: policies side by side, on workloads, latency models and loads."""

import json as json_text
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from batchproof import __version__
from batchproof.sched.commands.names import known
from batchproof.sched.commands.options import WEIGHT, checked_jobs, parse_weights
from batchproof.sched.commands.report_folder import make_folder, write_comparison
from batchproof.sched.commands.terminal import progress_bar, until_interrupted
from batchproof.sched.compare import Comparison, Plan
from batchproof.sched.compare import compare as compare_policies
from batchproof.sched.compare_result import compare_result
from batchproof.sched.config import Limits
from batchproof.sched.errors import InputError
from batchproof.sched.known_workload import KnownWorkload, known_workload
from batchproof.sched.latency import LATENCY_MODELS
from batchproof.sched.policy.registry import POLICIES
from batchproof.sched.recordings import Trace
from batchproof.sched.report.compare_table import compare_table
from batchproof.sched.request_gen import (
    DEFAULT_USERS,
    Assignment,
    PoissonWorkload,
    check_positive,
)
from batchproof.sched.simulation import Setup
from batchproof.sched.slo import parse_slo
from batchproof.sched.text_files import whole_file

GENERATED: Final = "generated"
"""What stands for the generated workload where a FILE may be."""


@dataclass(frozen=True)
class WorkloadOptions:
    """What every workload of a comparison has in common."""

    requests: int = 400
    """How many requests of each workload; of a FILE the first so many."""
    users: int = DEFAULT_USERS
    """How many users the requests are of."""
    assign: Assignment = "zipf"
    """Whose each request is: user k in proportion to 1/k, or each in turn."""
    seed: int = 0
    """Of everything that is drawn: the same seed gives the same output."""
    skip_bad_rows: Annotated[bool, Parameter(negative=())] = False
    """Of a FILE, leave out bad rows instead of stopping."""

    def workload(self, path: str, name: str, limits: Limits) -> KnownWorkload:
        """Return the generated workload or that of a file; raise `InputError` if it is empty."""
        if self.requests < 1:
            raise InputError(f"requests is {self.requests}, not an int of at least 1")
        if path == GENERATED:
            generated = PoissonWorkload(
                requests=self.requests, users=self.users, assign=self.assign, seed=self.seed
            )
            return known_workload(name, GENERATED, generated, Setup(limits=limits, seed=self.seed))
        trace = Trace(
            path,
            users=self.users,
            assign=self.assign,
            seed=self.seed,
            limit=self.requests,
            skip_bad_rows=self.skip_bad_rows,
        )
        setup = Setup(limits=limits, seed=self.seed, eos_rate=0.0)
        return known_workload(name, trace.format, trace, setup)


_DEFAULT_OPTIONS: Final = WorkloadOptions()
_DEFAULT_LIMITS: Final = Limits()


def compare(
    *workloads: Annotated[
        str,
        Parameter(
            help=f"Traces, Azure CSV or Mooncake JSON lines, gzip or not; or {GENERATED}, "
            "which is the default."
        ),
    ],
    policy: Annotated[str, Parameter(help="Policies, comma-separated.")] = ",".join(POLICIES),
    latency: Annotated[
        str, Parameter(help="Latency models, comma-separated.")
    ] = "linear,a100-llama3-8b",
    load: Annotated[
        str,
        Parameter(help="Loads, comma-separated: arrival rates, in multiples of the capacity."),
    ] = "0.5,0.8,1.0,1.2",
    slo: Annotated[
        str | None,
        Parameter(
            help="Also search, for each policy, the highest rate that meets these objectives: "
            "tbt_p99=100ms,ttft_p50=2s"
        ),
    ] = None,
    options: Annotated[WorkloadOptions, Parameter(name="*")] = _DEFAULT_OPTIONS,
    weight: Annotated[tuple[str, ...], WEIGHT] = (),
    limits: Annotated[Limits, Parameter(name="*")] = _DEFAULT_LIMITS,
    jobs: Annotated[
        int | None, Parameter(help="Processes; as many as there are cores if left out.")
    ] = None,
    report: Annotated[
        str | None, Parameter(help="Write a page with tables and plots into this folder.")
    ] = None,
    plot: Annotated[
        Path | None, Parameter(help="Write plots into this folder, as SVG and PNG.")
    ] = None,
    json: Annotated[bool, Parameter(help="Print the result as JSON.", negative=())] = False,
) -> int:
    """Run every policy on every workload, latency model and load, and show what each is worth.

    Returns the exit code: 0, or 3 if it was interrupted.
    """
    chosen = Plan(
        workloads=tuple(
            options.workload(path, name, limits) for path, name in _files(workloads or (GENERATED,))
        ),
        policies=_names("policy", policy, tuple(POLICIES)),
        latencies=_names("latency model", latency, tuple(LATENCY_MODELS)),
        loads=_loads(load),
        limits=limits,
        slo=parse_slo(slo) if slo is not None else (),
        weights=parse_weights(weight),
    )
    _check_comparable(chosen)
    processes = checked_jobs(jobs)
    write_plots = _plot_writer(plot) if plot is not None else None
    if report is not None:
        make_folder(report)
    comparison = _run(chosen, processes)
    if write_plots is not None:
        write_plots(comparison)
    result = compare_result(__version__, comparison)
    if report is not None:
        write_comparison(report, result)
    print(json_text.dumps(result, indent=2) if json else compare_table(result))
    return 0 if comparison.complete else 3


def _run(plan: Plan, jobs: int) -> Comparison:
    """Run a plan, and show how far it is."""
    done = 0
    with until_interrupted() as stop, progress_bar("compare") as show:

        def finished() -> None:
            nonlocal done
            done += 1
            show(done, plan.calls, "runs")

        return compare_policies(plan, jobs=jobs, stop=stop, finished=finished)


def _files(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each file once, and what it is called: its stem, unless another has the same."""
    distinct = list(dict.fromkeys(names))
    stems = [Path(name).stem for name in distinct]
    for name, stem in zip(distinct, stems, strict=True):
        yield name, stem if stems.count(stem) == 1 else name


def _check_comparable(plan: Plan) -> None:
    """Raise `InputError` where what is delivered would depend on the policy."""
    if plan.limits.queue_bounds:
        raise InputError(
            f"compare: with {', '.join(plan.limits.queue_bounds)} each policy would refuse other "
            "requests, and be compared on another workload; leave it out"
        )
    for workload in plan.workloads:
        if workload.has_times:
            raise InputError(
                f"compare: {workload.name} has requests that expire: others would under each "
                "policy; leave out deadline_s and max_queue_time_s, or `run` it under each"
            )


def _names(what: str, text: str, there_are: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(known(what, name.strip(), there_are) for name in text.split(",")))


def _loads(text: str) -> tuple[float, ...]:
    loads: dict[float, None] = {}
    for part in text.split(","):
        try:
            load = float(part)
        except ValueError:
            raise InputError(
                f"load {part.strip()!r} is not a number; give loads like 0.5,0.8,1.0,1.2"
            ) from None
        check_positive("load", load)
        loads[load] = None
    return tuple(loads)


def _plot_writer(folder: Path) -> Callable[[Comparison], None]:
    """Return what writes plots; raise `InputError` before anything is run if it could not."""
    try:
        from batchproof.sched.report.plots import comparison_plots
    except ModuleNotFoundError as missing:
        raise InputError(f"--plot needs {missing.name}: pip install 'batchproof[plot]'") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--plot {folder}: cannot be made ({error.strerror or error})") from None

    def write(comparison: Comparison) -> None:
        for name, content in comparison_plots(comparison):
            with whole_file(str(folder / name)) as file:
                file.write(content)

    return write
