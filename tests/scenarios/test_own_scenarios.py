"""Our own scenarios, and that the runner would notice if a promise were broken."""

import pytest
from scenarios.own_scenarios import OWN, Own
from scenarios.scenario_notation import Cancel, Run, Submit, Tick, UnsupportedError, parse
from scenarios.scenario_runner import check

FAILING = {"a tick in which the model failed did not happen": {"failing_calls": (1, 3, 9)}}


@pytest.mark.parametrize("own", OWN, ids=lambda own: own.promise)
def test_promise(own: Own) -> None:
    check(own.scenario, own.check, **FAILING.get(own.promise, {}))


def test_the_notation_is_read_as_it_says() -> None:
    scenario = parse(
        "cfg blocks=4 bs=2 chunk=8 budget=9 batch=3 fair=1"
        " | submit A p=3 m=2 eos@1 user=v; repeat 2 { submit S# p=1 m=1; tick 2 }; cancel *; run"
        " -- a remark; with a semicolon"
    )
    assert scenario[:6] == (4, 2, 8, 9, 3, True)
    assert scenario.steps == (
        Submit("A", 3, 2, eos_at=1, user="v"),
        Submit("S0", 1, 1),
        Tick(2),
        Submit("S1", 1, 1),
        Tick(2),
        Cancel("*"),
        Run(),
    )


@pytest.mark.parametrize("step", ["submit", "tick", "wait 3", "cancel", "run 3"])
def test_a_step_that_is_not_in_the_notation_is_refused(step: str) -> None:
    with pytest.raises(ValueError, match="not a step"):
        parse(f"cfg blocks=4 bs=2 chunk=8 budget=9 batch=3 | {step}")


def test_a_feature_that_we_lack_is_named() -> None:
    with pytest.raises(UnsupportedError, match="min_tokens"):
        parse("cfg blocks=4 bs=2 chunk=8 budget=9 batch=3 | submit A p=3 m=2 min=1; run")


def test_a_check_that_is_false_fails_and_shows_what_happened() -> None:
    with pytest.raises(AssertionError, match=r"first = \{'A': 1\}"):
        check("cfg blocks=9 bs=8 chunk=8 budget=9 batch=3 | submit A p=3 m=2; run", "first['A']==2")
