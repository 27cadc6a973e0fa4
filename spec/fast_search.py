"""The fast search: the full state space of a packed model, whole frontiers at a time, in numpy.

States are 64-bit integers in sorted arrays. A level of the breadth-first
search is cut into runs of equal view; the moves of the view are applied to a
whole run at once. What has been visited is kept in a few sorted arrays, each
much longer than the next, so that looking up costs a few binary searches and
adding costs little merging. No parents are kept: the levels are, and a
shortest trace is walked back through them.

Predicates are not asked of every state, but of every view, and step predicates
of every move of a view. That decides a property which looks at the view alone.
That it does is spot-checked, on a few states when a view is first met and on
one in every later level; a property that is found not to is refused.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchproof.spec.counterexample import Step, Trace
from batchproof.spec.machine import Ending, Fair, ModelError, PropertyError
from batchproof.spec.packed import Move, PackedModel
from batchproof.spec.property import Property
from batchproof.spec.search import DEADLOCK, Limits, Progress, decide

States = NDArray[np.int64]
"""Packed states; sorted and distinct except where said."""
PlainStep = tuple[Any, Any, Any]
"""State, event, next state, in the plain model's terms."""

CHUNK: Final = 1 << 20
"""Successors are sorted and made distinct whenever so many are at hand; bounds memory."""
SPOTS: Final = 8
"""Invariants are asked of so many states of a view when it is first met."""
STEP_SPOTS: Final = 2
"""Step predicates are asked of so many steps of a move when it is first met."""
_BITS: Final = 63
MERGE_RATIO: Final = 4
"""A visited array is merged with the next as long as it is less than so many times longer."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What decided a property: a packed state, and the plain step out of it if it was a step."""

    level: int
    packed: int
    step: tuple[Any, Any] | None = None


class Steps(NamedTuple):
    """The steps of one move from the states at `first` to `last`, which have one view."""

    first: int
    last: int
    view: int
    number: int
    """Which of the view's moves it is."""
    possible: NDArray[np.bool_] | None
    """From which of the states the move is possible; None if from all."""
    before: States
    after: States
    """Neither sorted nor distinct; `after[i]` comes from `before[i]`."""

    @property
    def where(self) -> slice:
        """Where the states are in the array that was given."""
        return slice(self.first, self.last)


