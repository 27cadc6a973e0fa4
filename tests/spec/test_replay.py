"""A counterexample as choices: is it still a run of the model, and does it break the claim?"""

from dataclasses import dataclass
from enum import Enum

import pytest
from spec.toys import Die, Drawn, eventually

from batchproof.spec.checker import DEADLOCK, check
from batchproof.spec.counterexample import (
    Step,
    Subject,
    Trace,
    as_json,
    trace_as_itf,
    trace_as_json,
    trace_as_pytest,
)
from batchproof.spec.property import Property
from batchproof.spec.replay import reproduces

SIX = Property("no-six", "no six is thrown", "toy", "invariant", lambda state: state != 6)
SIX_STEP = Property("no-six", "", "toy", "step", lambda before, event, after: after != 6)
SIX_SEEN = Property("six", "", "toy", "witness", lambda before, event, after: after == 6)


def initial(*choices):
    return [("initial", 0), *((text, nth) for text, nth in choices)]


@pytest.mark.parametrize("prop", [SIX, SIX_STEP, SIX_SEEN], ids=lambda prop: prop.kind)
def test_run_that_decides_a_property_of_states_or_steps(prop):
    assert reproduces(Die(), prop, initial(("'throw'", 5)))
    assert not reproduces(Die(), prop, initial(("'throw'", 4)))


def test_run_that_the_model_has_no_more():
    assert not reproduces(Die(faces=5), SIX, initial(("'throw'", 5)))
    assert not reproduces(Die(), SIX, initial(("'roll'", 0)))
    assert not reproduces(Die(), SIX, [("initial", 1)])


def test_deadlock():
    assert reproduces(Drawn({"a": "t>b"}), DEADLOCK, initial(("'t'", 0)))
    assert not reproduces(Drawn({"a": "t>b"}, ends="b"), DEADLOCK, initial(("'t'", 0)))
    assert not reproduces(Drawn({"a": "t>b", "b": "t>a"}), DEADLOCK, initial(("'t'", 0)))


def test_lasso():
    around = initial(("'e'", 0), ("'e'", 0))
    lasso = Drawn({"a": "e>b", "b": "e>a"}, fair=frozenset("e"))
    assert reproduces(lasso, eventually("z"), around, loop=0)
    assert not reproduces(lasso, eventually("b"), around, loop=0)
    assert not reproduces(lasso, eventually("z"), around[:2], loop=0)
    assert not reproduces(lasso, eventually("z", after="z"), around, loop=0)


def test_lasso_that_is_not_fair_any_more():
    around = initial(("'e'", 0), ("'e'", 0))
    helped = Drawn({"a": "e>b t>z", "b": "e>a t>z"})
    assert not reproduces(helped, eventually("z"), around, loop=0)
    half_helped = Drawn({"a": "e>b t>z", "b": "e>a"})
    assert reproduces(half_helped, eventually("z"), around, loop=0)


def test_run_that_ends_and_run_that_is_lost():
    goal = eventually("z")
    assert reproduces(Drawn({"a": "t>b"}), goal, initial(("'t'", 0)))
    assert reproduces(Drawn({"a": "t>b", "b": "t>b"}), goal, initial(("'t'", 0)))
    assert not reproduces(Drawn({"a": "t>b", "b": "t>z"}), goal, initial(("'t'", 0)))


@pytest.mark.parametrize(
    ("model", "name", "properties"),
    [
        (Die(), "no-six", [SIX]),
        (Die(), "six", [SIX_SEEN]),
        (Drawn({"a": "t>b t>c", "b": "t>a", "c": "t>d"}), "eventually", [eventually("z")]),
        (Drawn({"a": "e>b t>b", "b": "t>a e>a"}), "eventually", [eventually("z")]),
    ],
    ids=["invariant", "witness", "liveness", "liveness-by-two-events"],
)
def test_what_the_checker_finds_is_written_so_that_it_reproduces(model, name, properties):
    verdict = check(model, properties, deadlock=False)[name]
    source = trace_as_pytest(verdict.trace, Subject("m", "b", None), verdict.prop, model)
    namespace: dict = {}
    exec(source[source.index("CHOICES") : source.index("def test_")], namespace)
    assert reproduces(model, verdict.prop, namespace["CHOICES"], loop=verdict.trace.loop)


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class Odd:
    colour: Colour
    members: frozenset[int]
    table: dict[int, str]
    nothing: None = None


ODD = Odd(Colour.RED, frozenset({10, 9}), {1: "x"})


def test_json_of_every_kind_of_value():
    assert as_json(ODD) == {
        "colour": "RED",
        "members": [10, 9],
        "table": [[1, "x"]],
        "nothing": None,
    }
    assert as_json((1, {"a": 2.5}, object)) == [1, {"a": 2.5}, "<class 'object'>"]


def test_itf_of_every_kind_of_value():
    trace = Trace((Step(None, ODD), Step("go", ODD)), loop=0)
    itf = trace_as_itf(trace, Subject("m", "b", None), SIX)
    assert itf["loop"] == 0
    assert itf["vars"] == ["colour", "members", "table", "nothing"]
    assert itf["states"][1] == {
        "#meta": {"index": 1, "event": "'go'"},
        "colour": "RED",
        "members": {"#set": [{"#bigint": "10"}, {"#bigint": "9"}]},
        "table": {"#map": [[{"#bigint": "1"}, "x"]]},
        "nothing": {"#unserializable": "None"},
    }


def test_state_without_fields():
    trace = Trace((Step(None, 0), Step("throw", 6)))
    itf = trace_as_itf(trace, Subject("m", "b", None), SIX)
    assert itf["vars"] == ["state"]
    assert "loop" not in itf
    assert itf["states"][1]["state"] == {"#bigint": "6"}
    assert trace_as_json(trace) == {
        "steps": [{"event": None, "state": 0}, {"event": "'throw'", "state": 6}],
        "loop": None,
    }
