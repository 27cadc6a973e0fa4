"""What the claims about KV memory allow, and what they object to."""

import pytest
from invariants.examples import (
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

from batchproof.spec.actions import Cancel

FULL = state(decoding(0, 2, 3), prefilling(2, 0, 3))
HOLDS = {
    "kv-within-cap": {"the whole pool": (FULL,), "nobody": (state(),)},
    "blocks-conserved": {"the whole pool": (FULL,), "some are free": (state(decoding(0, 1, 2)),)},
    "only-residents-hold": {
        "who waits holds none": (state(waiting(0), decoding(1, 1, 1)),),
        "one block is enough": (state(prefilling(1, 0, 1)),),
    },
    "blocks-cover-context": {
        "while it prefills, and the token to come": (state(prefilling(0, 0, 2)),),
        "a block boundary just reached": (state(decoding(0, 1, 2)),),
        "and just passed": (state(decoding(0, 2, 3)),),
        "the last token needs no slot": (state(prefilling(1, 0, 1)),),
        "recomputed with its tokens": (state(prefilling(0, 0, 3, generated=2)),),
        "nobody's holding is asked while it waits": (state(waiting(0), decoding(0, 1, 2)),),
    },
    "freed-at-once": {
        "a request ends": (
            state(decoding(0, 2, 3), decoding(1, 1, 1)),
            tick({0: 1}),
            state(decoding(1, 1, 1)),
        ),
        "a request is cancelled": (state(decoding(0, 2, 3)), Cancel(0), state()),
        "one is preempted, one grows, one is admitted": (
            state(decoding(0, 1, 2), prefilling(2, 2, 3), waiting(1)),
            tick({0: 1, 1: 1}, preempt=(2,), admit=(1,)),
            state(decoding(0, 2, 3), waiting(2), decoding(1, 1, 1)),
        ),
    },
}
BROKEN = {
    "kv-within-cap": {"a block too many": (state(decoding(0, 2, 4), prefilling(2, 0, 3)),)},
    "blocks-conserved": {
        "a block is lost": (state(decoding(0, 1, 2), free=3),),
        "a block has two owners": (state(decoding(0, 1, 2), free=5),),
    },
    "only-residents-hold": {
        "who waits holds one": (state(waiting(0)._replace(blocks=1)),),
        "who prefills holds none": (state(prefilling(0, 0, 0)),),
        "who decodes holds none": (state(decoding(0, 1, 0)),),
    },
    "blocks-cover-context": {
        "a block too few": (state(decoding(0, 2, 2)),),
        "a block too many": (state(decoding(0, 1, 3)),),
        "the token to come has no slot": (state(prefilling(2, 0, 2)),),
        "the second of two has too few": (state(decoding(1, 1, 1), decoding(0, 2, 2)),),
        "the resident behind one that waits has too few": (state(waiting(2), decoding(0, 2, 2)),),
        "the peak of the last token": (state(prefilling(1, 0, 2)),),
    },
    "freed-at-once": {
        "a preempted request's blocks are lost": (
            state(decoding(0, 2, 3)),
            tick(preempt=(0,)),
            state(waiting(0, 2), free=3),
        ),
        "a cancelled request's blocks are lost": (
            state(decoding(0, 2, 3)),
            Cancel(0),
            state(free=3),
        ),
        "a growth takes nothing": (
            state(decoding(0, 1, 2)),
            tick({0: 1}),
            state(decoding(0, 2, 3), free=4),
        ),
        "who stays gives a block up": (
            state(decoding(0, 1, 2), decoding(1, 1, 1)),
            tick({0: 1}),
            state(decoding(0, 1, 2), decoding(1, 1, 1), free=4),
        ),
    },
}


@told(HOLDS, BROKEN)
def test_what_is_said_of(claim, case, expected) -> None:
    assert says(claim, *case) is expected


@pytest.mark.parametrize(("blocks", "expected"), [(2, False), (3, True), (4, False)])
def test_where_nobody_is_evicted_a_resident_holds_its_peak(blocks: int, expected: bool) -> None:
    case = state(prefilling(0, 0, blocks))
    assert says("blocks-cover-context", case, system=RESERVING) is expected
    assert says("blocks-cover-context", case, system=SYSTEM) is (blocks == 2)