class FastSearch:
    """One breadth-first search over a packed model. Make it, `run` it once, read it."""

    def __init__(
        self,
        model: PackedModel,
        properties: Sequence[Property] = (),
        *,
        limits: Limits | None = None,
        progress: Callable[[Progress], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self.levels: list[States] = []
        """The states of each depth."""
        self.states = 0
        """How many distinct states were found."""
        self.transitions = 0
        self.found: dict[str, Evidence] = {}
        self.stopped: str | None = None
        if model.rest_bits >= _BITS:
            raise _too_wide(model)
        self._properties = tuple(properties)
        self._limits = limits or Limits()
        self._progress = progress
        self._clock = clock
        self._visited: list[States] = []
        self._moves: dict[int, tuple[Move, ...]] = {}
        self._answers: dict[int, list[bool]] = {}
        """View -> what the invariants say."""
        self._fair: dict[tuple[int, int], bool] = {}
        """(view, move) -> whether its class is weakly fair; a key says that it was decided."""

    @property
    def complete(self) -> bool:
        """Whether every reachable state was expanded."""
        return self.stopped is None

    @property
    def depth(self) -> int:
        """The depth of the deepest state found, in events."""
        return max(len(self.levels) - 1, 0)

    @property
    def nbytes(self) -> int:
        """Bytes of the states that are kept: levels, and visited arrays where they are copies."""
        kept = {id(array): array.nbytes for array in (*self.levels, *self._visited)}
        return sum(kept.values())

    def run(self) -> "FastSearch":
        """Search until all is covered, a limit is reached, or Ctrl-C; return self.

        Raises:
            ModelError: the moves of a view lead outside 63 bits.
            PropertyError: a predicate raised, or looks at more than the view.

        """
        self._start = self._clock()
        frontier = np.unique(np.array(self.model.initial(), dtype=np.int64))
        try:
            while len(frontier) and self.stopped is None:
                self.levels.append(frontier)
                self.states += len(frontier)
                self._remember(frontier)
                self._decide_states(frontier)
                frontier = self._unvisited(self._next(frontier))
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        return self

    def trace_of(self, name: str) -> Trace | None:
        """Return a shortest run to where a property was first decided, in plain states.

        None if it was not: never broken or, a witness, never seen.
        """
        evidence = self.found.get(name)
        if evidence is None:
            return None
        path = [evidence.packed]
        for level in reversed(self.levels[: evidence.level]):
            path.append(self._predecessor(level, path[-1]))
        states = [self.model.unpack(packed) for packed in reversed(path)]
        steps = [Step(None, states[0])]
        for before, after in pairwise(states):
            steps.append(Step(self._events(before, after)[0], after))
        if evidence.step is not None:
            steps.append(Step(*evidence.step))
        return Trace(tuple(steps))

    def _next(self, frontier: States) -> States:
        """Return the distinct successors of a level."""
        done: list[States] = []
        pending: list[States] = []
        size = 0
        has_successor = np.zeros(len(frontier), dtype=np.bool_)
        for step in self.steps(frontier):
            if size >= CHUNK or not step.first:
                done.append(_distinct(pending))
                pending, size = [], 0
                self.stopped = self._over_limit(len(frontier) - step.first)
                if self.stopped is not None:
                    return _distinct(())
            has_successor[step.where] |= True if step.possible is None else step.possible
            if (step.view, step.number) not in self._fair:
                self._decide_step(step)
            pending.append(step.after)
            size += len(step.after)
            self.transitions += len(step.after)
        self._note_deadlock(frontier[~has_successor])
        return _distinct([*done, *pending])

    def steps(self, states: States) -> Iterator["Steps"]:
        """Yield the steps of sorted states: for each run of equal view, those of each move."""
        for first, last, view in self.runs(states):
            for number, move in enumerate(self._moves[view]):
                run = states[first:last]
                possible, after = self._apply(move, run)
                if len(after):
                    before = run if possible is None else run[possible]
                    yield Steps(first, last, view, number, possible, before, after)

    def runs(self, states: States) -> Iterator[tuple[int, int, int]]:
        """Yield the runs of equal view as (first, past the last, view)."""
        views = states >> self.model.rest_bits
        firsts = [0, *(np.flatnonzero(views[1:] != views[:-1]) + 1).tolist(), len(states)]
        for first, last in pairwise(firsts):
            view = int(views[first])
            if view not in self._moves:
                self._moves[view] = tuple(self.model.moves(view))
                if any(move.base >> _BITS for move in self._moves[view]):
                    raise _too_wide(self.model)
            yield first, last, view

    def _apply(self, move: Move, run: States) -> tuple[NDArray[np.bool_] | None, States]:
        """Return where in a run the move is possible (None: everywhere), and what it leads to."""
        all_rest = (1 << self.model.rest_bits) - 1
        rest = run & all_rest
        sources = None
        if move.guard is not None:
            sources = (rest >> move.guard.shift) & move.guard.mask == move.guard.value
            rest = rest[sources]
        after = np.full(len(rest), move.base, dtype=np.int64)
        for field in move.fields:
            value = (rest >> field.shift) & field.mask if field.mask != all_rest else rest
            if field.table is not None:
                after += np.array(field.table, dtype=np.int64)[value]
            else:
                after += value << field.to if field.to else value
        return sources, after

    def _remember(self, level: States) -> None:
        self._visited.append(level)
        while len(self._visited) > 1 and len(self._visited[-2]) < MERGE_RATIO * len(
            self._visited[-1]
        ):
            merged = np.concatenate((self._visited.pop(), self._visited.pop()))
            merged.sort(kind="stable")
            self._visited.append(merged)

    def _unvisited(self, states: States) -> States:
        for visited in self._visited:
            at = np.searchsorted(visited, states)
            at[at == len(visited)] = 0
            states = states[visited[at] != states]
        return states

    def _predecessor(self, level: States, packed: int) -> int:
        """Return the first state of a level that leads to `packed`."""
        for step in self.steps(level):
            hits = np.flatnonzero(step.after == packed)
            if len(hits):
                return int(step.before[hits[0]])
        raise AssertionError(f"{packed} comes from none")  # pragma: no cover - it was reached

    def _decide_states(self, level: States) -> None:
        invariants = [prop for prop in self._properties if prop.kind == "invariant"]
        for first, last, view in self.runs(level):
            known = self._answers.get(view)
            for at in _spread(first, last, 1 if known else SPOTS):
                state = self.model.unpack(int(level[at]))
                answers = [decide(prop, prop.predicate, state) for prop in invariants]
                known = self._answers.setdefault(view, answers)
                _compare(invariants, answers, known)
            for prop, holds in zip(invariants, known or (), strict=True):
                if not holds:
                    evidence = Evidence(self.depth, int(level[first]))
                    self.found.setdefault(prop.name, evidence)

    def _decide_step(self, step: Steps) -> None:
        """Decide the step predicates of a move that is met for the first time."""
        props = [prop for prop in self._properties if prop.kind in ("step", "witness")]
        first = self._plain_steps(step, 0)
        self._fair[step.view, step.number] = any(self._is_fair(event) for _, event, _ in first)
        hits = [_deciding(prop, first) for prop in props]
        for at in _spread(1, len(step.after), STEP_SPOTS - 1) if props else ():
            others = self._plain_steps(step, at)
            _compare(
                props,
                [_deciding(p, others) is not None for p in props],
                [hit is not None for hit in hits],
            )
        for prop, hit in zip(props, hits, strict=True):
            if hit is not None:
                evidence = Evidence(self.depth, int(step.before[0]), hit[1:])
                self.found.setdefault(prop.name, evidence)

    def is_fair(self, step: Steps) -> bool:
        """Say whether steps, which the search has taken, are of a weakly fair class."""
        return self._fair[step.view, step.number]

    def _is_fair(self, event: Any) -> bool:
        plain = self.model.plain
        return not isinstance(plain, Fair) or plain.fairness(event) is not None

    def _plain_steps(self, step: Steps, at: int) -> list[PlainStep]:
        source = self.model.unpack(int(step.before[at]))
        target = self.model.unpack(int(step.after[at]))
        return [(source, event, target) for event in self._events(source, target)]

    def _events(self, before: Any, after: Any) -> list[Any]:
        events = [e for e, state in self.model.plain.successors(before) if state == after]
        if not events:
            raise ModelError(
                f"model {self.model.plain.name!r}: the packed step {before!r} -> {after!r} "
                "is none of the plain model"
            )
        return events

    def _note_deadlock(self, ends: States) -> None:
        plain = self.model.plain
        for packed in ends.tolist():
            if not isinstance(plain, Ending) or not plain.may_end(self.model.unpack(packed)):
                self.found.setdefault(DEADLOCK.name, Evidence(self.depth, packed))
                return

    def _over_limit(self, waiting: int) -> str | None:
        seconds = self._clock() - self._start
        if self._progress is not None:
            self._progress(Progress(self.states, self.transitions, waiting, self.depth, seconds))
        return self._limits.reached(self.states, seconds)


def _spread(first: int, last: int, most: int) -> list[int]:
    """Return up to `most` places from `first` to before `last`, evenly spread."""
    count = min(most, last - first)
    if count < 2:
        return [(first + last) // 2] * count
    return [first + i * (last - first - 1) // (count - 1) for i in range(count)]


def _deciding(prop: Property, steps: Sequence[PlainStep]) -> PlainStep | None:
    """Return the first of some steps that breaks a step property, or shows a witness."""
    wanted = prop.kind == "witness"
    return next((s for s in steps if decide(prop, prop.predicate, *s) == wanted), None)


def _compare(props: Sequence[Property], answers: Sequence[bool], known: Sequence[bool]) -> None:
    for prop, answer, other in zip(props, answers, known, strict=True):
        if answer != other:
            raise not_of_the_view(prop)


def _distinct(parts: Sequence[States]) -> States:
    """Return the distinct states of some arrays, sorted."""
    if not parts:
        return np.empty(0, dtype=np.int64)
    states = np.concatenate(parts)
    states.sort()
    keep = np.empty(len(states), dtype=np.bool_)
    keep[:1] = True
    np.not_equal(states[1:], states[:-1], out=keep[1:])
    return states[keep]


def not_of_the_view(prop: Property) -> PropertyError:
    """Return the error of a predicate that differs between two states of one view."""
    return PropertyError(
        f"property {prop.name!r} looks at more than the packed model's view: "
        "check it with the plain search"
    )


def _too_wide(model: PackedModel) -> ModelError:
    return ModelError(
        f"model {model.plain.name!r}: its packed states need more than {_BITS} bits at this "
        "bound; check it at a smaller one, or with reductions"
    )
