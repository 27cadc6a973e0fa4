"""What the claims that something happens, and that nothing is left idle, say."""

from dataclasses import replace

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

from batchproof.invariants.progress import gap_promised
from batchproof.spec.actions import Cancel, Submit
from batchproof.spec.state import LONG_GAP, History

SUBMITTED = (state(), Submit(0), state(waiting(0)))
CROWD = state(decoding(0, 1, 2), decoding(1, 1, 1), waiting(2))
"""Three blocks are free: one for the growth of the first, and what is left is too little."""
STUCK = state(decoding(0, 1, 2), prefilling(2, 0, 3), decoding(1, 1, 1))
"""No block is free, and the oldest needs one."""
HOLDS = {
    "work-is-legal": {
        "no tick": SUBMITTED,
        "a chunk": (state(prefilling(0, 0, 2)), tick({0: 2}), state(prefilling(0, 2, 2))),
    },
    "tick-possible": {
        "nobody is live": (state(),),
        "one waits, and fits": (state(waiting(0)),),
    },
    "tick-feeds": {
        "no tick": SUBMITTED,
        "one token": (state(decoding(0, 1, 2)), tick({0: 1}), state(decoding(0, 2, 3))),
    },
    "never-evicts": {
        "no tick": SUBMITTED,
        "nobody is preempted": (state(decoding(0, 1, 2)), tick({0: 1}), state()),
    },
    "no-idle-capacity": {
        "no tick": SUBMITTED,
        "a whole chunk, and the next in line does not fit": (
            state(prefilling(0, 0, 2), prefilling(1, 0, 1), waiting(2), free=2),
            tick({0: 2, 1: 1}),
            state(),
        ),
        "the whole budget": (
            state(prefilling(2, 0, 3), prefilling(0, 0, 2), waiting(1)),
            tick({2: 2, 0: 2}),
            state(),
        ),
        "every seat, and one more decodes": (
            state(decoding(0, 0, 2), decoding(1, 1, 1), decoding(2, 1, 3)),
            tick({0: 1, 1: 1}),
            state(),
        ),
        "every seat, and one waits": (
            state(decoding(0, 0, 2), decoding(1, 1, 1), waiting(1)),
            tick({0: 1, 1: 1}),
            state(),
        ),
        "all that is left of a prompt": (
            state(prefilling(0, 2, 2)),
            tick({0: 1}),
            state(decoding(0, 1, 2)),
        ),
        "all that is left of a recomputation": (
            state(prefilling(0, 3, 3, generated=1)),
            tick({0: 1}),
            state(decoding(0, 2, 3)),
        ),
        "a decode that no block is left for": (
            state(decoding(0, 1, 2), prefilling(2, 0, 3), free=0),
            tick({2: 2}),
            state(),
        ),
        "one who was preempted waits again, and does not fit": (
            state(decoding(0, 1, 2), prefilling(2, 0, 3), waiting(1), free=0),
            tick({0: 1}, preempt=(2,)),
            state(),
        ),
        "who does not fit stops those behind": (
            state(decoding(0, 0, 2), waiting(2), waiting(1), free=1),
            tick({0: 1}),
            state(),
        ),
        "what was admitted took the blocks": (
            state(waiting(0), waiting(2), free=4),
            tick({0: 2}, admit=(0,)),
            state(),
        ),
        "what grew took the block": (
            state(decoding(0, 1, 2), waiting(1), free=1),
            tick({0: 1}),
            state(),
        ),
    },
    "preemption-is-needed": {
        "no tick": SUBMITTED,
        "nobody is preempted": (STUCK, tick({1: 1}), state()),
        "the oldest grows into what the youngest held": (
            state(decoding(0, 1, 2), prefilling(2, 0, 3), decoding(1, 1, 1), free=0),
            tick({0: 1}, preempt=(1,)),
            state(),
        ),
        "of who is not live another claim speaks": (
            state(decoding(0, 1, 2)),
            tick({0: 1}, preempt=(1,)),
            state(),
        ),
        "it is stuck itself": (
            state(decoding(0, 1, 2), free=0),
            tick(preempt=(0,)),
            state(),
        ),
        "an admission takes them": (
            state(waiting(0), decoding(1, 1, 1), prefilling(2, 0, 3), free=1),
            tick({0: 2}, preempt=(1,), admit=(0,)),
            state(),
        ),
        "of two that must grow one gives way, after another whose blocks went to the first": (
            state(decoding(0, 1, 2), decoding(2, 0, 2), prefilling(1, 0, 1), free=0),
            tick({0: 1}, preempt=(1, 2)),
            state(),
        ),
        "the first had too little, and the second has more than is missing": (
            state(decoding(0, 1, 2), waiting(0), prefilling(3, 0, 3), prefilling(1, 0, 1), free=0),
            tick({0: 1}, preempt=(1, 3), admit=(0,)),
            state(),
        ),
    },
    "oldest-stays": {
        "no tick": SUBMITTED,
        "nobody is preempted": (CROWD, tick({0: 1}), CROWD),
        "the youngest": (CROWD, tick({0: 1}, preempt=(1,)), CROWD),
        "the oldest of all waits": (
            state(waiting(2), decoding(0, 1, 2), decoding(1, 1, 1)),
            tick({0: 1}, preempt=(1,)),
            state(),
        ),
    },
    "bounded-time-between-tokens": {
        "no policy, no promise": (state(decoding(0, 1, 2)),),
        "a token in the last tick": (state(history=History(gaps=(0, 0))),),
    },
}
BROKEN = {
    "work-is-legal": {
        "a token too many": (state(prefilling(0, 0, 2)), tick({0: 3}), state()),
        "nothing is fed": (state(prefilling(0, 0, 2)), tick(), state()),
    },
    "tick-possible": {"one waits, and its blocks are lost": (state(waiting(0), free=1),)},
    "tick-feeds": {
        "nobody": (state(decoding(0, 1, 2)), tick(), state(decoding(0, 1, 2))),
        "no tokens": (state(decoding(0, 1, 2)), tick({0: 0}), state(decoding(0, 1, 2))),
    },
    "never-evicts": {
        "one is preempted": (state(decoding(0, 1, 2)), tick(preempt=(0,)), state(waiting(0, 1)))
    },
    "no-idle-capacity": {
        "half a chunk": (state(prefilling(0, 0, 2)), tick({0: 1}), state(prefilling(0, 1, 2))),
        "half a chunk of a recomputation": (
            state(prefilling(0, 2, 3, generated=2)),
            tick({0: 1}),
            state(prefilling(0, 3, 3, generated=2)),
        ),
        "a decode is left out": (
            state(decoding(1, 1, 1), decoding(0, 0, 2)),
            tick({1: 1}),
            state(),
        ),
        "a decode that a block is free for is left out": (
            state(prefilling(2, 0, 3), decoding(0, 1, 2), free=1),
            tick({2: 2}),
            state(),
        ),
        "a chunk is shorter for no cause, and every seat is taken": (
            state(prefilling(0, 0, 2), decoding(1, 1, 1)),
            tick({0: 1, 1: 1}),
            state(),
        ),
        "who waits fits": (state(decoding(1, 1, 1), waiting(0)), tick({1: 1}), state()),
        "who waits just fits": (
            state(decoding(1, 1, 1), waiting(0), free=2),
            tick({1: 1}),
            state(),
        ),
        "who waits fits, though not with all that it generated": (
            state(decoding(1, 1, 1), waiting(0, 1), free=3),
            tick({1: 1}),
            state(),
        ),
        "who was preempted fits": (
            state(decoding(0, 0, 2), decoding(1, 1, 1)),
            tick({0: 1}, preempt=(1,)),
            state(),
        ),
        "who was admitted is fed too little": (
            state(waiting(0)),
            tick({0: 1}, admit=(0,)),
            state(prefilling(0, 1, 2)),
        ),
        "who was admitted is not fed": (
            state(waiting(0), decoding(1, 1, 1)),
            tick({1: 1}, admit=(0,)),
            state(),
        ),
    },
    "preemption-is-needed": {
        "its blocks stay free": (
            state(decoding(0, 0, 2), decoding(1, 1, 1), free=3),
            tick({0: 1}, preempt=(1,)),
            state(),
        ),
        "it could have grown": (
            state(decoding(0, 1, 2), free=1),
            tick(preempt=(0,)),
            state(),
        ),
        "one is stuck, and its blocks would have done": (
            state(decoding(0, 1, 2), decoding(2, 0, 2), prefilling(1, 0, 1), free=0),
            tick({}, preempt=(0, 1)),
            state(),
        ),
        "the first had what was missing": (
            state(decoding(0, 1, 2), decoding(2, 0, 2), prefilling(1, 0, 1), free=0),
            tick({0: 1}, preempt=(2, 1)),
            state(),
        ),
        "one prefill's blocks would have done, and it is not stuck": (
            state(decoding(0, 1, 2), prefilling(3, 0, 2), prefilling(1, 0, 1), waiting(7), free=0),
            tick({0: 1, 7: 1}, preempt=(3, 1), admit=(7,)),
            state(),
        ),
        "a prefill is never stuck": (
            state(decoding(1, 1, 1), prefilling(0, 0, 2), free=0),
            tick({1: 1}, preempt=(0,)),
            state(),
        ),
    },
    "oldest-stays": {
        "the oldest": (CROWD, tick({1: 1}, preempt=(0,)), CROWD),
        "the oldest resident, behind one that waits": (
            state(waiting(2), decoding(0, 1, 2), decoding(1, 1, 1)),
            tick({1: 1}, preempt=(0,)),
            state(),
        ),
    },
    "bounded-time-between-tokens": {
        "a tick without a token": (state(history=History(gaps=(0, 1))),),
    },
}


