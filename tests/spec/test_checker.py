"""The plain search on toy models: pinned counts and order, verdicts, and whose fault it is."""

import pytest
from spec.toys import (
    CONSISTENT,
    Die,
    Drawn,
    Flaky,
    Increment,
    Philosophers,
    TwoPhaseCommit,
    counts_writes,
    eventually,
)

from batchproof.spec.checker import DEADLOCK, Limits, ModelError, PropertyError, check
from batchproof.spec.property import Property
from batchproof.spec.reduction import verify
from batchproof.spec.search import Progress, Search


def invariant(name, predicate):
    return Property(name, f"{name} is so", "toy", "invariant", predicate)


def step(name, predicate):
    return Property(name, f"{name} is so", "toy", "step", predicate)


def witness(name, predicate):
    return Property(name, f"{name} can be", "toy", "witness", predicate)


def events(trace):
    return [s.event for s in trace.steps[1:]]


# Counts


@pytest.mark.parametrize(
    ("model", "reduce", "states"),
    [
        (Die(), False, 7),
        (Die(20), False, 21),
        # stateright, examples/increment.rs and increment_lock.rs
        (Increment(locked=False), False, 13),
        (Increment(locked=False), True, 8),
        (Increment(locked=True), False, 17),
        (Increment(locked=True), True, 9),
        # TLA+ Examples, stateright examples/2pc.rs
        (TwoPhaseCommit(3), False, 288),
        (TwoPhaseCommit(5), False, 8832),
        # the companion Pell numbers; with one the other way round, the Pell numbers
        (Philosophers(2), False, 6),
        (Philosophers(3), False, 14),
        (Philosophers(4), False, 34),
        (Philosophers(5), False, 82),
        (Philosophers(2, one_other_way=True), False, 5),
        (Philosophers(3, one_other_way=True), False, 12),
        (Philosophers(4, one_other_way=True), False, 29),
        (Philosophers(5, one_other_way=True), False, 70),
    ],
    ids=repr,
)
def test_count_of_states(model, reduce, states):
    assert check(model, reduce=reduce).states == states


@pytest.mark.parametrize(
    "model",
    [Increment(locked=False), Increment(locked=True), TwoPhaseCommit(3), TwoPhaseCommit(4)],
    ids=repr,
)
def test_reduction_is_right_and_classes_add_up(model):
    properties = [CONSISTENT] if isinstance(model, TwoPhaseCommit) else []
    folding = verify(model, properties)
    assert folding.full == len(Search(model, reduce=False).run().states)
    assert folding.folded == len(Search(model).run().states) < folding.full


def test_visit_order_is_breadth_first_in_the_models_own_order():
    search = Search(Philosophers(3)).run()
    assert search.states == [
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (2, 0, 0),
        (1, 1, 0),
        (1, 0, 1),
        (0, 2, 0),
        (0, 1, 1),
        (0, 0, 2),
        (2, 0, 1),
        (1, 2, 0),
        (1, 1, 1),
        (0, 1, 2),
    ]
    assert list(search.levels) == [0, 1, 4, 10]
    assert [search.depth_of(n) for n in (0, 1, 3, 4, 9, 10, 13)] == [0, 1, 1, 2, 2, 3, 3]


def test_every_step_is_counted():
    report = check(Die())
    assert (report.states, report.transitions, report.depth) == (7, 12, 1)


def test_several_initial_states():
    class TwoStarts(Die):
        def initial(self):
            return [3, 5]

    search = Search(TwoStarts()).run()
    assert search.states[:3] == [3, 5, 0]
    assert len(search.states) == 7


# Verdicts


def test_race_is_found_shortest_and_the_lock_prevents_it():
    prop = counts_writes(locked=False)
    for reduce in (False, True):
        broken = check(Increment(locked=False), [prop], reduce=reduce)
        assert broken.outcome == "violated"
        trace = broken["counts-writes"].trace
        assert sorted(what for what, _ in events(trace)) == ["read", "read", "write", "write"]
        assert check(
            Increment(locked=True), [counts_writes(locked=True)], reduce=reduce
        ).outcome == ("holds")


