"""The checker: decides every property of a model, and shows a shortest run for what it decided.

`check` is the whole of it: one breadth-first search for what is true of states
and steps, then liveness on the graph that the search kept. A verdict is
`holds` only if everything reachable was covered.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from batchproof.spec.counterexample import Trace
from batchproof.spec.liveness import leads_to, recoverable
from batchproof.spec.machine import CheckError, Model, ModelError, PropertyError
from batchproof.spec.property import Property
from batchproof.spec.search import Found, Limits, Progress, Search

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
    "Verdict",
    "check",
]

Outcome = Literal["holds", "violated", "incomplete"]

DEADLOCK: Final = Property(
    name="no-deadlock",
    claim="every reachable state that may not end has a successor",
    source="built into the checker",
    kind="invariant",
    predicate=lambda state: True,
)
"""Decided by the search itself, which alone knows the successors."""


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
        deadlock=deadlock,
        keep_graph=bool(liveness or recover),
        limits=limits,
        progress=progress,
    ).run()
    seconds = time.perf_counter() - start
    verdicts = [_deadlock_verdict(search, seconds)] if deadlock else []
    for prop in properties:
        if prop.kind == "liveness":
            verdicts.append(_liveness_verdict(search, prop, fair=fair))
        else:
            verdicts.append(_safety_verdict(search, prop, seconds))
    verdicts += [_recovery_verdict(search, prop) for prop in recover]
    return Report(
        model=model.name,
        states=len(search.states),
        transitions=search.transitions,
        depth=search.depth,
        seconds=time.perf_counter() - start,
        stopped=search.stopped,
        verdicts=tuple(verdicts),
    )


def _deadlock_verdict(search: Search, seconds: float) -> Verdict:
    found = None if search.deadlock is None else Found(search.deadlock)
    return _from_found(search, DEADLOCK, found, seconds)


def _safety_verdict(search: Search, prop: Property, seconds: float) -> Verdict:
    found = search.found.get(prop.name)
    if prop.kind != "witness":
        return _from_found(search, prop, found, seconds)
    if found is not None:
        trace = search.trace(found)
        return Verdict(prop, "holds", trace.length, seconds, trace, "reached")
    if search.complete:
        return Verdict(prop, "violated", search.depth, seconds, note="never reached")
    return Verdict(prop, "incomplete", search.depth, seconds, note="not reached so far")


def _from_found(search: Search, prop: Property, found: Found | None, seconds: float) -> Verdict:
    trace = None if found is None else search.trace(found)
    return _from_trace(search, prop, trace, seconds)


def _from_trace(
    search: Search, prop: Property, trace: Trace | None, seconds: float, note: str = ""
) -> Verdict:
    if trace is not None:
        return Verdict(prop, "violated", trace.length, seconds, trace)
    outcome: Outcome = "holds" if search.complete else "incomplete"
    return Verdict(prop, outcome, search.depth, seconds, note=note)


def _liveness_verdict(search: Search, prop: Property, *, fair: bool) -> Verdict:
    start = time.perf_counter()
    result = leads_to(search, prop, fair=fair)
    note = "no bound" if result.worst is None else f"within {result.worst} fair steps"
    return _from_trace(
        search,
        prop,
        result.counterexample,
        time.perf_counter() - start,
        note if search.complete else "",
    )


def _recovery_verdict(search: Search, prop: Property) -> Verdict:
    start = time.perf_counter()
    trace = recoverable(search, prop)
    return _from_trace(search, prop, trace, time.perf_counter() - start, "can always be reached")
