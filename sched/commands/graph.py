"""`batchproof graph`: the life of a request, or the states of a model, in the formats of tools."""

from typing import Annotated, Final

from cyclopts import Parameter

from batchproof.sched.commands.names import known
from batchproof.sched.commands.output import write_text
from batchproof.sched.errors import InputError
from batchproof.sched.report.graph import Graph
from batchproof.sched.report.graph_formats import FORMATS
from batchproof.sched.report.lifecycle_graph import lifecycle_graph, request_graph, run_graph

STATES_MAX: Final = 20_000
"""More are not explored unless asked for."""


def graph(
    *,
    format: Annotated[str, Parameter(help=f"One of {', '.join(FORMATS)}.")] = "svg",
    run: Annotated[
        str | None, Parameter(help="A recording of a run: count what happened in it.")
    ] = None,
    request: Annotated[
        str | None, Parameter(help="With --run: the path of the request with this id.")
    ] = None,
    states: Annotated[str | None, Parameter(help="A model: its reachable states instead.")] = None,
    bound: Annotated[
        str | None, Parameter(help="With --states: the bound, its first if left out.")
    ] = None,
    policy: Annotated[
        str | None, Parameter(help="With --states: the policy, if it has any.")
    ] = None,
    property: Annotated[
        list[str] | None,
        Parameter(help="With --states: mark what violates this; all that are claimed if left out."),
    ] = None,
    fold: Annotated[
        bool, Parameter(help="With --states: fold states by the phases of requests.", negative=())
    ] = False,
    full: Annotated[
        bool, Parameter(help="With --states: without the model's reductions.", negative=())
    ] = False,
    max_states: Annotated[
        int, Parameter(help="With --states: give up on a model with more.")
    ] = STATES_MAX,
    output: Annotated[
        str | None, Parameter(name=("--output", "-o"), help="Write here instead of to stdout.")
    ] = None,
) -> int:
    """Draw or export the life of a request, or the states of a model.

    Returns the exit code, 0. Raises `InputError` for options that do not fit
    each other, unknown names, and files that cannot be read or written.
    """
    writer = FORMATS[known("format", format, FORMATS)]
    if states is None:
        for name, value in (("bound", bound), ("policy", policy), ("property", property)):
            if value is not None:
                raise InputError(f"--{name} is for --states, which was not given")
        if fold or full:
            raise InputError(f"--{'fold' if fold else 'full'} is for --states, which was not given")
        text = writer(_of_requests(run, request))
    else:
        if run is not None or request is not None:
            raise InputError("--states is of a model, --run of a recording: give one of them")
        text = writer(_of_states(states, bound, policy, property, max_states, fold, not full))
    write_text(output, text)
    return 0


def _of_requests(run: str | None, request: str | None) -> Graph:
    if run is None:
        if request is not None:
            raise InputError("--request needs --run FILE, the recording that the request is in")
        return lifecycle_graph()
    from batchproof.sched.report.run_history import RunHistory
    from batchproof.sched.run_recording import RunRecording

    history = RunHistory(RunRecording(run))
    return run_graph(history) if request is None else request_graph(history, history.find(request))


def _of_states(
    model: str,
    bound: str | None,
    policy: str | None,
    properties: list[str] | None,
    states_max: int,
    fold: bool,
    reduce: bool,
) -> Graph:
    from batchproof.sched.report.state_graph import explore, folded_graph, state_graph
    from batchproof.spec.machine import CheckError
    from batchproof.spec.registry import LOCATIONS, load

    if states_max < 1:
        raise InputError(f"--max-states must be at least 1, not {states_max}")
    family = load(known("model", model, LOCATIONS))
    at = family.bounds[known("bound", bound or next(iter(family.bounds)), family.bounds)]
    if policy is not None:
        known("policy", policy, family.policies)
    chosen = policy or next(iter(family.default_policies or family.policies), None)
    every = {prop.name: prop for prop in family.every(at)}
    claimed = (
        list(family.claims(at, chosen))
        if properties is None
        else [every[known("property", name, every)] for name in properties]
    )
    try:
        space = explore(family.build(at, chosen), claimed, states_max, reduce=reduce)
        return folded_graph(space) if fold else state_graph(space)
    except CheckError as error:
        raise InputError(str(error)) from error
