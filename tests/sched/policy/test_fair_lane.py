"""Fair-lane by examples: the lane, the share beside it, memory, and its state."""

from typing import Any

import pytest
from support.builders import (
    AnsweringExecutor,
    ConstantExecutor,
    a_request,
    run_to_end,
    submitted,
)
from support.core_checks import preemptions_of
from support.fair_stage import LIMITS, Stage

from batchproof import Limits, Scheduler
from batchproof.sched.policy.fair_lane import FairLane
from batchproof.sched.policy.fair_share import Terms


def test_the_first_tokens_of_a_light_user_go_before_the_decodes_of_a_heavy_one() -> None:
    stage = Stage()
    assert len(stage.ticks(4)[-1]) > 5
    stage.scheduler.submit(a_request("B", 24, 2, "B"))
    first, second, third, fourth = stage.ticks(4)
    # One sequence in the lane: half a sequence beside it, which is one in every second tick.
    assert first == {"B": 8}
    assert set(second) == {"B", "A0"}
    assert third == {"B": 8}
    assert len(fourth) > 5, "it has its first token: an ordinary tick again"


def test_a_light_user_takes_memory_from_a_heavy_one_that_holds_it_all() -> None:
    stage = Stage(heavy=16, output=100)
    stage.ticks(20)
    free = LIMITS.max_kv_blocks - stage.scheduler._roster.users["A"].held
    stage.scheduler.submit(a_request("B", 36, 4, "B"))
    assert free < 10
    assert "B" in stage.ticks(1)[0]
    assert preemptions_of(stage.scheduler)["A0"] == 0, "the oldest is never taken from"


def test_without_anybody_heavier_requests_go_by_age() -> None:
    stage = Stage(heavy=1)
    stage.scheduler.submit(a_request("B", 24, 2, "B"))
    stage.scheduler.submit(a_request("C", 8, 2, "C"))
    assert stage.ticks(1) == [{"A0": 8, "B": 8, "C": 8}]
    assert len(stage.ticks(1)[0]) == 3, "decodes first, then chunks of all"


def test_a_failed_tick_costs_no_credit_and_is_planned_again_alike() -> None:
    stage = Stage(executor=AnsweringExecutor())
    stage.ticks(4)
    stage.scheduler.submit(a_request("B", 24, 2, "B"))
    before = stage.policy.state()
    stage.scheduler.executor.answers = [RuntimeError("device lost")]  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError):
        stage.scheduler.tick()
    assert stage.policy.state() == before
    assert stage.ticks(1) == [{"B": 8}]
    assert stage.policy.state() != before


def test_nothing_is_remembered_of_users_that_left() -> None:
    stage = Stage(30, weights={"B": 2})
    stage.ticks(7)
    stage.scheduler.submit(a_request("B", 24, 2, "B"))
    stage.ticks(1)
    state: Any = stage.policy.state()
    assert [user for user, *_ in state[3]] == ["A", "B"], "what they were served"
    run_to_end(stage.scheduler)
    lane, _, latest, service, _ = stage.policy.state()  # type: ignore[misc]
    assert lane[3] == ()  # type: ignore[has-type]
    assert latest is None  # type: ignore[has-type]
    assert service == ()  # type: ignore[has-type]


@pytest.mark.parametrize(("weight", "has_lane"), [(1, False), (1.5, False), (2, True), (50, True)])
def test_who_is_light_is_a_matter_of_load_over_weight(weight: float, has_lane: bool) -> None:
    # A's load is 8 requests of 3 blocks and 8, B's 4 of as many: half of it.
    stage = Stage(output=2, weights={"B": weight})
    for number in range(4):
        stage.scheduler.submit(a_request(f"B{number}", 8, 2, "B"))
    stage.scheduler.tick()
    plan: Any = stage.scheduler._plan
    assert (plan.note.lane == ("B",)) == has_lane


def test_weights_can_make_a_user_of_the_same_load_light() -> None:
    stage = Stage(weights={"A": 0.25})
    stage.ticks(2)
    for number in range(8):
        stage.scheduler.submit(a_request(f"B{number}", 8, 60, "B"))
    stage.ticks(1)
    plan: Any = stage.scheduler._plan
    assert plan.note.lane == ("B",)
    assert plan.note.costs == (("B", 2**20 * 5 // 8),), (
        "its weight is 8/5 of the mean: it pays less"
    )


def test_a_user_may_hold_its_share_of_the_memory_by_weight() -> None:
    # Of the 32 blocks, A's, B may have 8 with a weight of 1/3, and 24 with one of 3.
    for weight, held in ((1 / 3, 8), (3, 16)):
        stage = Stage(heavy=60, output=100, weights={"B": weight})
        stage.ticks(20)
        for number in range(4):
            stage.scheduler.submit(a_request(f"B{number}", 15, 2, "B"))
        stage.ticks(1)
        assert stage.scheduler._roster.users["B"].held == held


def test_a_user_of_twice_the_weight_has_two_turns_of_chunks() -> None:
    limits = Limits(
        max_kv_blocks=32, block_size=4, chunk_size=8, token_budget=24, max_batch_size=16
    )
    orders = []
    for weights in ({}, {"A": 2}):
        scheduler = Scheduler(limits, executor=ConstantExecutor(), weights=weights)
        names = ("A0", "A1", "B0", "B1")
        submitted(scheduler, [a_request(name, 20, 2, name[0]) for name in names])
        scheduler.tick()
        orders.append([candidate.request_id for candidate, _ in scheduler._plan.prefill])
    assert orders == [["A0", "B0", "A1"], ["A0", "A1", "B0"]]


def test_before_the_first_plan_its_terms_are_those_given_or_of_the_default_limits() -> None:
    given = Terms.of(LIMITS)
    assert FairLane(terms=given).terms is given
    assert FairLane().terms == Terms.of(Limits())


def test_under_guaranteed_no_evict_nobody_is_preempted() -> None:
    policy = FairLane("guaranteed_no_evict")
    scheduler = Scheduler(LIMITS, policy, ConstantExecutor())
    submitted(scheduler, [a_request(f"A{n}", 8, 60, "A") for n in range(8)])
    for _ in range(4):
        scheduler.tick()
    scheduler.submit(a_request("B", 24, 2, "B"))
    run_to_end(scheduler)
    assert scheduler.stats()["preemptions"] == 0
