"""Liveness on drawn graphs with known answers, and on random ones against networkx."""

from dataclasses import dataclass

import networkx as nx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from spec.toys import Drawn, Philosophers, eventually

from batchproof.spec.checker import PropertyError, check
from batchproof.spec.liveness import leads_to, recoverable
from batchproof.spec.property import Property
from batchproof.spec.search import Search


def decide(model, prop, *, fair=True):
    return check(model, [prop], fair=fair, deadlock=False)["eventually"]


def shape(trace):
    return "".join(step.state for step in trace.steps), trace.loop


# `t` is a fair event, `e` is not.


def test_cycle_that_fairness_forbids():
    model = Drawn({"a": "e>a t>b", "b": "t>b"})
    assert decide(model, eventually("b")).outcome == "holds"
    unfair = decide(model, eventually("b"), fair=False)
    assert unfair.outcome == "violated"
    assert shape(unfair.trace) == ("aa", 0)


def test_cycle_that_takes_the_fair_event_is_a_counterexample():
    model = Drawn({"a": "t>c e>b", "c": "t>a", "b": "t>b"})
    verdict = decide(model, eventually("b"))
    assert verdict.outcome == "violated"
    assert shape(verdict.trace) == ("aca", 0)


def test_cycle_where_the_fair_event_is_disabled_somewhere_is_a_counterexample():
    model = Drawn({"a": "e>c t>b", "c": "e>a", "b": "t>b"})
    verdict = decide(model, eventually("b"))
    assert shape(verdict.trace) == ("aca", 0)
    model = Drawn({"a": "e>c t>b", "c": "e>a u>b", "b": "t>b"}, fair=frozenset("tu"))
    verdict = decide(model, eventually("b"))
    assert shape(verdict.trace)[1] is not None


def test_two_classes_need_a_cycle_that_serves_both():
    both = frozenset("tu")
    model = Drawn({"a": "t>c u>g", "c": "t>a u>g", "g": "t>g"}, fair=both)
    assert decide(model, eventually("g")).outcome == "holds"
    model = Drawn({"a": "t>c u>g", "c": "t>a u>a", "g": "t>g"}, fair=both)
    verdict = decide(model, eventually("g"))
    assert verdict.outcome == "violated"
    labels = [step.event for step in verdict.trace.steps[verdict.trace.loop + 1 :]]
    assert {"t", "u"} <= set(labels)


def test_step_of_the_right_class_is_shown_where_several_lead_the_same_way():
    model = Drawn({"a": "e>a t>a"})
    verdict = decide(model, eventually("z"))
    assert [step.event for step in verdict.trace.steps] == [None, "t"]


def test_run_that_ends_before_the_goal_is_a_counterexample():
    model = Drawn({"a": "t>b t>c", "b": "t>d", "d": "t>d"}, ends="c")
    verdict = decide(model, eventually("d"))
    assert verdict.outcome == "violated"
    assert shape(verdict.trace) == ("ac", None)


def test_run_may_stop_where_only_unfair_events_are_possible():
    model = Drawn({"a": "e>b", "b": "t>b"})
    assert shape(decide(model, eventually("b")).trace) == ("a", None)
    assert decide(model, eventually("b"), fair=False).outcome == "holds"


def test_eventually_is_not_missed_where_paths_join():
    """One path reaches the goal before the join, the other does not."""
    model = Drawn({"a": "t>g t>b", "g": "t>j", "b": "t>j", "j": "t>j"})
    verdict = decide(model, eventually("g", after="a"))
    assert verdict.outcome == "violated"
    assert shape(verdict.trace) == ("abjj", 2)
    joined_after = Drawn({"a": "t>b t>c", "b": "t>j", "c": "t>j", "j": "t>g", "g": "t>g"})
    assert decide(joined_after, eventually("g")).outcome == "holds"


def test_obligation_begins_at_the_trigger():
    model = Drawn({"a": "t>a t>p", "p": "t>g", "g": "t>a"})
    assert decide(model, eventually("g", after="p")).outcome == "holds"
    assert decide(model, eventually("g")).outcome == "violated"


def test_obligation_stays_open_after_the_trigger_is_over():
    model = Drawn({"a": "t>p", "p": "t>q", "q": "t>q"})
    verdict = decide(model, eventually("g", after="p"))
    assert shape(verdict.trace) == ("apqq", 2)


def test_trigger_met_while_the_goal_holds_is_discharged():
    model = Drawn({"a": "t>b", "b": "t>b"})
    assert decide(model, eventually("a", after="a")).outcome == "holds"


