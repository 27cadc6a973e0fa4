"""The life of a request: the shipped machine is the table, edge for edge."""

from itertools import product
from types import SimpleNamespace

import pytest
from support.builders import ConstantExecutor, a_request
from transitions import Event, Machine, Transition

from batchproof import Scheduler
from batchproof.sched import lifecycle
from batchproof.sched.errors import BatchproofError, IllegalEventError
from batchproof.sched.lifecycle import LIFECYCLE, Lifecycle
from batchproof.spec.lifecycle import EDGES, INITIAL, PHASES, RESIDENT, Phase, dest

EVENTS = sorted({edge.event for edge in EDGES})
ILLEGAL = [(event, phase) for event, phase in product(EVENTS, PHASES) if dest(event, phase) is None]


class Life:
    """The least that the machine can move."""

    __slots__ = ("phase",)

    def __init__(self, phase: Phase | None) -> None:
        self.phase = phase


@pytest.mark.parametrize("machine", [LIFECYCLE, None], ids=["shipped", "new"])
def test_the_machine_has_the_phases_and_edges_of_the_table_and_no_others(
    machine: Lifecycle | None,
) -> None:
    machine = machine or Lifecycle()
    edges = {
        (event.name, transition.source, transition.dest)
        for event in machine.events.values()
        for transitions in event.transitions.values()
        for transition in transitions
    }
    assert edges == {(edge.event, edge.source, edge.dest) for edge in EDGES}
    assert tuple(machine.states) == PHASES
    assert machine.initial == INITIAL
    assert machine.models == []


def test_the_table_tells_the_rule_of_every_edge_and_says_no_edge_twice() -> None:
    assert all(edge.rule.startswith("Rule ") for edge in EDGES)
    assert len({(edge.event, edge.source) for edge in EDGES}) == len(EDGES)
    assert not [edge for edge in EDGES if edge.source == "done"], "nothing leaves done"
    assert set(PHASES) - RESIDENT == {"waiting", "done"}


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: f"{edge.event}-from-{edge.source}")
def test_every_edge_is_taken(edge) -> None:  # type: ignore[no-untyped-def]
    life = Life(edge.source)
    assert getattr(lifecycle, edge.event)(life)
    assert life.phase == edge.dest


@pytest.mark.parametrize(("event", "phase"), ILLEGAL)
def test_an_illegal_event_raises_says_what_is_legal_and_changes_nothing(
    event: str, phase: Phase
) -> None:
    life = Life(phase)
    with pytest.raises(IllegalEventError) as refusal:
        getattr(lifecycle, event)(life)
    assert life.phase == phase
    legal = sorted(edge.event for edge in EDGES if edge.source == phase)
    said = str(refusal.value)
    assert f"event {event!r} is illegal in phase {phase!r}" in said
    assert sorted(said.rpartition("legal there: ")[2].split(", ")) == (legal or ["nothing"])


def test_a_request_that_was_never_submitted_has_no_life() -> None:
    life = Life(None)
    with pytest.raises(IllegalEventError, match="phase None"):
        lifecycle.admit(life)
    assert life.phase is None


def test_it_is_the_librarys_own_machine_with_its_own_events_and_transitions() -> None:
    assert isinstance(LIFECYCLE, Machine)
    assert all(isinstance(event, Event) for event in LIFECYCLE.events.values())
    for name in EVENTS:
        trigger = getattr(lifecycle, name)
        assert trigger.__self__ is LIFECYCLE.events[name], "a trigger is the event's own method"
    assert all(
        isinstance(transition, Transition)
        for event in LIFECYCLE.events.values()
        for transitions in event.transitions.values()
        for transition in transitions
    )


def test_requests_are_not_bound_to_the_machine() -> None:
    scheduler = Scheduler(executor=ConstantExecutor())
    scheduler.submit(a_request())
    scheduler.tick()
    assert LIFECYCLE.models == []


@pytest.mark.parametrize("extra", ["conditions", "unless", "before", "after", "prepare"])
def test_conditions_and_callbacks_are_refused_for_they_would_not_be_run(extra: str) -> None:
    machine = Lifecycle()
    with pytest.raises(ValueError, match="conditions or callbacks"):
        machine.add_transition("cancel", "waiting", "done", **{extra: lambda: True})


def test_an_edge_added_to_a_machine_of_ones_own_works_there_and_only_there() -> None:
    machine, life = Lifecycle(), Life("done")
    machine.add_transition("resurrect", "done", "waiting")
    machine.events["resurrect"].trigger(life)
    assert life.phase == "waiting"
    assert "resurrect" not in LIFECYCLE.events


def test_a_model_bound_to_a_machine_of_ones_own_has_its_phase_from_it() -> None:
    machine, life = Lifecycle(), SimpleNamespace()
    machine.add_model(life)
    assert life.phase == INITIAL
    assert life.admit()
    assert life.phase == "prefilling"


def test_the_scheduler_changes_phases_through_the_machine_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[tuple[str, str | None]] = []
    for name in EVENTS:
        original = getattr(lifecycle, name)

        def spy(model, name=name, original=original):  # type: ignore[no-untyped-def]
            taken.append((name, model.phase))
            return original(model)

        monkeypatch.setattr(lifecycle, name, spy)
    scheduler = Scheduler(executor=ConstantExecutor())
    request = a_request(max_tokens=2)
    scheduler.submit(request)
    while scheduler.has_active():
        scheduler.tick()

    assert taken == [("admit", "waiting"), ("first_token", "prefilling"), ("finish", "decoding")]
    assert request.phase == "done"


def test_an_illegal_event_is_the_callers_fault() -> None:
    assert issubclass(IllegalEventError, BatchproofError)
