"""`mini-batch`: pinned counts, its reductions, its packed form, and faults that each must catch."""

from collections import Counter
from dataclasses import dataclass, replace
from math import factorial, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec.toys import Die

from batchproof.spec.checker import DEADLOCK, Limits, ModelError, PropertyError, check
from batchproof.spec.fast_check import check_packed
from batchproof.spec.fast_search import FastSearch
from batchproof.spec.machine import CheckError
from batchproof.spec.mini_batch import DONE, NEW, MiniBatch, Request, Size, State, Submit, Tick
from batchproof.spec.mini_batch_family import (
    BOUNDS,
    CAN_ALL_END,
    MODEL_FAMILY,
    PROPERTIES,
    SYMMETRIC_STATES,
    properties_of,
)
from batchproof.spec.mini_batch_packed import PackedMiniBatch
from batchproof.spec.packed import Move, successors
from batchproof.spec.property import Property
from batchproof.spec.reduction import verify
from batchproof.spec.search import Search

# TLC, SPIN, stateright and rumur agree on these (issue "mini-batch"); `test_spin.py` asks SPIN.
FULL = {"C1": 1_040, "C2": 157_885, "C3": 1_680_451, "C4": 11_209_861}
SYMMETRIC = {"C1": 200, "C2": 2_071, "C3": 4_787, "C4": 7_242}
FOLDED_30 = 10_739


def claims(name):
    return MODEL_FAMILY.claims(BOUNDS[name], None)


def test_published_counts_are_the_familys():
    assert {name: bound.states for name, bound in BOUNDS.items() if bound.states} == FULL
    assert SYMMETRIC_STATES == SYMMETRIC
    assert BOUNDS["R30"].folded_states == FOLDED_30


def test_full_count_by_the_plain_search():
    assert len(Search(MiniBatch(BOUNDS["C1"].parameters, "none")).run().states) == FULL["C1"]


@pytest.mark.parametrize("name", SYMMETRIC)
def test_count_up_to_symmetry(name):
    model = MiniBatch(BOUNDS[name].parameters, "symmetry")
    search = Search(model).run()
    assert len(search.states) == SYMMETRIC[name]
    assert sum(orbit(state) for state in search.states) == FULL[name]


def orbit(state: State) -> int:
    """Return how many ways there are to give the requests of a folded state their names."""
    alike = Counter(r for r in state.requests if r.status in (NEW, DONE))
    return factorial(len(state.requests)) // prod(map(factorial, alike.values()))


@pytest.mark.parametrize("name", BOUNDS)
def test_everything_holds_with_reductions(name):
    bound = BOUNDS[name]
    report = check(MODEL_FAMILY.build(bound, None), claims(name), recover=(CAN_ALL_END,))
    assert report.outcome == "holds"
    assert report.states == bound.folded_states


@pytest.mark.parametrize("reduction", ["symmetry", "symmetry+finished"])
@pytest.mark.parametrize(
    "size",
    [
        BOUNDS["C1"].parameters,
        Size(requests=4, cap=8, budget=2, max_batch=2),
        Size(requests=3, cap=16, budget=5, max_batch=3, prompt=3, max_tokens=3, chunk=4),
    ],
    ids=repr,
)
def test_reductions_are_right_state_by_state(size, reduction):
    model = MiniBatch(size, reduction)
    folding = verify(model, (*PROPERTIES, *properties_of(size), CAN_ALL_END))
    assert folding.full == len(Search(MiniBatch(size, "none")).run().states)
    if reduction == "symmetry":
        assert all(size == orbit(form) for form, size in folding.class_sizes.items())


def test_forgetting_how_far_a_running_request_is_would_be_noticed():
    @dataclass(frozen=True)
    class Forgetful(MiniBatch):
        def canonical(self, state):
            requests = (r._replace(generated=min(r.generated, 1)) for r in state.requests)
            return super().canonical(state._replace(requests=tuple(requests)))

    with pytest.raises(ModelError, match="differ in behavior"):
        verify(Forgetful(BOUNDS["C1"].parameters))


