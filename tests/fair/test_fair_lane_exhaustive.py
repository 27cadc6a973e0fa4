"""Fair-lane at small scale, in every run there is: two users, one four times as heavy as the other.

The environment submits whatever it likes whenever it likes and decides whose
output ends. Credit is made small, so that it runs out and comes back.
"""

from collections import deque
from typing import Any

import pytest

from batchproof.sched.policy.fair_lane import FairLane
from batchproof.sched.policy.fair_lane_claims import Resident, heads_go_last, oldest_goes_on
from batchproof.sched.policy.fair_share import Terms
from batchproof.sched.refinement import UnderPolicy
from batchproof.spec.actions import Tick
from batchproof.spec.lifecycle import RESIDENT
from batchproof.spec.state import Limits, Request, State, System

STATES_MAX = 60_000
HEAVY = tuple(Request(0, prompt=1, max_tokens=3) for _ in range(3))
SIZES = {
    "heavy beside light": System(
        Limits(max_kv_blocks=2, block_size=2, chunk_size=2, token_budget=3, max_batch_size=2),
        (*HEAVY, Request(1, prompt=2, max_tokens=1)),
        cancels=False,
    ),
}


TERMS = Terms(lane_ticks=1, reserve=0, step=1, debt_max=2, heavier=3, credit=4, purse=1)


def residents_of(model: UnderPolicy, state: State) -> list[Resident]:
    users = model.system.requests
    return [
        Resident(f"u{users[live.request].user}", number)
        for number, live in enumerate(state.live)
        if live.phase in RESIDENT
    ]


@pytest.mark.parametrize("size", SIZES)
def test_the_claims_hold_in_every_state_and_every_request_can_always_end(
    size: str,
) -> None:
    system = SIZES[size]
    model = UnderPolicy(system, policy=FairLane(terms=TERMS))
    lanes = preempting = 0
    seen = set(model.initial())
    waves = deque(seen)
    ending: set[State] = set()
    while waves:
        state = waves.popleft()
        assert len(seen) < STATES_MAX
        if state.live:
            plan: Any = model._plan(state)
            residents = residents_of(model, state)
            preempted = [c.number for c in plan.preempt]
            assert oldest_goes_on(residents, preempted)
            assert heads_go_last(residents, preempted)
            assert plan.decode or plan.prefill, "a tick with live requests feeds something"
            lanes += bool(plan.note.lane)
            preempting += bool(preempted)
            if state not in ending:
                ending |= run_to_empty(model, state, ending)
        for _, after in model.successors(state):
            if after not in seen:
                seen.add(after)
                waves.append(after)
    print(f"{size}: {len(seen)} states, {lanes} with a lane, {preempting} preempting")
    assert lanes
    assert preempting


def run_to_empty(model: UnderPolicy, state: State, ending: set[State]) -> set[State]:
    """Return the states on the way to the end of all, if nobody submits and no output ends early.

    Fails where there is no end: the run would then come back to one of its own states.
    """
    way: set[State] = set()
    while state.live and state not in ending:
        assert state not in way, "somebody never ends"
        way.add(state)
        state = next(
            after
            for event, after in model.successors(state)
            if isinstance(event, Tick) and not event.eos
        )
    return way
