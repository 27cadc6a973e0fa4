"""When an obligation begins, and what discharges it."""

import pytest
from invariants.examples import CLAIMS, SYSTEM, decoding, prefilling, state, waiting

GONE, WAITS, PREFILLS = state(waiting(1)), state(waiting(0)), state(prefilling(0, 0, 2))
DECODES, AGAIN = state(decoding(0, 1, 2)), state(waiting(0, 1))


@pytest.mark.parametrize(
    ("claim", "begins", "discharged"),
    [
        ("every-request-ends", [WAITS, PREFILLS, DECODES, AGAIN], [GONE]),
        ("first-token-comes", [WAITS, PREFILLS, DECODES, AGAIN], [GONE, DECODES, AGAIN]),
        ("preempted-comes-back", [AGAIN], [GONE, PREFILLS, DECODES]),
    ],
)
def test_a_promise_to_a_request_is(claim, begins, discharged) -> None:
    promise = CLAIMS[claim]
    assert promise.trigger is not None
    for case in (GONE, WAITS, PREFILLS, DECODES, AGAIN):
        assert promise.trigger(SYSTEM, 0, case) is (case in begins)
        assert promise.predicate(SYSTEM, 0, case) is (case in discharged)


def test_all_have_ended_when_nobody_is_live() -> None:
    assert CLAIMS["all-can-end"].predicate(SYSTEM, state())
    assert not CLAIMS["all-can-end"].predicate(SYSTEM, WAITS)
