"""`batchproof check`: decide every property of a model at its bounds, exhaustively."""

import importlib.util
import json as json_text
import resource
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from batchproof.sched.commands.names import known
from batchproof.sched.commands.output import write_text
from batchproof.sched.commands.terminal import progress_bar
from batchproof.sched.errors import InputError
from batchproof.sched.report.check import report_as_json, title, verdict_table
from batchproof.sched.report.counterexample import render
from batchproof.sched.report.counterexample_page import Checked, counterexample_page
from batchproof.spec.checker import CheckError, Limits, Progress, Report, Verdict
from batchproof.spec.checker import check as check_model
from batchproof.spec.counterexample import Subject, trace_as_itf, trace_as_pytest
from batchproof.spec.machine import Model
from batchproof.spec.property import Property
from batchproof.spec.registry import LOCATIONS, TARGETS, Bound, ModelFamily, load

EXIT_CODES: Final = {"holds": 0, "violated": 1, "incomplete": 3}
_PAGE: Final = resource.getpagesize()


@dataclass(frozen=True)
class Job:
    """One model at one bound under one policy, with the properties to decide."""

    family: ModelFamily
    bound: Bound
    policy: str | None
    properties: tuple[Property, ...]
    recover: tuple[Property, ...]

    @property
    def subject(self) -> Subject:
        """The names of what is checked."""
        return Subject(self.family.name, self.bound.name, self.policy)


def check(
    model: Annotated[
        str | None, Parameter(help="Model to check; every one of the target if left out.")
    ] = None,
    /,
    *,
    target: Annotated[
        str, Parameter(help="specification, or scheduler: the code that ships.")
    ] = "specification",
    bound: Annotated[
        list[str] | None, Parameter(help="Bound to check at; may be given again.")
    ] = None,
    policy: Annotated[
        list[str] | None, Parameter(help="Policy to run under; may be given again.")
    ] = None,
    property: Annotated[
        list[str] | None,
        Parameter(help="Property to decide, promised or not; may be given again."),
    ] = None,
    full: Annotated[
        bool, Parameter(help="Search every state, without the model's reductions.", negative=())
    ] = False,
    unfair: Annotated[
        bool, Parameter(help="Liveness in every run, fair or not.", negative=())
    ] = False,
    max_states: Annotated[int | None, Parameter(help="Give up after so many states.")] = None,
    max_seconds: Annotated[float | None, Parameter(help="Give up after so many seconds.")] = None,
    max_memory: Annotated[
        float | None, Parameter(help="Give up above so many MB; 0.9 of what is free if left out.")
    ] = None,
    json: Annotated[bool, Parameter(help="Print the outcome as JSON.", negative=())] = False,
    itf: Annotated[Path | None, Parameter(help="Write the first trace for TLA+ tools.")] = None,
    pytest: Annotated[Path | None, Parameter(help="Write the first trace as a test.")] = None,
    html: Annotated[
        Path | None, Parameter(help="Write a page with every verdict and every trace.")
    ] = None,
) -> int:
    """Decide every property of a model exhaustively, and show a shortest counterexample.

    Returns:
        The exit code: 0 all hold, 1 a property is violated, 3 incomplete.

    Raises:
        InputError: an unknown model, bound, policy or property; a limit that is
            no limit; a model or a property at fault; a file that cannot be written.

    """
    limits = _limits(max_states, max_seconds, max_memory)
    models = TARGETS[known("target", target, TARGETS)] if model is None else (model,)
    jobs = list(_jobs(models, bound or (), policy or (), property or ()))
    outcomes: list[tuple[Job, Report]] = []
    for job in jobs:
        report = _run(job, full=full, fair=not unfair, limits=limits)
        outcomes.append((job, report))
        if not json:
            _show(job, report)
        if report.stopped == "interrupted":
            break
    if json:
        print(json_text.dumps([report_as_json(j.subject, r) for j, r in outcomes], indent=2))
    _write_first_trace(outcomes, itf, pytest)
    if html is not None:
        checks = [Checked(job.subject, report, _model(job)) for job, report in outcomes]
        write_text(str(html), counterexample_page(checks))
    worst = {report.outcome for _, report in outcomes}
    return next(EXIT_CODES[o] for o in ("violated", "incomplete", "holds") if o in worst)


