"""Who has a lane, what it costs, and what fair-lane remembers of a tick, by examples."""

from typing import Any

import pytest
from support.builders import ConstantExecutor, a_request, submitted
from support.fair_stage import LIMITS, Stage

from batchproof import Scheduler
from batchproof.sched.policy.fair_lane import FairLane
from batchproof.sched.policy.fair_share import Terms
from batchproof.sched.policy.service import UNIT


def at_work(heavy: int = 8, weights: dict[str, float] | None = None) -> Stage:
    """A has decoded for some ticks, of a second each."""
    stage = Stage(heavy, weights=weights)
    stage.ticks(4)
    return stage


@pytest.mark.parametrize(("requests", "has_lane"), [(7, True), (8, True), (9, False)])
def test_who_asks_for_more_than_the_memory_is_not_light(requests: int, has_lane: bool) -> None:
    stage = at_work(heavy=60)
    stage.submit("B", 15, 2, requests)  # of 4 blocks each, in a memory of 32
    stage.tick()
    assert stage.lane == (("B",) if has_lane else ())


def test_of_users_with_a_lane_none_is_heavier_than_another() -> None:
    stage = at_work(heavy=80)
    stage.submit("C", 8, 2, 5)
    stage.submit("B", 8, 2)
    stage.tick()
    assert {user for user, _ in stage.scheduler._roster.users.items()} == {"A", "B", "C"}
    assert {"B0", "C0"} <= {c.request_id for c in stage.scheduler._plan.admit}
    assert stage.lane == ("B",)


@pytest.mark.parametrize(("credits_left", "lane"), [(0, ()), (1, ("B",))])
def test_without_credit_there_is_no_lane(credits_left: int, lane: tuple[str, ...]) -> None:
    stage = at_work()
    stage.submit("B", 24, 2)
    credit = credits_left * stage.policy.terms.credit
    stage.policy.restore(((0, 0, 0, (("B", credit),)), *stage.state[1:]))
    stage.tick()
    assert stage.lane == lane
    assert stage.policy.credit_of("A") > stage.policy.terms.credit


def test_a_lane_tick_costs_a_credit_and_any_other_brings_back_a_quarter_among_all() -> None:
    stage = at_work()
    terms = stage.policy.terms
    full = terms.lane_ticks * terms.credit
    assert stage.policy.credit_of("B") == full
    stage.submit("B", 24, 60)
    stage.ticks(3)
    assert stage.policy.credit_of("B") == full - 3 * terms.credit
    assert stage.policy.credit_of("A") == full
    _, _, lent, _ = stage.state[0]
    assert lent == full, "what B began with"
    stage.tick()
    assert stage.policy.credit_of("B") == full - 3 * terms.credit + terms.credit // 8
    _, _, lent, _ = stage.state[0]
    assert lent == full - terms.credit // 4


def test_credit_comes_back_in_whole_parts() -> None:
    policy = FairLane(terms=Terms.of(LIMITS)._replace(credit=30))
    scheduler = Scheduler(LIMITS, policy, ConstantExecutor())
    names = [*(f"A{n}" for n in range(8)), "B0", "C0"]
    submitted(scheduler, [a_request(name, 8, 60, name[0]) for name in names])
    full = policy.terms.lane_ticks * 30
    scheduler.tick()
    assert [policy.credit_of(user) for user in "ABC"] == [full, full - 30, full - 30]
    scheduler.tick()
    # A quarter is 7 and a half, and a third of that 2 and a half.
    assert [policy.credit_of(user) for user in "ABC"] == [full, full - 30 + 2, full - 30 + 2]
    state: Any = policy.state()
    _, _, lent, _ = state[0]
    assert lent == 2 * full - 7


def test_each_tick_is_remembered_with_its_tokens_sequences_and_time() -> None:
    stage = at_work()
    stage.submit("B", 24, 2)
    stage.ticks(2)
    assert stage.state[4][-2:] == ((8, 1, 10**9), (9, 2, 10**9))


def test_a_tick_of_which_nobody_tells_the_time_is_not() -> None:
    stage = at_work()
    before = stage.state[4]
    stage.policy.completed(stage.scheduler._plan)
    assert stage.state[4] == before


@pytest.mark.parametrize(
    ("fixed", "token", "sequence", "decodes"),
    [
        pytest.param(1000, 10, 5, 7, id="decodes cost little"),
        pytest.param(1000, 10, 50, 4, id="a sequence costs as much as five tokens"),
        pytest.param(10, 1, 100, 0, id="each decode makes it longer by nearly all its time"),
        pytest.param(7 * 10**9, 10**9, 10**9, 2, id="two make it longer by a quarter exactly"),
    ],
)
def test_where_times_are_known_the_lane_takes_decodes_until_it_is_a_quarter_longer(
    fixed: int, token: int, sequence: int, decodes: int
) -> None:
    stage = at_work()
    sizes = [(n, s) for s in range(1, 18) for n in (s, 4 * s + 3)]
    seen = [(n, s, fixed + token * n + sequence * s) for n, s in sizes]
    stage.policy.restore((*stage.state[:4], tuple(seen)))
    stage.submit("B", 24, 2)
    # A7 has given up its memory for B0.
    assert stage.tick() == {"B0": 8, **{f"A{n}": 1 for n in range(decodes)}}


def test_beside_the_lane_its_own_users_decodes_go_first() -> None:
    stage = at_work()
    stage.submit("B", 8, 60)
    assert stage.tick() == {"B0": 8}
    stage.scheduler.submit(a_request("B9", 8, 60, "B"))
    assert stage.tick() == {"B9": 8, "B0": 1}


def test_what_users_were_served_is_forgotten_with_them_and_where_weights_are_equal() -> None:
    stage = at_work(heavy=60, weights={"C": 2})
    stage.submit("C", 8, 60, 30)
    stage.submit("B", 8, 3)
    stage.tick()
    assert {user for user, _ in stage.state[3]} == {"A", "B", "C"}
    while "B" in stage.scheduler._roster.users:
        stage.tick()
    assert {user for user, _ in stage.state[3]} == {"A", "C"}
    stage.scheduler.set_weight("C", 1)
    stage.tick()
    assert stage.state[3] == ()


def test_growth_is_charged_in_the_tick_that_takes_the_block() -> None:
    stage = Stage(30, weights={"B": 2})
    stage.ticks(7)
    stage.submit("B", 40, 2)
    stage.ticks(2)
    # A0 is about to grow, and every other tick it has no seat beside the lane.
    assert stage.tick() == {"B0": 8}
    assert dict(stage.state[3])["A"] == 0
    assert stage.tick() == {"B0": 8, "A0": 1}
    assert dict(stage.state[3])["A"] == UNIT * 3 // 2


def test_nobody_gives_way_to_growth_that_has_no_seat_beside_the_lane() -> None:
    stage = Stage(6)
    stage.ticks(11)
    stage.submit("B", 24, 2)
    stage.ticks(2)
    # No block is free. A0 is about to grow, and every other tick it has no seat.
    assert stage.tick() == {"B0": 8}
    assert stage.scheduler._plan.preempt == []
    stage.tick()
    assert [c.request_id for c in stage.scheduler._plan.preempt] == ["A4"]
