"""Every property of a packed model: the fast search, then liveness by one sweep over the graph.

The sweep takes states away that nothing left leads to, whole sets at a time.
If none is left, the graph has no cycle: then all that liveness can fail on is
where runs end, and the longest paths come out on the way. If a cycle or a bad
end is found, the plain checker is asked, which knows fairness and can show it.
Steps are worked out again rather than stored.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from batchproof.spec.checker import Question, Report, Verdict, check, in_turn, safety_verdict
from batchproof.spec.fast_search import FastSearch, States, not_of_the_view
from batchproof.spec.packed import PackedModel
from batchproof.spec.property import Property
from batchproof.spec.search import DEADLOCK, Limits, Progress, decide

Numbers = NDArray[np.int64]
"""Places of states in the sorted array of all states."""


@dataclass
class Obligation:
    """The obligation of one liveness property during the sweep."""

    open: NDArray[np.bool_]
    """Per state, whether the obligation is open: the trigger held, the predicate not since."""
    longest: NDArray[np.int32]
    """Per state, the most fair steps on an open path that leads there."""
    worst: int = 0
    """The most fair steps on an open path and out of it."""


def check_packed(
    model: PackedModel,
    properties: Sequence[Property] = (),
    *,
    recover: Sequence[Property] = (),
    fair: bool = True,
    limits: Limits | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Decide what `checker.check` decides without reductions, and with the same verdicts.

    Raises:
        ModelError, PropertyError: as `checker.check`, and if a property cannot
            be decided from the view.

    """
    start = time.perf_counter()
    search = FastSearch(model, properties, limits=limits, progress=progress).run()
    seconds = time.perf_counter() - start
    verdicts = [
        safety_verdict(search, prop, seconds)
        for prop in (DEADLOCK, *properties)
        if prop.kind != "liveness"
    ]
    liveness = [prop for prop in properties if prop.kind == "liveness"]
    runs = _Runs(search, liveness, fair, limits)
    questions: list[Question] = [(prop, partial(runs.liveness_verdict, prop)) for prop in liveness]
    questions += [(prop, partial(runs.recovery_verdict, prop)) for prop in recover]
    on_runs, stopped = in_turn(questions, search, start, limits)
    return Report(
        model=model.plain.name,
        states=search.states,
        transitions=search.transitions,
        depth=search.depth,
        seconds=time.perf_counter() - start,
        stopped=stopped,
        verdicts=(*verdicts, *on_runs),
    )


@dataclass
class _Runs:
    """What is asked of the runs of a searched model; the sweep is made once, when first needed."""

    search: FastSearch
    liveness: Sequence[Property]
    fair: bool
    limits: Limits | None

    @cached_property
    def states(self) -> States:
        """All states, sorted."""
        return np.sort(np.concatenate(self.search.levels))

    @cached_property
    def obligations(self) -> dict[str, Obligation | None]:
        """Where each liveness property is open."""
        return {prop.name: _obligation(self.search, prop, self.states) for prop in self.liveness}

    @cached_property
    def ends(self) -> "Ends | None":
        """Where runs end; None if some do not."""
        known = [obligation for obligation in self.obligations.values() if obligation is not None]
        return _sweep(self.search, self.states, known, fair=self.fair)

    def liveness_verdict(self, prop: Property) -> Verdict:
        """Decide "leads to"."""
        start = time.perf_counter()
        if not self.search.complete:
            return Verdict(prop, "incomplete", self.search.depth, 0.0)
        obligation = self.obligations[prop.name]
        if self.ends is None or obligation is None or np.any(obligation.open & self.ends.runs):
            return self._ask_plain(prop, liveness=(prop,))
        note = f"within {obligation.worst} fair steps"
        return self._holds(prop, start, note)

    def recovery_verdict(self, prop: Property) -> Verdict:
        """Decide whether the predicate remains reachable: it does if every run ends in it."""
        start = time.perf_counter()
        if not self.search.complete:
            return Verdict(prop, "incomplete", self.search.depth, 0.0)
        unpack = self.search.model.unpack
        if self.ends is None or not all(
            decide(prop, prop.predicate, unpack(packed))
            for packed in self.states[self.ends.dead].tolist()
        ):
            return self._ask_plain(prop, recover=(prop,))
        return self._holds(prop, start, "can always be reached")

    def _holds(self, prop: Property, start: float, note: str) -> Verdict:
        seconds = time.perf_counter() - start
        return Verdict(prop, "holds", self.search.depth, seconds, note=note)

    def _ask_plain(
        self, prop: Property, liveness: Sequence[Property] = (), recover: Sequence[Property] = ()
    ) -> Verdict:
        plain = self.search.model.plain
        report = check(
            plain,
            liveness,
            recover=recover,
            reduce=False,
            fair=self.fair,
            deadlock=False,
            limits=self.limits,
        )
        return report[prop.name]