def test_trace_under_symmetry_is_a_run_of_the_model():
    model = Increment(locked=False, threads=3)
    trace = check(model, [counts_writes(locked=False)])["counts-writes"].trace
    assert trace.steps[0].state in model.initial()
    for before, after in zip(trace.steps, trace.steps[1:], strict=False):
        assert (after.event, after.state) in list(model.successors(before.state))
    assert not counts_writes(locked=False).predicate(trace.steps[-1].state)


def test_deadlock_of_the_philosophers():
    report = check(Philosophers(4))
    verdict = report[DEADLOCK.name]
    assert verdict.outcome == report.outcome == "violated"
    assert events(verdict.trace) == [("take", 0), ("take", 1), ("take", 2), ("take", 3)]
    assert verdict.trace.steps[-1].state == (1, 1, 1, 1)
    assert check(Philosophers(4, one_other_way=True)).outcome == "holds"


def test_model_says_where_it_may_end():
    steps = {"a": "t>b"}
    assert check(Drawn(steps))[DEADLOCK.name].outcome == "violated"
    assert check(Drawn(steps, ends="b"))[DEADLOCK.name].outcome == "holds"
    assert check(Drawn(steps), deadlock=False).verdicts == ()


def test_step_property():
    report = check(Die(), [step("no-six", lambda before, event, after: after != 6)])
    trace = report["no-six"].trace
    assert [s.state for s in trace.steps] == [0, 6]


def test_step_property_sees_the_step_itself_not_its_canonical_form():
    def one_moves(before, event, after):
        changed = [i for i, t in enumerate(after.threads) if t != before.threads[i]]
        return changed == [event[1]]

    assert check(Increment(locked=True), [step("one-moves", one_moves)]).outcome == "holds"


def test_invariant_of_the_initial_state():
    report = check(Die(), [invariant("thrown", lambda state: state != 0)])
    assert report["thrown"].trace.length == 0


def test_witness_reached_and_not_reached():
    six = witness("six", lambda before, event, after: after == 6)
    seven = witness("seven", lambda before, event, after: after == 7)
    report = check(Die(), [six, seven])
    assert report["six"].outcome == "holds"
    assert [s.state for s in report["six"].trace.steps] == [0, 6]
    assert report["seven"].outcome == report.outcome == "violated"
    assert report["seven"].trace is None


def test_found_counterexample_is_not_overwritten_while_others_are_open():
    line = Drawn({"a": "t>b t>c", "b": "t>d", "c": "t>d", "d": "t>e", "e": "t>a"})
    early = invariant("early", lambda state: state not in "bde")
    late = invariant("late", lambda state: state != "e")
    never = invariant("never", lambda state: state != "z")
    report = check(line, [early, late, never])
    assert [s.state for s in report["early"].trace.steps] == ["a", "b"]
    assert [s.state for s in report["late"].trace.steps] == ["a", "b", "d", "e"]
    assert report["never"].outcome == "holds"
    assert report.states == 5


def test_found_step_is_not_overwritten_while_others_are_open():
    line = Drawn({"a": "t>b", "b": "t>c", "c": "t>a"})
    forward = step("forward", lambda before, event, after: after < before)
    never = step("never", lambda before, event, after: True)
    seen = witness("seen", lambda before, event, after: True)
    report = check(line, [forward, never, seen])
    assert [s.state for s in report["forward"].trace.steps] == ["a", "b"]
    assert [s.state for s in report["seen"].trace.steps] == ["a", "b"]


def test_deadlock_that_is_found_first_is_kept():
    model = Drawn({"a": "t>b t>c", "c": "t>d"})
    assert [s.state for s in check(model)[DEADLOCK.name].trace.steps] == ["a", "b"]


def test_step_that_broke_is_shown_where_several_lead_the_same_way():
    model = Drawn({"a": "e>b t>b", "b": "t>a"})
    not_t = step("not-t", lambda before, event, after: event != "t")
    assert events(check(model, [not_t])["not-t"].trace) == ["t"]


