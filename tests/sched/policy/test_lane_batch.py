"""What is in a batch of fair-lane, the lane's or an ordinary one, and in which order."""

import pytest
from support.builders import ConstantExecutor, a_request, submitted
from support.core_checks import preemptions_of
from support.fair_stage import LIMITS, Stage

from batchproof import Scheduler


def with_a_long_prompt_under_way() -> Stage:
    """A has a prompt of 60 tokens under way; its decodes A0, A1 and A2 are younger."""
    stage = Stage(heavy=0)
    stage.scheduler.submit(a_request("long", 60, 2, "A"))
    stage.submit("A", 8, 60, 3)
    assert stage.tick() == {"long": 8, "A0": 8, "A1": 8, "A2": 8}
    return stage


def test_decodes_of_light_users_without_a_lane_are_in_it_until_the_seats_end() -> None:
    stage = Stage(heavy=0, weights={"A": 0.01})
    stage.submit("A", 40, 2)
    stage.tick()
    stage.submit("C", 1, 60, LIMITS.max_batch_size)
    stage.tick()
    stage.submit("B", 12, 2)
    assert "C0" not in stage.tick(), "with one request of B, C is heavier"
    submitted(stage.scheduler, [a_request(f"B{n}", 12, 2, "B") for n in (1, 2, 3)])
    assert stage.tick() == {"B0": 4, **{f"C{n}": 1 for n in range(15)}}, "with four it is not"
    assert stage.lane == ("B",)


def test_beside_it_what_a_light_user_computes_again_goes_before_heavier_work() -> None:
    stage = Stage()
    stage.ticks(4)
    stage.submit("C", 3, 60, 2)
    stage.scheduler.set_weight("C", 0.01)
    while not preemptions_of(stage.scheduler)["C1"]:
        stage.tick()
    stage.scheduler.set_weight("C", 1)
    stage.submit("B", 24, 2)
    # The lane is B0 and C0: half of 2 sequences and of 9 tokens is for others.
    assert stage.tick() == {"B0": 8, "C0": 1, "C1": 4}


def test_beside_it_a_heavier_prompt_has_at_most_half_of_its_tokens_in_every_second_tick() -> None:
    stage = with_a_long_prompt_under_way()
    stage.submit("B", 20, 2)
    assert stage.ticks(3) == [{"B0": 8}, {"B0": 8, "long": 4}, {"B0": 4}]


def test_where_times_are_known_decodes_pass_a_prompt_that_has_no_share_in_the_tick() -> None:
    stage = with_a_long_prompt_under_way()
    seen = [(n, s, 1000 + 10 * n + 5 * s) for s in range(1, 18) for n in (s, 4 * s + 3)]
    stage.policy.restore((*stage.state[:4], tuple(seen)))
    stage.submit("B", 20, 2)
    assert stage.tick() == {"B0": 8, "A0": 1, "A1": 1, "A2": 1}


@pytest.mark.parametrize(
    ("names", "weights", "order"),
    [
        pytest.param("A0 B0", {}, "A0 B0", id="equal weights: by age"),
        pytest.param("A0 B0", {"B": 2}, "B0 A0", id="the heavier weight's turn comes first"),
        pytest.param("A0 B0 A1", {"A": 2}, "A0 B0 A1", id="of turns at the same time: by age"),
        pytest.param("A0 A1 A2 B0", {"A": 2}, "A0 A1 B0 A2", id="two of A's in each turn"),
    ],
)
def test_chunks_are_fed_in_turn(names: str, weights: dict[str, float], order: str) -> None:
    scheduler = Scheduler(LIMITS, executor=ConstantExecutor(), weights=weights)
    submitted(scheduler, [a_request(name, 9, 2, name[0]) for name in names.split()])
    scheduler.tick()
    assert " ".join(candidate.request_id for candidate, _ in scheduler._plan.prefill) == order
