"""What counts as having been seen to happen, and where it can happen at all."""

from dataclasses import replace
from typing import Any

import pytest
from invariants.examples import (
    CLAIMS,
    RESERVING,
    SYSTEM,
    decoding,
    prefilling,
    says,
    state,
    tick,
    told,
    waiting,
)

from batchproof.spec.actions import Cancel, Refuse, Submit
from batchproof.spec.state import Request, State

NOTHING = (state(), Submit(0), state(waiting(0)))
MIXED = state(decoding(1, 1, 1), prefilling(0, 0, 2))
SEEN = {
    "can-preempt": {"one is": (state(decoding(0, 1, 2)), tick(preempt=(0,)), state(waiting(0, 1)))},
    "can-fill-pool": {"no block is free": (state(), tick(), state(prefilling(3, 0, 6)))},
    "can-chunk": {
        "fed in part": (state(prefilling(0, 0, 2)), tick({0: 1}), state(prefilling(0, 1, 2))),
        "the second of two": (MIXED, tick({0: 1}), state(decoding(1, 1, 1), prefilling(0, 1, 2))),
    },
    "can-grow": {
        "a decode has a block more": (
            state(decoding(1, 1, 1), decoding(0, 1, 2)),
            tick({0: 1}),
            state(decoding(1, 1, 1), decoding(0, 2, 3)),
        ),
    },
    "can-recompute": {
        "admitted with tokens": (
            state(waiting(0, 1)),
            tick({0: 1}, admit=(0,)),
            state(prefilling(0, 1, 3, generated=1)),
        ),
    },
    "can-end-at-first-token": {
        "its first is EOS": (state(prefilling(0, 2, 2)), tick({0: 1}, eos=(0,)), state()),
    },
    "can-end-by-length": {
        "the second that ends": (
            state(),
            tick(ended=((1, "eos"), (0, "length"))),
            state(),
        ),
    },
    "can-end-together": {"two end": (state(), tick(ended=((0, "eos"), (1, "eos"))), state())},
    "can-mix": {"a decode and a chunk": (MIXED, tick({0: 2, 1: 1}), state())},
    "can-use-budget": {"all of it": (MIXED, tick({0: 2, 1: 2}), state())},
    "can-cancel-resident": {
        "it prefills": (state(prefilling(0, 0, 2)), Cancel(0), state()),
        "it decodes": (MIXED, Cancel(1), state(prefilling(0, 0, 2))),
    },
    "can-refuse": {
        "it is not live": (state(), Refuse(4), state()),
        "another is": (state(waiting(0)), Refuse(4), state(waiting(0))),
    },
    "can-wait": {
        "through a tick": (
            state(decoding(1, 1, 1), waiting(0)),
            tick({1: 1}),
            state(decoding(1, 2, 1), waiting(0)),
        ),
    },
}
NOT_SEEN = {
    **{claim: {"nothing of it": NOTHING} for claim in SEEN if claim != "can-fill-pool"},
    "can-fill-pool": {"a block is free": (state(), tick(), state(free=1))},
    "can-chunk": {
        "nothing is fed yet": (state(), tick(), state(prefilling(0, 0, 2))),
        "fed whole": (state(prefilling(0, 2, 2)), tick({0: 1}), state(decoding(0, 1, 2))),
    },
    "can-grow": {
        "it holds what it held": (state(decoding(1, 1, 1)), tick({1: 1}), state(decoding(1, 1, 1))),
        "it was admitted": (
            state(waiting(1)),
            tick({1: 1}, admit=(1,)),
            state(decoding(1, 1, 1)),
        ),
        "it prefilled before": (
            state(prefilling(0, 0, 2)),
            tick({0: 2}),
            state(decoding(0, 1, 3)),
        ),
    },
    "can-recompute": {
        "admitted without": (state(waiting(0)), tick(admit=(0,)), state(prefilling(0, 0, 2))),
        "it waits on with tokens": (state(waiting(0, 1)), tick(), state(waiting(0, 1))),
    },
    "can-end-at-first-token": {
        "its second is EOS": (state(decoding(0, 1, 2)), tick({0: 1}, eos=(0,)), state()),
        "its first is not": (
            state(prefilling(0, 2, 2)),
            tick({0: 1}),
            state(decoding(0, 1, 2)),
        ),
        "no tick": (state(waiting(0)), Cancel(0), state()),
    },
    "can-end-by-length": {"by EOS": (state(), tick(ended=((0, "eos"),)), state())},
    "can-end-together": {"one ends": (state(), tick(ended=((0, "eos"),)), state())},
    "can-mix": {
        "decodes": (state(decoding(1, 1, 1), decoding(0, 0, 2)), tick({0: 1, 1: 1}), state()),
        "a chunk, and a decode that is left out": (MIXED, tick({0: 2}), state()),
        "nobody": (MIXED, tick(), state()),
    },
    "can-use-budget": {"a token less": (MIXED, tick({0: 2, 1: 1}), state())},
    "can-cancel-resident": {
        "it waits": (state(waiting(0)), Cancel(0), state()),
        "another is resident": (
            state(decoding(1, 1, 1), waiting(0)),
            Cancel(0),
            state(decoding(1, 1, 1)),
        ),
        "no cancellation": (state(decoding(0, 1, 2)), Submit(0), state(decoding(0, 1, 2))),
    },
    "can-refuse": {
        "it is live": (state(waiting(0)), Refuse(0), state(waiting(0))),
        "it is accepted": NOTHING,
    },
    "can-wait": {
        "no tick": (state(waiting(0)), Submit(1), state(waiting(0), waiting(1))),
        "it waits again": (state(decoding(0, 1, 2)), tick(preempt=(0,)), state(waiting(0, 1))),
        "it was admitted": (
            state(waiting(0)),
            tick({0: 2}, admit=(0,)),
            state(prefilling(0, 2, 2)),
        ),
    },
}