def test_no_verdict_of_that_name():
    with pytest.raises(KeyError, match="nothing"):
        check(Die())["nothing"]


# Limits


class Naturals:
    name = "naturals"

    def initial(self):
        return [0]

    def successors(self, state):
        return [("next", state + 1), ("over", state + 2)]


SMALL = invariant("small", lambda state: state < 10**9)
NOT_50 = invariant("not-50", lambda state: state != 50)
FAR = witness("far", lambda before, event, after: after == 10**9)


def test_limit_of_states_is_incomplete_never_holds():
    report = check(Naturals(), [SMALL, FAR, NOT_50], limits=Limits(max_states=1000))
    assert report["small"].outcome == report["far"].outcome == "incomplete"
    assert report["not-50"].outcome == report.outcome == "violated"
    assert report.stopped == "limit of 1,000 states reached"
    assert 1000 < report.states <= 1002


def test_limit_that_is_not_passed_does_not_stop():
    assert check(Die(), limits=Limits(max_states=7)).outcome == "holds"
    assert check(Die(), limits=Limits(max_states=6)).outcome == "incomplete"


def test_limit_of_time():
    report = check(Naturals(), [SMALL], limits=Limits(max_seconds=0.02))
    assert report.outcome == "incomplete"
    assert report.stopped == "limit of 0.02 seconds reached"


def test_limit_of_memory():
    used = iter(range(0, 1000, 3))
    limits = Limits(max_memory_mb=10, memory_mb=lambda: next(used))
    report = check(Naturals(), [SMALL], limits=limits)
    assert report.stopped == "limit of 10 MB reached (12 MB in use)"
    assert report.outcome == "incomplete"


def test_interrupt_reports_what_was_covered():
    def interrupted(state):
        if state == 77:
            raise KeyboardInterrupt
        return True

    report = check(Naturals(), [invariant("calm", interrupted), NOT_50])
    assert report.stopped == "interrupted"
    assert report["calm"].outcome == "incomplete"
    assert report["not-50"].outcome == "violated"
    assert report.states >= 77


def test_liveness_of_an_incomplete_search_is_incomplete():
    small = eventually("nowhere")
    report = check(Naturals(), [small], limits=Limits(max_states=100))
    assert report["eventually"].outcome == "incomplete"


def test_recovery_of_an_incomplete_search_is_incomplete():
    report = check(Naturals(), recover=[eventually("nowhere")], limits=Limits(max_states=100))
    assert report["eventually"].outcome == "incomplete"


def liveness(name, predicate):
    return Property(name, "", "toy", "liveness", predicate)


def test_interrupt_while_liveness_is_decided_keeps_what_is_known():
    def interrupted(state):
        raise KeyboardInterrupt

    claims = [liveness("first", interrupted), liveness("second", lambda s: True), SMALL]
    report = check(Die(), claims)
    assert report.stopped == "interrupted"
    assert report["small"].outcome == "holds"
    assert report["first"].outcome == report["second"].outcome == "incomplete"


def test_limit_that_is_passed_while_liveness_is_decided():
    used = [0.0]

    def greedy(state):
        used[0] = 100.0
        return True

    limits = Limits(max_memory_mb=10, memory_mb=lambda: used[0])
    claims = [liveness("first", greedy), liveness("second", lambda s: True)]
    report = check(Die(), claims, limits=limits)
    assert report["first"].outcome == "holds"
    assert report["second"].outcome == report.outcome == "incomplete"
    assert report.stopped == "limit of 10 MB reached (100 MB in use)"


def test_progress_is_told():
    told: list[Progress] = []
    check(Naturals(), limits=Limits(max_states=2000), progress=told.append)
    assert [p.states for p in told] == [1, 514, 1026, 1538, 2001]
    assert all(p.frontier > 0 and p.rate >= 0 for p in told)
    assert [p.depth for p in told] == [0, 256, 512, 768, 1000]


# Whose fault