@told(HOLDS, BROKEN)
def test_what_is_said_of(claim, case, expected) -> None:
    assert says(claim, *case) is expected


@pytest.mark.parametrize(
    ("seats", "budget", "gap"),
    [(2, 4, 1), (4, 4, 1), (4, 2, 2), (5, 2, 3), (1, 1, 1), (64, 1, 64)],
)
def test_decodes_take_turns_where_the_budget_is_smaller_than_the_batch(seats, budget, gap) -> None:
    limits = SYSTEM.limits._replace(max_batch_size=seats, token_budget=budget)
    system = replace(SYSTEM, limits=limits)
    assert gap_promised(system) == gap
    told_apart = min(gap, LONG_GAP)
    for ticks in range(LONG_GAP + 1):
        case = state(history=History(gaps=(0, ticks)))
        said = says("bounded-time-between-tokens", case, system=system)
        assert said is (ticks < told_apart)


def test_where_memory_is_reserved_an_admission_needs_its_peak() -> None:
    case = (state(decoding(1, 1, 1), waiting(0), free=2), tick({1: 1}), state())
    assert says("no-idle-capacity", *case, system=RESERVING)
    assert not says("no-idle-capacity", *case, system=SYSTEM)


def test_cancelling_is_no_preemption() -> None:
    assert says("oldest-stays", CROWD, Cancel(0), state(decoding(1, 1, 1), waiting(2)))
