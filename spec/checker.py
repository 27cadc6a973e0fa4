"""The checker: decides every property of a model, and shows a shortest run for what it decided.

`check` is the whole of it: one breadth-first search for what is true of states
and steps, then liveness on the graph that the search kept. A verdict is
`holds` only if everything reachable was covered.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from batchproof.spec.counterexample import Trace
from batchproof.spec.liveness import leads_to, recoverable
from batchproof.spec.machine import CheckError, Model, ModelError, PropertyError
from batchproof.spec.property import Property
from batchproof.spec.search import DEADLOCK, Limits, Progress, Search

__all__ = [
    "DEADLOCK",
    "CheckError",
    "Limits",
    "Model",
    "ModelError",
    "Outcome",
    "Progress",
    "PropertyError",
    "Report",
    "SafetySearch",
    "Verdict",
    "check",
    "safety_verdict",
]

Outcome = Literal["holds", "violated", "incomplete"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided of one property."""

    prop: Property
    outcome: Outcome
    depth: int
    """Events in `trace`; without one, the depth that was searched."""
    seconds: float
    trace: Trace | None = None
    """A counterexample if violated; of a witness that was seen, the run that shows it."""
    note: str = ""
    """What else there is to say: a bound that was found, or how a run goes on."""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a check: what was covered, and a verdict on every property."""

    model: str
    states: int
    """Distinct states found, after the model's reductions if those were used."""
    transitions: int
    depth: int
    seconds: float
    stopped: str | None
    """Why the search gave up, None if it did not."""
    verdicts: tuple[Verdict, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst of the verdicts; `incomplete` too if the search gave up."""
        outcomes = {verdict.outcome for verdict in self.verdicts}
        if "violated" in outcomes:
            return "violated"
        return "incomplete" if "incomplete" in outcomes or self.stopped else "holds"

    def __getitem__(self, name: str) -> Verdict:
        """Return the verdict on the property called `name`; KeyError if there is none."""
        for verdict in self.verdicts:
            if verdict.prop.name == name:
                return verdict
        raise KeyError(name)


def check(
    model: Model,
    properties: Sequence[Property] = (),
    *,
    recover: Sequence[Property] = (),
    reduce: bool = True,
    fair: bool = True,
    deadlock: bool = True,
    limits: Limits | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Decide `properties` of `model`, and that it never gets stuck.

    `recover` are properties whose predicate must remain reachable from every
    state. `reduce` uses the model's canonical form if it has one. `fair` takes
    only runs that are fair to the model's fair events; without it, any run
    that goes on while something is possible.

    Raises:
        ModelError: the model breaks the contract of `Model`.
        PropertyError: a predicate raised, or tells states apart that the model folds.

    """
    start = time.perf_counter()
    liveness = [prop for prop in properties if prop.kind == "liveness"]
    search = Search(
        model,
        (*properties, *recover),
        reduce=reduce,
        keep_graph=bool(liveness or recover),
        limits=limits,
        progress=progress,
    ).run()
    seconds = time.perf_counter() - start
    verdicts = [
        safety_verdict(search, prop, seconds)
        for prop in (*([DEADLOCK] if deadlock else []), *properties)
        if prop.kind != "liveness"
    ]
    questions: list[Question] = [
        (prop, partial(_liveness_verdict, search, prop, fair=fair)) for prop in liveness
    ]
    questions += [(prop, partial(_recovery_verdict, search, prop)) for prop in recover]
    on_runs, stopped = in_turn(questions, search, start, limits)
    return Report(
        model=model.name,
        states=len(search.states),
        transitions=search.transitions,
        depth=search.depth,
        seconds=time.perf_counter() - start,
        stopped=stopped,
        verdicts=(*verdicts, *on_runs),
    )


class SafetySearch(Protocol):
    """What a verdict on safety is made from: the plain search or the fast one, after its run."""

    stopped: str | None
    """Why it gave up, None if it covered everything."""

    @property
    def complete(self) -> bool:
        """Whether it covered everything."""
        ...

    @property
    def depth(self) -> int:
        """How deep it went, in events."""
        ...

    def trace_of(self, name: str) -> Trace | None:
        """Return a shortest run to where a property was first decided, None if it was not."""
        ...


Question = tuple[Property, Callable[[], Verdict]]
"""A property of runs, and how to decide it."""


def in_turn(
    questions: Sequence[Question], search: SafetySearch, start: float, limits: Limits | None
) -> tuple[list[Verdict], str | None]:
    """Decide one property after another; return the verdicts, and why it was given up if it was.

    Ctrl-C, or a limit of time or memory passed since `start`, makes the rest `incomplete`.
    """
    stopped = search.stopped
    limits = limits or Limits()
    verdicts: list[Verdict] = []
    for prop, answer in questions:
        exhausted = limits.reached(0, time.perf_counter() - start)
        stopped = stopped or exhausted
        if exhausted is None and stopped != "interrupted":
            try:
                verdicts.append(answer())
                continue
            except KeyboardInterrupt:
                stopped = "interrupted"
        verdicts.append(Verdict(prop, "incomplete", search.depth, 0.0))
    return verdicts, stopped


def safety_verdict(search: SafetySearch, prop: Property, seconds: float) -> Verdict:
    """Return the verdict on a property that a search decided on its way."""
    trace = search.trace_of(prop.name)
    if prop.kind != "witness":
        return _verdict(search, prop, trace, seconds)
    if trace is not None:
        return Verdict(prop, "holds", trace.length, seconds, trace, "reached")
    if search.complete:
        return Verdict(prop, "violated", search.depth, seconds, note="never reached")
    return Verdict(prop, "incomplete", search.depth, seconds, note="not reached so far")


def _verdict(
    search: SafetySearch, prop: Property, trace: Trace | None, seconds: float, note: str = ""
) -> Verdict:
    if trace is not None:
        return Verdict(prop, "violated", trace.length, seconds, trace, note)
    if search.complete:
        return Verdict(prop, "holds", search.depth, seconds, note=note)
    return Verdict(prop, "incomplete", search.depth, seconds)


def _liveness_verdict(search: Search, prop: Property, *, fair: bool) -> Verdict:
    start = time.perf_counter()
    result = leads_to(search, prop, fair=fair)
    trace = result.counterexample
    if trace is not None:
        ends = "the run may end there" if trace.loop is None else "the run goes round for ever"
        return _verdict(search, prop, trace, time.perf_counter() - start, ends)
    note = "no bound" if result.worst is None else f"within {result.worst} fair steps"
    return _verdict(search, prop, None, time.perf_counter() - start, note)


def _recovery_verdict(search: Search, prop: Property) -> Verdict:
    start = time.perf_counter()
    trace = recoverable(search, prop)
    note = "can always be reached" if trace is None else "cannot be reached any more"
    return _verdict(search, prop, trace, time.perf_counter() - start, note)