def test_prefix_is_shortest():
    model = Drawn({"a": "t>b t>d", "b": "t>c", "c": "t>c", "d": "t>d"})
    assert shape(decide(model, eventually("z")).trace) == ("add", 1)


def test_prefix_is_shortest_from_the_initial_state_not_from_the_trigger():
    steps = {"a": "t>b t>p", "b": "t>x", "x": "t>x", "p": "t>q", "q": "t>d", "d": "t>d"}
    verdict = decide(Drawn(steps), eventually("z", after="bd"))
    assert shape(verdict.trace) == ("abxx", 2)


def test_cycle_off_the_way_to_the_goal_does_not_count():
    model = Drawn({"a": "t>g", "g": "t>b", "b": "t>b"})
    assert decide(model, eventually("g", after="a")).outcome == "holds"


@pytest.mark.parametrize(
    ("steps", "goal", "note"),
    [
        ({"a": "t>b", "b": "t>c", "c": "t>c"}, "c", "within 2 fair steps"),
        ({"a": "t>b t>c", "b": "t>c", "c": "t>c"}, "c", "within 2 fair steps"),
        ({"a": "e>b t>c", "b": "t>c", "c": "t>c"}, "c", "within 1 fair steps"),
        ({"a": "e>b t>c", "b": "e>a t>c", "c": "t>c"}, "c", "within 1 fair steps"),
        ({"a": "t>a"}, "a", "within 0 fair steps"),
        # `t` always helps in the end, but only `u` is sure to come, after any number of `t`
        ({"a": "t>a u>b", "b": "t>b"}, "b", "no bound"),
    ],
)
def test_worst_number_of_fair_steps(steps, goal, note):
    verdict = decide(Drawn(steps, fair=frozenset("tu")), eventually(goal))
    assert (verdict.outcome, verdict.note) == ("holds", note)


def test_goal_that_can_be_lost():
    model = Drawn({"a": "t>b t>g", "b": "t>c", "c": "t>b t>c", "g": "t>g"})
    report = check(model, recover=[eventually("g")])
    assert report.outcome == "violated"
    assert shape(report["eventually"].trace) == ("ab", None)
    model = Drawn({"a": "t>b t>g", "b": "t>a", "g": "t>g"})
    assert check(model, recover=[eventually("g")]).outcome == "holds"
    assert check(model, [eventually("g")]).outcome == "violated"


def test_philosophers_starve_but_can_always_eat_unless_stuck():
    def eats(state):
        return state[0] == 2

    can_eat = Property("can-eat", "seat 0 can still eat", "toy", "liveness", eats)
    report = check(Philosophers(3), [can_eat], recover=[can_eat])
    assert [v.outcome for v in report.verdicts] == ["violated", "violated", "violated"]
    report = check(Philosophers(3, one_other_way=True), [can_eat], recover=[can_eat])
    assert [v.outcome for v in report.verdicts] == ["holds", "violated", "holds"]


@dataclass(frozen=True)
class Pair:
    """Two alike processes, of which one at a time is served; folded, it is one state."""

    name: str = "pair"

    def initial(self):
        return ["10", "01"]

    def successors(self, state):
        return [("again", state), ("switch", state[::-1])]

    def canonical(self, state):
        return max(state, state[::-1])


def test_liveness_of_one_of_folded_processes_is_refused():
    served = Property("served", "process 1 is served", "toy", "liveness", lambda s: s[1] == "1")
    with pytest.raises(PropertyError, match="folds together: check it without reductions"):
        check(Pair(), [served])
    report = check(Pair(), [served], reduce=False)
    assert report["served"].outcome == "violated"


def test_lasso_under_symmetry_is_a_run_of_the_model():
    never = Property("both", "both are served", "toy", "liveness", lambda s: s == "11")
    trace = check(Pair(), [never])["both"].trace
    for before, after in zip(trace.steps, trace.steps[1:], strict=False):
        assert (after.event, after.state) in Pair().successors(before.state)
    assert Pair().canonical(trace.steps[-1].state) == Pair().canonical(
        trace.steps[trace.loop].state
    )


def test_liveness_needs_a_kept_graph():
    with pytest.raises(ValueError, match="keep_graph"):
        leads_to(Search(Philosophers(2)).run(), eventually("g"))


# Random graphs: is what was found a counterexample, and is there none where none was found?

NODES = "abcdef"
edges = st.tuples(st.sampled_from(NODES), st.sampled_from("etu"), st.sampled_from(NODES))
graphs = st.lists(edges, min_size=1, max_size=14)


def drawn(steps):
    by_source = {}
    for source, label, target in steps:
        by_source.setdefault(source, []).append(f"{label}>{target}")
    return Drawn({s: " ".join(v) for s, v in by_source.items()}, fair=frozenset("tu"))


