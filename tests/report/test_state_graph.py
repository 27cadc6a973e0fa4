"""The graph of a model's states is the model's, with all that violates a property marked."""

import pytest
from support.report_samples import small_space

from batchproof.sched.errors import InputError
from batchproof.sched.report.graph_formats import as_dot, as_svg
from batchproof.sched.report.state_graph import StateSpace, explore, folded_graph, state_graph
from batchproof.spec.mini_batch import DONE
from batchproof.spec.property import Property
from batchproof.spec.registry import load

NOBODY_DONE = Property(
    "nobody-done",
    "no request is ever done",
    "false on purpose",
    "invariant",
    lambda state: all(request.status != DONE for request in state.requests),
)
NEVER_DONE_TWICE = Property(
    "one-at-a-time",
    "no two requests end in one step",
    "false on purpose",
    "step",
    lambda before, event, after: (
        sum(
            old.status != new.status == DONE
            for old, new in zip(before.requests, after.requests, strict=True)
        )
        < 2
    ),
)


def explored(*properties: Property, reduce: bool = True) -> StateSpace:
    family = load("mini-batch")
    return explore(family.build(family.bounds["C1"], None), properties, 2_000, reduce=reduce)


def test_it_has_every_state_and_step() -> None:
    graph = state_graph(explored(reduce=False))
    assert len(graph.nodes) == load("mini-batch").bounds["C1"].states
    assert [node.name for node in graph.nodes if node.initial] == ["s0"]


def test_claims_that_hold_mark_nothing() -> None:
    graph = state_graph(small_space())
    assert not any(part.marked for part in (*graph.nodes, *graph.edges))


def test_violating_states_are_marked_and_named() -> None:
    space = explored(NOBODY_DONE)
    graph = state_graph(space)
    done = [any(r.status == DONE for r in state.requests) for state in space.states]
    assert [node.marked for node in graph.nodes] == done
    assert 0 < sum(done) < len(done)
    assert all("violates nobody-done" in node.lines for node in graph.nodes if node.marked)
    assert 'class="state marked"' in as_dot(graph)
    assert 'class="node state marked"' in as_svg(graph)


def test_violating_steps_are_marked_and_named() -> None:
    graph = state_graph(explored(NEVER_DONE_TWICE))
    marked = [edge for edge in graph.edges if edge.marked]
    assert marked
    assert all(edge.facts["properties"] == "one-at-a-time" for edge in marked)
    assert not any(node.marked for node in graph.nodes)


def test_folding_loses_neither_states_nor_steps_nor_violations() -> None:
    space = explored(NOBODY_DONE)
    graph = folded_graph(space)
    assert sum(node.facts["states"] for node in graph.nodes) == len(space.states)
    assert sum(edge.facts["steps"] for edge in graph.edges) == len(space.steps)
    assert sum(node.facts["violating"] for node in graph.nodes) == sum(map(bool, space.violates))
    broken = folded_graph(explored(NEVER_DONE_TWICE))
    violating = sum(bool(step.violates) for step in explored(NEVER_DONE_TWICE).steps)
    assert sum(edge.facts["violating"] for edge in broken.edges) == violating > 0
    assert [node.marked for node in graph.nodes] == ["done" in node.name for node in graph.nodes]


def test_a_model_without_phases_cannot_be_folded() -> None:
    with pytest.raises(InputError, match="die: has no phases to fold by"):
        folded_graph(StateSpace("die", (0,), ((),), ()))