# The packed form, held to the plain search

small_sizes = st.builds(
    Size,
    requests=st.integers(1, 3),
    cap=st.integers(4, 12),
    budget=st.integers(1, 6),
    max_batch=st.integers(1, 3),
    prompt=st.integers(1, 4),
    max_tokens=st.integers(1, 3),
    block=st.integers(1, 3),
    chunk=st.integers(1, 3),
)


def test_packed_moves_are_the_plain_models():
    model = PackedMiniBatch(BOUNDS["C1"].parameters)
    plain = Search(model.plain).run()
    seen = dict.fromkeys(model.initial())
    for packed in (todo := list(seen)):
        after = list(successors(model, packed))
        state = model.unpack(packed)
        assert {model.unpack(p) for p in after} == {s for _, s in model.plain.successors(state)}
        for new in after:
            if new not in seen:
                seen[new] = None
                todo.append(new)
    assert {model.unpack(p) for p in seen} == set(plain.states)
    assert len(seen) == len(plain.states)


@settings(max_examples=30)
@given(small_sizes)
def test_fast_search_finds_what_the_plain_search_finds_level_by_level(size):
    plain = Search(MiniBatch(size, "none")).run()
    fast = FastSearch(PackedMiniBatch(size)).run()
    ends = [*plain.levels[1:], len(plain.states)]
    by_level = [set(plain.states[a:b]) for a, b in zip(plain.levels, ends, strict=True)]
    unpack = fast.model.unpack
    assert [{unpack(p) for p in level.tolist()} for level in fast.levels] == by_level
    assert fast.states == len(plain.states)
    assert (DEADLOCK.name in fast.found) == (DEADLOCK.name in plain.found)


@settings(max_examples=30)
@given(small_sizes)
def test_fast_check_says_what_the_plain_check_says(size):
    properties = (*PROPERTIES, *properties_of(size))
    plain = check(MiniBatch(size, "none"), properties, recover=(CAN_ALL_END,))
    fast = check_packed(PackedMiniBatch(size), properties, recover=(CAN_ALL_END,))
    assert fast.states == plain.states
    for verdict in plain.verdicts:
        same = fast[verdict.prop.name]
        assert (same.outcome, same.depth, same.note) == (
            verdict.outcome,
            verdict.depth,
            verdict.note,
        )


@pytest.mark.parametrize("name", ["C2", "C3"])
def test_full_count_by_the_fast_search(name):
    search = FastSearch(PackedMiniBatch(BOUNDS[name].parameters), claims(name)).run()
    assert search.states == FULL[name]
    assert search.nbytes <= 100 * search.states


def test_everything_holds_without_reductions():
    report = check_packed(
        PackedMiniBatch(BOUNDS["C2"].parameters), claims("C2"), recover=(CAN_ALL_END,)
    )
    assert report.outcome == "holds"
    assert report["all-end"].note == "within 21 fair steps"


def test_visited_arrays_are_sorted_and_distinct():
    search = FastSearch(PackedMiniBatch(BOUNDS["C1"].parameters)).run()
    everything = np.concatenate(search.levels)
    assert len(np.unique(everything)) == len(everything)
    assert all(np.all(level[1:] > level[:-1]) for level in search.levels)


def test_chunks_of_successors_change_nothing(monkeypatch):
    monkeypatch.setattr("batchproof.spec.fast_search.CHUNK", 10)
    search = FastSearch(PackedMiniBatch(BOUNDS["C1"].parameters), claims("C1")).run()
    assert search.states == FULL["C1"]
    assert sorted(search.found) == ["can-chunk", "can-end-at-once", "can-wait"]