def violates(model, goals, triggers, *, fair):
    """Say, by networkx, whether some run is pending from a trigger for ever."""
    everything = nx.MultiDiGraph()
    todo = ["a"]
    for node in todo:
        everything.add_node(node)
        for label, target in model.successors(node):
            everything.add_edge(node, target, label)
            if target not in todo:
                todo.append(target)
    pending = everything.subgraph(n for n in everything if n not in goals)
    begun = {n for t in triggers if t in pending for n in {t, *nx.descendants(pending, t)}}
    classes = "tu" if fair else ""

    def enabled(node):
        return {label for _, _, label in everything.out_edges(node, keys=True)}

    if any(not enabled(node) & (set("tu") if fair else set("etu")) for node in begun):
        return True
    for members in nx.strongly_connected_components(pending.subgraph(begun)):
        taken = {label for _, _, label in pending.subgraph(members).edges(keys=True)}
        if taken and all(c in taken or any(c not in enabled(n) for n in members) for c in classes):
            return True
    return False


@given(graphs, st.sets(st.sampled_from(NODES[1:])), st.sets(st.sampled_from(NODES)), st.booleans())
@example([("a", "t", "b"), ("b", "t", "a")], {"c"}, {"a"}, True)
def test_random_graph(steps, goals, triggers, fair):
    model = drawn(steps)
    prop = eventually(*sorted(goals), after="".join(sorted(triggers)))
    search = Search(model, keep_graph=True).run()
    trace = leads_to(search, prop, fair=fair).counterexample
    assert (trace is not None) == violates(model, goals, triggers, fair=fair)
    if trace is not None:
        assert_shows(model, trace, goals, triggers, fair=fair)


def assert_shows(model, trace, goals, triggers, *, fair):
    states = [step.state for step in trace.steps]
    assert states[0] == "a"
    for before, step in zip(states, trace.steps[1:], strict=False):
        assert (step.event, step.state) in list(model.successors(before))
    last_goal = max((i for i, s in enumerate(states) if s in goals), default=-1)
    assert any(s in triggers for s in states[last_goal + 1 :])
    labels = set("tu") if fair else set("etu")
    if trace.loop is None:
        assert not {label for label, _ in model.successors(states[-1])} & labels
        return
    assert states[trace.loop] == states[-1]
    assert trace.loop > last_goal
    assert trace.loop < len(states) - 1
    around = states[trace.loop :]
    taken = {step.event for step in trace.steps[trace.loop + 1 :]}
    for label in "tu" if fair else "":
        disabled = any(label not in {e for e, _ in model.successors(s)} for s in around)
        assert disabled or label in taken


@given(graphs, st.sets(st.sampled_from(NODES)))
def test_random_graph_recoverable(steps, goals):
    model = drawn(steps)
    search = Search(model, keep_graph=True).run()
    graph = nx.DiGraph()
    graph.add_nodes_from(search.states)
    graph.add_edges_from((s, t) for s in search.states for _, t in model.successors(s))
    lost = [n for n in search.states if not {n, *nx.descendants(graph, n)} & goals]
    trace = recoverable(search, eventually(*sorted(goals)))
    assert (None if trace is None else trace.steps[-1].state) == (lost[0] if lost else None)


@given(graphs, st.sets(st.sampled_from(NODES), min_size=1))
def test_random_graph_worst(steps, goals):
    """The bound is the longest pending path that networkx counts, where there is one."""
    model = drawn(steps)
    prop = eventually(*sorted(goals))
    search = Search(model, keep_graph=True).run()
    result = leads_to(search, prop)
    if result.counterexample is not None:
        return
    graph = nx.MultiDiGraph((s, t, e) for s in search.states for e, t in model.successors(s))
    pending = graph.subgraph(n for n in search.states if n not in goals)
    fair_on_cycle = any(
        e != "e"
        for members in nx.strongly_connected_components(pending)
        for _, _, e in pending.subgraph(members).edges(keys=True)
    )
    if fair_on_cycle:
        assert result.worst is None
        return
    assert result.worst == max((walk(model, n, goals) for n in pending), default=0)


def walk(model, node, goals):
    """Return the most fair steps from `node` to a goal; unfair cycles are walked once."""
    best = {(node, frozenset([node])): 0}
    worst = 0
    for (here, seen), length in (todo := list(best.items())):
        for event, target in model.successors(here):
            longer = length + (event != "e")
            worst = max(worst, longer)
            if target not in goals and target not in seen:
                todo.append(((target, seen | {target}), longer))
    return worst