def _run(job: Job, *, full: bool, fair: bool, limits: Limits) -> Report:
    packed = job.family.packed if full and importlib.util.find_spec("numpy") else None
    with progress_bar(f"{job.family.name} {job.bound.name}") as show:

        def tell(progress: Progress) -> None:
            note = f"states, {progress.rate:,.0f}/s, frontier {progress.frontier:,}, depth "
            show(progress.states, None, f"{note}{progress.depth}")

        try:
            if packed is not None:
                from batchproof.spec.fast_check import check_packed

                return check_packed(
                    packed(job.bound),
                    job.properties,
                    recover=job.recover,
                    fair=fair,
                    limits=limits,
                    progress=tell,
                )
            return check_model(
                _model(job),
                job.properties,
                recover=job.recover,
                reduce=not full,
                fair=fair,
                limits=limits,
                progress=tell,
            )
        except CheckError as error:
            raise InputError(str(error)) from error


def _model(job: Job) -> Model:
    return job.family.build(job.bound, job.policy)


def _jobs(
    models: Sequence[str],
    bounds: Sequence[str],
    policies: Sequence[str],
    properties: Sequence[str],
) -> Iterable[Job]:
    """Yield what is to be checked: of the models, those that have what was asked for."""
    families = [load(known("model", name, LOCATIONS)) for name in models]
    asked = (("bound", bounds), ("policy", policies), ("property", properties))
    for what, wanted in asked:
        for name in wanted:
            known(what, name, [one for f in families for one in _names(f, what)])
            families = [f for f in families if name in _names(f, what)] or families
    for family in families:
        defaults = family.default_policies or family.policies[:1] or (None,)
        for bound in (family.bounds[name] for name in bounds or family.default_bounds):
            for policy in policies or defaults:
                yield _job(family, bound, policy, properties)


def _job(family: ModelFamily, bound: Bound, policy: str | None, names: Sequence[str]) -> Job:
    recover = family.recoverable
    if not names:
        return Job(family, bound, policy, family.claims(bound, policy), recover)
    chosen = [family.find(name, bound) for name in names]
    return Job(
        family,
        bound,
        policy,
        tuple(prop for prop in chosen if prop not in recover and prop.name != "no-deadlock"),
        tuple(prop for prop in chosen if prop in recover),
    )


def _names(family: ModelFamily, what: str) -> Sequence[str]:
    if what == "bound":
        return list(family.bounds)
    if what == "policy":
        return family.policies
    return [prop.name for bound in family.bounds.values() for prop in family.every(bound)]


def _limits(states: int | None, seconds: float | None, memory_mb: float | None) -> Limits:
    for name, value in (("states", states), ("seconds", seconds), ("memory", memory_mb)):
        if value is not None and value <= 0:
            raise InputError(f"--max-{name} must be above 0, not {value}")
    if memory_mb is None:
        memory_mb = _available_mb()
    return Limits(states, seconds, memory_mb, memory_mb=resident_mb)


def _available_mb() -> float | None:
    """Return what this process may grow to, leaving a tenth of what is free; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    free_kb = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return resident_mb() + 0.9 * free_kb * 1024 / 1e6


def resident_mb() -> float:
    """Return the memory of this process in MB: what it holds now, or where unknown, its peak."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def _show(job: Job, report: Report) -> None:
    print(title(job.subject, report), verdict_table(report), sep="\n", end="\n\n", flush=True)
    for verdict in _violations(report):
        if verdict.trace is not None:
            print(render(_model(job), verdict), end="\n\n")


def _violations(report: Report) -> list[Verdict]:
    return [verdict for verdict in report.verdicts if verdict.outcome == "violated"]


def _write_first_trace(
    outcomes: Sequence[tuple[Job, Report]], itf: Path | None, pytest: Path | None
) -> None:
    """Write the first counterexample, or else the first witness, where it was asked for."""
    if itf is None and pytest is None:
        return
    shown = [(job, v) for job, report in outcomes for v in report.verdicts if v.trace is not None]
    shown.sort(key=lambda item: item[1].outcome != "violated")
    if not shown:
        raise InputError("nothing to write: no property has a counterexample or a witness")
    job, verdict = shown[0]
    assert verdict.trace is not None
    if itf is not None:
        trace = trace_as_itf(verdict.trace, job.subject, verdict.prop)
        write_text(str(itf), json_text.dumps(trace, indent=1) + "\n")
    if pytest is not None:
        write_text(
            str(pytest), trace_as_pytest(verdict.trace, job.subject, verdict.prop, _model(job))
        )
