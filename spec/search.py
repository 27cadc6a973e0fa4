"""The plain search: every reachable state of a model, breadth first, in readable Python.

It is the reference that the fast search (`fast_search.py`) is held to. States
are numbered in the order of discovery, so the number of a state tells its
depth, and one parent number a state is enough to walk a shortest trace back.
"""

import sys
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from batchproof.spec.counterexample import Step, Trace
from batchproof.spec.graph import Graph
from batchproof.spec.machine import Ending, Fair, Model, ModelError, PropertyError, Reduced
from batchproof.spec.property import Property

RECHECK_EVERY = 97
"""One state in so many is expanded twice, to notice successors that are not a function of it."""
LOOK_EVERY = 512
"""Limits of time and memory, and progress, are looked at once in so many states."""


DEADLOCK: Final = Property(
    name="no-deadlock",
    claim="every reachable state that may not end has a successor",
    source="built into the checker",
    kind="invariant",
    predicate=lambda state: True,
)
"""Decided by the search itself, which alone knows the successors."""


@dataclass(frozen=True)
class Limits:
    """Where to give up; a search that does is `incomplete`, whatever it has not found."""

    max_states: int | None = None
    max_seconds: float | None = None
    max_memory_mb: float | None = None
    memory_mb: Callable[[], float] | None = None
    """The probe that `max_memory_mb` is compared with: resident memory now."""

    def reached(self, states: int, seconds: float) -> str | None:
        """Say which limit is passed, None if none is."""
        if self.max_states is not None and states > self.max_states:
            return f"limit of {self.max_states:,} states reached"
        if self.max_seconds is not None and seconds > self.max_seconds:
            return f"limit of {self.max_seconds:g} seconds reached"
        if self.max_memory_mb is not None and self.memory_mb is not None:
            used = self.memory_mb()
            if used > self.max_memory_mb:
                return f"limit of {self.max_memory_mb:g} MB reached ({used:.0f} MB in use)"
        return None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is."""

    states: int
    transitions: int
    frontier: int
    """States found and not yet expanded."""
    depth: int
    seconds: float

    @property
    def rate(self) -> float:
        """States a second since the start."""
        return self.states / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """Where a property was decided: a state, and the step out of it if a step decided."""

    number: int
    step: tuple[Any, Any] | None = None


def decide(prop: Property, predicate: Callable[..., bool], *subject: Any) -> bool:
    """Evaluate a predicate of `prop`; an exception in it is the property's fault.

    Raises:
        PropertyError: the predicate raised; the message shows the state.

    """
    try:
        return bool(predicate(*subject))
    except Exception as error:
        raise _raised_by(prop, error, subject) from error


def _raised_by(prop: Property, error: Exception, subject: Sequence[Any]) -> PropertyError:
    return PropertyError(
        f"property {prop.name!r} raised {type(error).__name__}: {error}; "
        f"asked about {' -> '.join(map(repr, subject))}"
    )


class Search:
    """One breadth-first search. Make it, `run` it once, read what it found.

    `properties` are the state and step predicates to decide on the way; those
    of kind `liveness` are only watched for telling folded states apart.
    """

    def __init__(
        self,
        model: Model,
        properties: Sequence[Property] = (),
        *,
        reduce: bool = True,
        keep_graph: bool = False,
        limits: Limits | None = None,
        progress: Callable[[Progress], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self.states: list[Any] = []
        self.parents = array("q")
        self.levels: list[int] = []
        """The number of the first state of each depth."""
        self.transitions = 0
        self.found: dict[str, Found] = {}
        """Property name -> where it was first, so most shortly, broken or (a witness) seen."""
        self.stopped: str | None = None
        """Why the search gave up; None if it covered everything it set out to."""
        self.graph = Graph() if keep_graph else None

        self._canonical = model.canonical if reduce and isinstance(model, Reduced) else None
        self._may_end = model.may_end if isinstance(model, Ending) else None
        self._fairness = model.fairness if isinstance(model, Fair) else _one_class
        self._properties = {prop.name: prop for prop in properties}
        self._invariants = [prop for prop in properties if prop.kind == "invariant"]
        self._steps = [
            (p, p.kind == "witness") for p in properties if p.kind in ("step", "witness")
        ]
        """The open step properties and witnesses, with the answer that decides each."""
        self._of_states = [(p, predicate) for p in properties for predicate in _of_states(p)]
        """What must not tell folded states apart: asked of new states and now and then."""
        self._of_runs = [(p, predicate) for p, predicate in self._of_states if p.kind == "liveness"]
        """Of these, what a fold could make or hide a cycle of: asked of every step."""
        self._folds = 0
        self._limits = limits or Limits()
        self._most_states = self._limits.max_states or sys.maxsize
        self._progress = progress
        self._clock = clock
        self._numbers: dict[Any, int] = {}
        self._expanded = 0

    @property
    def complete(self) -> bool:
        """Whether every reachable state was expanded."""
        return self.stopped is None

    @property
    def depth(self) -> int:
        """The depth of the deepest state found, in events."""
        return max(len(self.levels) - 1, 0)

    def run(self) -> "Search":
        """Search until all is covered, a limit is reached, or Ctrl-C; return self.

        Raises:
            ModelError: the model's states are not hashable, its successors raise
                or are not the same when asked again, or its canonical form is not one.
            PropertyError: a predicate raised, or tells folded states apart.

        """
        start = self._clock()
        try:
            self._begin()
            while self._expanded < len(self.states):
                if self._expanded == self.levels[-1]:
                    self.levels.append(len(self.states))
                self.stopped = self._over_limit(start)
                if self.stopped is not None:
                    break
                self._expand(self._expanded)
                self._expanded += 1
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        if self.levels and self.levels[-1] == len(self.states):
            self.levels.pop()
        return self

    def depth_of(self, number: int) -> int:
        """Return the depth of a state: the least events that lead to it."""
        return bisect_right(self.levels, number) - 1

    def _begin(self) -> None:
        states = self._initial()
        if states != self._initial():
            raise ModelError(f"model {self.model.name!r}: initial() differs when asked again")
        if not states:
            raise ModelError(f"model {self.model.name!r}: initial() gives no state")
        self.levels.append(0)
        for state in states:
            self._number(state, parent=-1)

    def _expand(self, number: int) -> None:
        state = self.states[number]
        successors = self.successors(state)
        if (number % RECHECK_EVERY == 0 or number < self.levels[1]) and (
            successors != self.successors(state)
        ):
            raise ModelError(
                f"model {self.model.name!r}: successors of {state!r} differ when asked again; "
                "they must depend on the state alone"
            )
        if not successors and (self._may_end is None or not self._may_end(state)):
            self.found.setdefault(DEADLOCK.name, Found(number))
        row: list[tuple[int, int]] = []
        for event, after in successors:
            if self._steps:
                self._decide_step(number, state, event, after)
            target = self._number(after, parent=number)
            if self.graph is not None:
                row.append((target, self._class_of(self.graph, event)))
        self.transitions += len(successors)
        if self.graph is not None:
            self.graph.add_row(row)

    def _number(self, state: Any, parent: int) -> int:
        """Return the number of a state; a new one is recorded, and its invariants decided."""
        form = self._form(state)
        try:
            number = self._numbers.setdefault(form, len(self.states))
        except TypeError as error:
            raise ModelError(
                f"model {self.model.name!r}: state {form!r} cannot be hashed ({error}); "
                "make states of tuples, frozensets and frozen dataclasses"
            ) from error
        is_new = number == len(self.states)
        if is_new:
            self.states.append(form)
            self.parents.append(parent)
            self._decide_state(number, form)
        if self._canonical is not None:
            self._folds += 1
            spot = is_new or self._folds % RECHECK_EVERY == 0
            self._check_fold(state, form, self._of_states if spot else self._of_runs)
        return number

    def _decide_state(self, number: int, state: Any) -> None:
        for prop in self._invariants:
            if not decide(prop, prop.predicate, state):
                self.found[prop.name] = Found(number)
                self._invariants = [p for p in self._invariants if p.name not in self.found]

    def _check_fold(
        self, state: Any, form: Any, predicates: Sequence[tuple[Property, Callable[..., bool]]]
    ) -> None:
        if form == state:
            return
        if predicates is self._of_states and self._form(form) != form:
            raise ModelError(f"model {self.model.name!r}: canonical is not idempotent on {form!r}")
        for prop, predicate in predicates:
            if decide(prop, predicate, state) != decide(prop, predicate, form):
                raise PropertyError(
                    f"property {prop.name!r} tells {state!r} from {form!r}, which the model "
                    "folds together: check it without reductions"
                )

    def _decide_step(self, number: int, state: Any, event: Any, after: Any) -> None:
        """Decide the open step predicates; spelled out, being what a search spends its time on."""
        for prop, wanted in self._steps:
            try:
                answer = bool(prop.predicate(state, event, after))
            except Exception as error:
                raise _raised_by(prop, error, (state, event, after)) from error
            if answer is wanted:
                self.found[prop.name] = Found(number, (event, after))
                self._steps = [open_ for open_ in self._steps if open_[0].name not in self.found]

    def successors(self, state: Any) -> list[tuple[Any, Any]]:
        """Return the model's successors of `state`; what goes wrong there is the model's fault."""
        try:
            return [(event, after) for event, after in self.model.successors(state)]
        except Exception as error:
            raise self._raised(f"successors of {state!r}", error) from error

    def _initial(self) -> list[Any]:
        try:
            return list(self.model.initial())
        except Exception as error:
            raise self._raised("initial()", error) from error

    def _raised(self, what: str, error: Exception) -> ModelError:
        return ModelError(
            f"model {self.model.name!r}: {what} raised {type(error).__name__}: {error}"
        )

    def _over_limit(self, start: float) -> str | None:
        if self._expanded % LOOK_EVERY and len(self.states) <= self._most_states:
            return None
        seconds = self._clock() - start
        if self._progress is not None:
            waiting = len(self.states) - self._expanded
            depth = self.depth_of(self._expanded)
            self._progress(Progress(len(self.states), self.transitions, waiting, depth, seconds))
        return self._limits.reached(len(self.states), seconds)

    def trace_of(self, name: str) -> Trace | None:
        """Return a shortest run to where a property was first decided, in the model's own states.

        None if it was not: never broken or, a witness, never seen.
        """
        found = self.found.get(name)
        if found is None:
            return None
        steps = self.run_through(self.path(found.number))
        if found.step is None:
            return Trace(tuple(steps))
        before, target, prop = steps[-1].state, self._form(found.step[1]), self._properties[name]
        wanted = prop.kind == "witness"
        for event, after in self.successors(before):
            if self._form(after) == target and (
                decide(prop, prop.predicate, before, event, after) == wanted
            ):
                return Trace((*steps, Step(event, after)))
        raise self._not_a_symmetry(before)

    def path(self, number: int) -> list[int]:
        """Return the numbers of the states on a shortest way to `number`, from an initial one."""
        path = [number]
        while self.parents[path[-1]] >= 0:
            path.append(self.parents[path[-1]])
        return path[::-1]

    def run_through(self, path: Sequence[int]) -> list[Step]:
        """Return a run of the model whose states fold, one by one, to those numbered in `path`."""
        first = next(s for s in self._initial() if self._form(s) == self.states[path[0]])
        steps = [Step(None, first)]
        for number in path[1:]:
            steps.append(self.step_to(steps[-1].state, number))
        return steps

    def step_to(self, state: Any, number: int, fairness: int | None = None) -> Step:
        """Return the first step from `state` to one that folds to state `number`.

        With `fairness`, a class as `Graph.classes` numbers it, only a step of that class.
        """
        wanted = self.states[number]
        for event, after in self.successors(state):
            if self._form(after) == wanted and (
                fairness is None
                or (self.graph is not None and self._class_of(self.graph, event) == fairness)
            ):
                return Step(event, after)
        raise self._not_a_symmetry(state)

    def _class_of(self, graph: Graph, event: Any) -> int:
        return graph.class_number(self._fairness(event))

    def _form(self, state: Any) -> Any:
        if self._canonical is None:
            return state
        try:
            return self._canonical(state)
        except Exception as error:
            raise self._raised(f"canonical of {state!r}", error) from error

    def _not_a_symmetry(self, state: Any) -> ModelError:
        return ModelError(
            f"model {self.model.name!r}: canonical folds {state!r} together with a state that "
            "has other successors; check it without reductions"
        )


def _of_states(prop: Property) -> tuple[Callable[..., bool], ...]:
    """Return the predicates of a property that are about one state."""
    if prop.kind in ("step", "witness"):
        return ()
    return (prop.predicate,) if prop.trigger is None else (prop.predicate, prop.trigger)


def _one_class(event: Any) -> str:
    return "any event"