def test_states_that_cannot_be_hashed():
    class Lists(Die):
        def successors(self, state):
            return [("step", [1])]

    with pytest.raises(ModelError, match=r"'die': state \[1\] cannot be hashed.*make states of"):
        check(Lists())


def test_successors_that_are_not_a_function_of_the_state():
    with pytest.raises(ModelError, match="'flaky': successors of 0 differ when asked again"):
        check(Flaky())


def test_initial_states_that_differ_or_are_none():
    answers = [[0], [1]]

    class Unsure(Die):
        def initial(self):
            return answers.pop()

    with pytest.raises(ModelError, match=r"initial\(\) differs"):
        check(Unsure())

    class Empty(Die):
        def initial(self):
            return []

    with pytest.raises(ModelError, match=r"initial\(\) gives no state"):
        check(Empty())


def test_initial_states_that_raise():
    class Broken(Die):
        def initial(self):
            return [1 // 0]

    with pytest.raises(ModelError, match=r"initial\(\) raised ZeroDivisionError"):
        check(Broken())


def test_successors_that_raise():
    class Broken(Die):
        def successors(self, state):
            return [("step", 1 // state)]

    with pytest.raises(ModelError, match="successors of 0 raised ZeroDivisionError"):
        check(Broken())


@pytest.mark.parametrize(
    "prop",
    [
        invariant("raises", lambda state: 1 // (state - 6)),
        step("raises", lambda before, event, after: 1 // (after - 6)),
        witness("raises", lambda before, event, after: 0 // (after - 6)),
        Property("raises", "", "toy", "liveness", lambda state: 1 // (state - 6) > 9),
    ],
    ids=lambda prop: prop.kind,
)
def test_property_that_raises_is_at_fault_with_the_state(prop):
    with pytest.raises(PropertyError, match=r"property 'raises' raised ZeroDivisionError.*6"):
        check(Die(), [prop])


def test_property_that_tells_folded_states_apart():
    first_leads = invariant("first-leads", lambda s: s.threads[0].at <= s.threads[1].at)
    with pytest.raises(PropertyError, match=r"first-leads.*folds together.*without reductions"):
        check(Increment(locked=False), [first_leads])
    report = check(Increment(locked=False), [first_leads], reduce=False)
    assert report["first-leads"].outcome == "violated"


def test_canonical_that_is_not_its_own():
    class Shifting(Die):
        def canonical(self, state):
            return state + 7

    with pytest.raises(ModelError, match="canonical is not idempotent on 7"):
        check(Shifting())


def test_canonical_that_raises():
    class Unsure(Die):
        def canonical(self, state):
            return 6 // state

    with pytest.raises(ModelError, match="'die': canonical of 0 raised ZeroDivisionError"):
        check(Unsure())


class Overfolded(Die):
    """Folds every face with every other, though only a six goes on to seven."""

    def successors(self, state):
        return [("win", 7)] if state == 6 else [*super().successors(state)] if state < 6 else []

    def canonical(self, state):
        return 6 if 0 < state < 6 else state


def test_canonical_that_folds_too_much_is_noticed():
    with pytest.raises(ModelError, match="1 and its canonical form 6 differ in behavior"):
        verify(Overfolded())
    with pytest.raises(ModelError, match="canonical folds 1 together with a state that has other"):
        check(Overfolded())


def test_canonical_that_hides_which_step_broke_a_property_is_noticed():
    never_won = step("never-won", lambda before, event, after: event != "win")
    with pytest.raises(ModelError, match="canonical folds 1 together with a state that has other"):
        check(Overfolded(), [never_won], deadlock=False)


def test_canonical_that_folds_fair_steps_with_others_is_noticed():
    class Drawn2(Drawn):
        def canonical(self, state):
            return "a" if state == "c" else state

    with pytest.raises(ModelError, match="'c' and its canonical form 'a' differ in behavior"):
        verify(Drawn2({"a": "t>b", "b": "t>c", "c": "e>b"}))


def test_verify_needs_a_canonical_form():
    with pytest.raises(ModelError, match="no canonical form"):
        verify(Die())
