"""Virtual token counters by examples: least service first, idleness earns nothing."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.builders import ConstantExecutor, a_request, run_to_end, submitted
from support.core_checks import Recorder, preemptions_of

from batchproof import Limits, Scheduler
from batchproof.sched.policy.service import UNIT
from batchproof.sched.policy.vtc import Vtc

ONE_SEAT = Limits(
    max_kv_blocks=64, block_size=4, chunk_size=64, token_budget=64, max_batch_size=1
)  # fmt: skip


def served(*requests: tuple[str, str, int, int]) -> list[str]:
    """Submit (id, user, prompt, output) all at once; return the ids in order of service."""
    recorder = Recorder()
    scheduler = Scheduler(ONE_SEAT, "vtc", ConstantExecutor(), observer=recorder)
    submitted(scheduler, [a_request(i, prompt, out, user) for i, user, prompt, out in requests])
    return [request.request_id for request in run_to_end(scheduler)]


def test_two_users_take_turns_whoever_came_first() -> None:
    queued = [(f"a{n}", "A", 4, 2) for n in range(3)] + [(f"b{n}", "B", 4, 2) for n in range(3)]
    assert served(*queued) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_service_is_counted_in_tokens_not_in_requests() -> None:
    # 16 + 2 x 1 tokens of A against 2 + 2 x 1 of B: four of B's for one of A's, and a bit.
    queued = [(f"a{n}", "A", 16, 1) for n in range(2)] + [(f"b{n}", "B", 2, 1) for n in range(6)]
    assert served(*queued) == ["a0", "b0", "b1", "b2", "b3", "b4", "a1", "b5"]


def test_a_user_that_was_idle_is_lifted_and_has_nothing_saved_up() -> None:
    policy = Vtc()
    recorder = Recorder()
    scheduler = Scheduler(ONE_SEAT, policy, ConstantExecutor(), observer=recorder)
    for index in range(20):
        scheduler.submit(a_request(f"w{index}", 4, 1, "A"))
    for _ in range(10):
        scheduler.tick()
    submitted(scheduler, [a_request(f"b{index}", 4, 1, "B") for index in range(5)])
    ended = [request.user_id for request in run_to_end(scheduler)]
    assert ended[:10] in (["A", "B"] * 5, ["B", "A"] * 5)
    assert policy.state() == (), "a user without live requests is forgotten"


def test_the_floor_survives_when_everybody_leaves() -> None:
    policy = Vtc()
    scheduler = Scheduler(ONE_SEAT, policy, ConstantExecutor())
    scheduler.submit(a_request("a0", 4, 2, "A"))
    run_to_end(scheduler)
    submitted(scheduler, [a_request("a1", 4, 2, "A"), a_request("b0", 4, 2, "B")])
    submitted(scheduler, [a_request("a2", 4, 2, "A"), a_request("b1", 4, 2, "B")])
    assert [r.request_id for r in run_to_end(scheduler)] == ["a1", "b0", "a2", "b1"]


def test_a_tick_that_fails_charges_nobody() -> None:
    policy = Vtc()
    scheduler = Scheduler(ONE_SEAT, policy, ConstantExecutor())
    scheduler.submit(a_request("a0", 4, 2, "A"))
    before = policy.state()
    batch = scheduler.schedule()
    scheduler.abandon(batch)
    assert policy.state() == before
    scheduler.tick()
    assert policy.state() != before


def test_who_leaves_others_behind_does_not_raise_the_floor_for_them() -> None:
    policy = Vtc()
    policy.restore((("A", 50, True), ("B", 10, True)))
    policy.left("A")
    assert policy.state() == (("B", 10, True),)


def test_who_waits_again_keeps_its_count_and_who_is_new_begins_with_the_least() -> None:
    policy = Vtc()
    policy.restore((("A", 50, False), ("B", 0, True)))
    view: Any = SimpleNamespace(waiting_by_user=dict.fromkeys("ABC", ()))
    assert policy._lifted(view) == {"A": 50, "B": 0, "C": 0}


@pytest.mark.parametrize(
    ("weight", "count"),
    [
        pytest.param(1, 3 * UNIT, id="weight 1"),
        pytest.param(2, 3 * UNIT // 2, id="without a rest"),
        # A prompt token is 42,395 and 5/17 parts, an output token twice as many.
        pytest.param(17, 42_396 + 84_791, id="each rounded up"),
    ],
)
def test_service_is_counted_in_whole_parts_over_the_weight(weight: int, count: int) -> None:
    policy = Vtc()
    scheduler = Scheduler(ONE_SEAT, policy, ConstantExecutor(), weights={"A": weight})
    scheduler.submit(a_request("a0", 1, 2, "A"))
    scheduler.tick()
    assert policy.state() == (("A", count, True),)


def test_a_prompt_is_counted_once_however_often_it_is_admitted() -> None:
    limits = Limits(
        max_kv_blocks=3, block_size=4, chunk_size=64, token_budget=64, max_batch_size=2
    )  # fmt: skip
    policy = Vtc()
    scheduler = Scheduler(limits, policy, ConstantExecutor())
    submitted(scheduler, [a_request("a0", 3, 9, "A"), a_request("b0", 3, 9, "B")])
    while not scheduler.tick():
        pass
    assert preemptions_of(scheduler) == {"b0": 1}
    assert policy.state() == (("B", 0, True),)
    scheduler.tick()
    assert policy.state() == (("B", 2 * UNIT, True),), "one output token"