@told(SEEN, NOT_SEEN)
def test_what_is_seen_in(claim, case, expected) -> None:
    assert says(claim, *case) is expected


PASSING = replace(SYSTEM, max_passes=2)
"""Each request may be passed twice."""


def passed(*counts: int) -> State:
    """Return requests that wait, each passed so many times."""
    return state(*(waiting(i)._replace(passed=count) for i, count in enumerate(counts)))


@pytest.mark.parametrize(
    ("case", "is_seen"),
    [
        ((passed(1), Submit(1), passed(2, 0)), True),
        ((passed(0, 1), Submit(2), passed(0, 2, 0)), True),
        ((passed(0), Submit(1), passed(1, 0)), False),
        ((passed(2), Submit(1), passed(2, 0)), False),
        ((passed(2, 1), Submit(2), passed(2, 1, 0)), False),
        (
            (passed(1), tick({0: 2}, admit=(0,)), state(prefilling(0, 2, 2)._replace(passed=2))),
            False,
        ),
    ],
    ids=[
        "for the second time",
        "the second of two",
        "for the first time",
        "before",
        "one before, and the other not yet",
        "it was admitted and keeps its place",
    ],
)
def test_one_is_passed_as_often_as_it_may_be(case: tuple[Any, ...], is_seen: bool) -> None:
    assert says("can-be-passed", *case, system=PASSING) is is_seen


SHORT = replace(SYSTEM, requests=(Request(0, 2, 2), Request(0, 1, 3)))
"""No prompt is longer than a chunk, and every request is feasible."""
LONG = replace(SYSTEM, requests=(Request(0, 3, 2),))
"""A prompt longer than a chunk, whose blocks at admission are its peak's."""
GROWS = replace(SYSTEM, requests=(Request(0, 1, 1), Request(0, 1, 4)))
"""The second holds a block more at its peak than at its admission."""
HOPELESS = replace(SYSTEM, requests=(Request(0, 1, 1), Request(0, 1, 99)))
"""The one that would grow never fits."""


@pytest.mark.parametrize(
    ("claim", "where", "nowhere"),
    [
        ("can-preempt", [SYSTEM, SHORT, GROWS], [RESERVING, LONG, HOPELESS]),
        ("can-grow", [SYSTEM, SHORT, GROWS], [RESERVING, LONG, HOPELESS]),
        ("can-recompute", [SYSTEM, SHORT, GROWS], [RESERVING, LONG, HOPELESS]),
        ("can-chunk", [SYSTEM, LONG], [SHORT, GROWS]),
        ("can-refuse", [SYSTEM, HOPELESS], [SHORT, LONG, GROWS]),
        ("can-cancel-resident", [SYSTEM], [replace(SYSTEM, cancels=False)]),
        ("can-be-passed", [replace(SYSTEM, max_passes=1)], [SYSTEM]),
        ("can-mix", [SYSTEM, RESERVING, SHORT, LONG], []),
        ("never-evicts", [RESERVING], [SYSTEM]),
    ],
)
def test_a_claim_is_made_where_it_can_be_seen(claim, where, nowhere) -> None:
    assert [bool(CLAIMS[claim].at(system)) for system in where] == [True] * len(where)
    assert [bool(CLAIMS[claim].at(system)) for system in nowhere] == [False] * len(nowhere)