@pytest.mark.parametrize(
    "limits", [Limits(max_states=1000), Limits(max_seconds=0), Limits(max_memory_mb=1)], ids=repr
)
def test_fast_search_gives_up_honestly(limits):
    limits = replace(limits, memory_mb=lambda: 2.0)
    report = check_packed(
        PackedMiniBatch(BOUNDS["C2"].parameters),
        claims("C2"),
        recover=(CAN_ALL_END,),
        limits=limits,
    )
    assert report.outcome == "incomplete"
    assert report.stopped.startswith("limit of")
    assert {v.outcome for v in report.verdicts if v.trace is None} == {"incomplete"}


def test_limit_that_is_not_passed_does_not_stop_the_fast_search():
    limits = Limits(max_states=FULL["C1"])
    assert check_packed(PackedMiniBatch(BOUNDS["C1"].parameters), limits=limits).outcome == "holds"


def test_fast_search_can_be_interrupted():
    def interrupted(state):
        if len(state.running) == 2:
            raise KeyboardInterrupt
        return True

    prop = Property("calm", "never interrupted", "test", "invariant", interrupted)
    report = check_packed(PackedMiniBatch(BOUNDS["C1"].parameters), [prop])
    assert report.stopped == "interrupted"
    assert report.outcome == "incomplete"
    assert report.states > 4


def test_states_that_do_not_fit_are_refused():
    with pytest.raises(ModelError, match="more than 63 bits"):
        check_packed(PackedMiniBatch(BOUNDS["R30"].parameters))


@pytest.mark.parametrize(("kind", "first"), [("invariant", 1), ("liveness", 0)])
def test_property_that_looks_at_more_than_the_view_is_refused(kind, first):
    names = Property("names", "another first", "test", kind, lambda s: s.running[:1] != (first,))
    with pytest.raises(PropertyError, match="'names' looks at more than the packed model's view"):
        check_packed(PackedMiniBatch(BOUNDS["C1"].parameters), [names])


def test_an_obligation_that_ends_with_its_trigger_is_left_to_the_plain_search():
    empty = Property(
        "idle-again",
        "who runs stops",
        "test",
        "liveness",
        lambda state: not state.running,
        trigger=lambda state: len(state.running) > 1,
    )
    packed = check_packed(PackedMiniBatch(BOUNDS["C1"].parameters), [empty])
    plain = check(MiniBatch(BOUNDS["C1"].parameters), [empty])
    assert packed["idle-again"].outcome == plain["idle-again"].outcome == "holds"
    assert packed["idle-again"].note == plain["idle-again"].note


class PackedDie:
    """A die in integers: the state is the face, all of it view; `throws` are its moves."""

    rest_bits = 0

    def __init__(self, *throws: int) -> None:
        self.plain, self._throws = Die(), throws

    def initial(self):
        return [0]

    def moves(self, view):
        return [Move(0, ())] if view else [Move(face, ()) for face in self._throws]

    def unpack(self, packed):
        return packed


def test_packed_model_that_leaves_the_plain_one_is_refused():
    small = Property("small", "no step shows a six", "test", "step", lambda s, e, t: t != 6)
    report = check_packed(PackedDie(1, 2, 3, 4, 5, 6), [small])
    assert report["small"].outcome == "violated"
    with pytest.raises(ModelError, match="the packed step 0 -> 7 is none of the plain model"):
        check_packed(PackedDie(7), [small])


def test_packed_model_whose_moves_do_not_fit_is_refused():
    with pytest.raises(ModelError, match="more than 63 bits"):
        check_packed(PackedDie(1 << 63))


def test_fairness_of_ticks_is_needed_by_nothing_here():
    """Submissions run out, so that even an unfair run must tick."""
    for fair in (True, False):
        report = check(MODEL_FAMILY.build(BOUNDS["C1"], None), claims("C1"), fair=fair)
        assert report.outcome == "holds"


# Faults: each is caught by the property named, by a shortest run, whatever the search


