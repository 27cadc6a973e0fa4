"""ContinuousBatching.tla says the same as the Python: by name, by count, and state by state."""

from typing import Any, get_args

import pytest
from tlaplus.tla_bounds import COMPARED, MODULE, SPEC, constants, files, spec_invariants
from tlaplus.tla_reader import Function, Module

from batchproof.spec.actions import Event, works
from batchproof.spec.bounds import SIZES
from batchproof.spec.model import Batching
from batchproof.spec.state import State

PATH = SPEC / f"{MODULE}.tla"


States = dict[tuple[Any, ...], set[tuple[Any, ...]]]
"""Every reachable state of the module, with its successors."""


def module(bound: str) -> Module:
    return Module(PATH, constants(SIZES[bound]))


def as_tla(state: State) -> tuple[Any, ...]:
    """Return a state as the values of the module's variables; its ids count from 1."""
    records = (live._replace(request=live.request + 1)._asdict() for live in state.live)
    live = ({name: value for name, value in r.items() if name != "passed"} for r in records)
    return tuple(map(Function, live)), state.free


def explore(tla: Module) -> States:
    """Return every reachable state of the module, with its successors."""
    found: States = {}
    todo = [tla.initial()]
    while todo:
        state = todo.pop()
        if state not in found:
            found[state] = set(tla.successors(state))
            todo += found[state]
    return found


@pytest.fixture(scope="module")
def pair() -> Module:
    return module("pair")


@pytest.fixture(scope="module")
def pair_states(pair: Module) -> States:
    return explore(pair)


def test_its_constants_variables_and_actions_are_those_of_the_python(pair: Module) -> None:
    tla = pair
    assert set(tla.constants) == set(constants(SIZES["pair"]))
    assert tla.variables == [name for name in State._fields if name != "history"]
    actions = {name for name in tla.operators if tla.has_prime(tla.operators[name].body)}
    assert actions - {"Next", "Spec", "TickPossible"} == {e.__name__ for e in get_args(Event)}


def test_its_invariants_are_those_of_the_catalog(pair: Module) -> None:
    named = {name.replace("-", "") for name in spec_invariants()}
    assert named == {name.lower() for name in pair.operators if name.lower() in named}
    assert len(named) > 5


def test_the_generated_files_are_up_to_date() -> None:
    for name, text in files(spec_invariants()):
        assert (SPEC / name).read_text() == text, f"{name}: see tlaplus/tla_bounds.py"
    assert {path.name for path in SPEC.glob("MC*")} == {name for name, _ in files([])}


def test_the_table_of_counts_in_its_comment_is_that_of_the_bounds() -> None:
    text = PATH.read_text()
    for name, size in COMPARED.items():
        assert f"(*     {name:<12}{size.states:>7,} " in text


def same_states_and_steps(bound: str, tla: States) -> None:
    model = Batching(SIZES[bound].system)
    found: set[tuple[Any, ...]] = set()
    todo = list(model.initial())
    while todo:
        state = todo.pop()
        if as_tla(state) in found:
            continue
        found.add(as_tla(state))
        after = [after for _, after in model.successors(state)]
        assert tla[as_tla(state)] == set(map(as_tla, after)), state
        todo += after
    assert found == set(tla)
    assert len(found) == SIZES[bound].states


def test_run_as_it_is_written_it_has_the_same_states_and_steps(pair_states: States) -> None:
    same_states_and_steps("pair", pair_states)


@pytest.mark.deep
@pytest.mark.parametrize("bound", [name for name in COMPARED if name not in ("pair", "users")])
def test_it_has_the_same_states_and_steps_at_larger_bounds(bound: str) -> None:
    same_states_and_steps(bound, explore(module(bound)))


def test_its_invariants_hold_and_can_fail(pair: Module, pair_states: States) -> None:
    names = [name for name in pair.operators if name.lower() in _lowered(spec_invariants())]
    states = list(pair_states)
    assert all(pair.holds(name, state) for name in names for state in states[::7])
    live, free = max(states, key=lambda state: sum(r["blocks"] for r in state[0]))
    broken = {
        "KvWithinCap": (live[:1] * 9, free),
        "BlocksConserved": (live, free + 1),
        "OnlyResidentsHold": (_with(live, phase="waiting", blocks=1), free),
        "BlocksCoverContext": (_with(live, phase="decoding", blocks=1), free),
        "IdsUnique": (live[:1] * 2, free),
        "FeasibleOrRefused": (_with(live, request=3), free),
        "PhaseFitsTokens": (_with(live, generated=4), free),
        "TickPossible": (_with(live, phase="waiting"), 0),
    }
    assert set(broken) == set(names)
    for name, state in broken.items():
        assert not pair.holds(name, state), name


def test_a_waiting_request_without_memory_has_no_work() -> None:
    system = SIZES["pair"].system
    state = next(iter(Batching(system).initial()))
    model = Batching(system)
    _, state = model.submit(state, 0)
    assert list(works(system, state))
    assert not list(works(system, state._replace(free=0)))


def _with(live: tuple[Function, ...], **changes: Any) -> tuple[Function, ...]:
    return tuple(Function({**request, **changes, "request": changes.get("request", k)})
                 for k, request in enumerate(live, 1))  # fmt: skip


def _lowered(names: list[str]) -> set[str]:
    return {name.replace("-", "") for name in names}