def _obligation(search: FastSearch, prop: Property, states: States) -> Obligation | None:
    """Return where the obligation is open, from the predicates asked once per view.

    None if it may be open where neither predicate nor trigger holds: whether
    it is depends on the way there, which the sweep does not follow.

    Raises:
        PropertyError: a predicate looks at more than the view.

    """
    is_open = np.zeros(len(states), dtype=np.bool_)
    for first, last, _ in search.runs(states):
        answers = [
            (
                decide(prop, prop.predicate, state),
                prop.trigger is None or decide(prop, prop.trigger, state),
            )
            for state in (search.model.unpack(int(states[at])) for at in (first, last - 1))
        ]
        if answers[0] != answers[1]:
            raise not_of_the_view(prop)
        if answers[0] == (False, False):
            return None
        is_open[first:last] = not answers[0][0]
    return Obligation(is_open, np.zeros(len(states), dtype=np.int32))


@dataclass(frozen=True)
class Ends:
    """Where runs end, per state."""

    dead: NDArray[np.bool_]
    """Nothing is possible."""
    runs: NDArray[np.bool_]
    """A fair run may end: no fair step is possible."""


def _sweep(
    search: FastSearch, states: States, obligations: Sequence[Obligation], *, fair: bool
) -> Ends | None:
    """Take all states away in topological order; return where runs end, None if there is a cycle.

    On the way, work out the longest open paths of the obligations.
    """
    dead = np.ones(len(states), dtype=np.bool_)
    unfair = np.ones(len(states), dtype=np.bool_)
    incoming = np.zeros(len(states), dtype=np.int32)
    for step in search.steps(states):
        possible = True if step.possible is None else step.possible
        dead[step.where] &= ~np.asarray(possible)
        if search.is_fair(step) or not fair:
            unfair[step.where] &= ~np.asarray(possible)
        np.add.at(incoming, np.searchsorted(states, step.after), 1)
    left = len(states)
    ready = np.flatnonzero(incoming == 0)
    while len(ready):
        left -= len(ready)
        freed: list[Numbers] = []
        for step in search.steps(states[ready]):
            before = ready[step.where]
            before = before if step.possible is None else before[step.possible]
            after = np.searchsorted(states, step.after)
            weight = int(search.is_fair(step))
            for obligation in obligations:
                _lengthen(obligation, before, after, weight)
            np.subtract.at(incoming, after, 1)
            freed.append(after[incoming[after] == 0])
        ready = np.unique(np.concatenate(freed)) if freed else ready[:0]
    return Ends(dead, unfair) if not left else None


def _lengthen(obligation: Obligation, before: Numbers, after: Numbers, weight: int) -> None:
    """Carry the longest open paths over some steps, whose sources' are final."""
    from_open = obligation.open[before]
    lengths = obligation.longest[before[from_open]] + np.int32(weight)
    if len(lengths):
        obligation.worst = max(obligation.worst, int(lengths.max()))
        np.maximum.at(obligation.longest, after[from_open], lengths)