@dataclass(frozen=True)
class Faulty(MiniBatch):
    """The model with one step gone wrong."""

    fault: str = ""
    reduction: str = "none"

    def successors(self, state):
        for event, after in super().successors(state):
            if isinstance(event, Tick):
                yield FAULTS[self.fault](self.size, event, state, after)
            else:
                yield event, after


def over_cap(size, event, state, after):
    if len(after.running) == 1 and after.queue:
        return event, admit_first(after)
    return event, after


def admit_first(state):
    i, *rest = state.queue
    requests = list(state.requests)
    requests[i] = Request(2, 1, 0)
    return State(tuple(requests), tuple(rest), (*state.running, i))


def over_budget(size, event, state, after):
    fed = tuple((i, tokens + (size.budget if tokens == 2 else 0)) for i, tokens in event.fed)
    return Tick(fed, event.eos), after


def queue_jumped(size, event, state, after):
    return event, after._replace(running=after.running[::-1])


def forgotten(size, event, state, after):
    return event, after._replace(running=after.running[:1])


def revived(size, event, state, after):
    requests = list(after.requests)
    for i in event.eos:
        requests[i] = Request(NEW, 0, 0)
    return event, after._replace(requests=tuple(requests))


def stuck(size, event, state, after):
    return event, state if len(state.running) == 2 else after


FAULTS = {f.__name__: f for f in (over_cap, over_budget, queue_jumped, forgotten, revived, stuck)}


@dataclass
class FaultyPacked(PackedMiniBatch):
    fault: str = ""

    def __post_init__(self):
        super().__post_init__()
        self.plain = Faulty(self.size, fault=self.fault)


@pytest.mark.parametrize(
    ("fault", "name", "length"),
    [
        ("over_cap", "memory-within-cap", 3),
        ("over_budget", "tokens-within-budget", 2),
        ("queue_jumped", "first-come-first-served", 3),
        ("forgotten", "lists-match", 3),
        ("revived", "life-is-legal", 3),
        ("stuck", "all-end", 4),
    ],
)
def test_fault_is_caught(fault, name, length):
    size = Size(requests=3, cap=8 if fault != "over_cap" else 4, budget=4, max_batch=2)
    properties = (*PROPERTIES, *properties_of(size))
    reports = [check(Faulty(size, fault=fault), properties, recover=(CAN_ALL_END,))]
    if fault not in ("forgotten", "revived"):  # these lead outside what the packed form can say
        reports.append(check(Faulty(size, fault=fault, reduction="symmetry"), properties))
        reports.append(check_packed(FaultyPacked(size, fault=fault), properties))
    for report in reports:
        verdict = report[name]
        assert verdict.outcome == "violated"
        assert verdict.trace.length == length
        for before, after in zip(verdict.trace.steps, verdict.trace.steps[1:], strict=False):
            steps = Faulty(size, fault=fault).successors(before.state)
            assert (after.event, after.state) in list(steps)


@dataclass(frozen=True)
class Halting(MiniBatch):
    """The model without ticks while two requests run."""

    reduction: str = "none"

    def successors(self, state):
        for event, after in super().successors(state):
            if isinstance(event, Submit) or len(state.running) < 2:
                yield event, after


@dataclass
class HaltingPacked(PackedMiniBatch):
    def __post_init__(self):
        super().__post_init__()
        self.plain = Halting(self.size)


def test_fast_check_finds_where_runs_end():
    size = BOUNDS["C1"].parameters
    plain = check(Halting(size), PROPERTIES, recover=(CAN_ALL_END,))
    fast = check_packed(HaltingPacked(size), PROPERTIES, recover=(CAN_ALL_END,))
    for name, length in (("no-deadlock", 4), ("all-end", 3), ("all-can-end", 2)):
        for report in (plain, fast):
            assert (report[name].outcome, report[name].trace.length) == ("violated", length)


def test_errors_have_one_base():
    assert issubclass(ModelError, CheckError)
    assert issubclass(PropertyError, CheckError)
