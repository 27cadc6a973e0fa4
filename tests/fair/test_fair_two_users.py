"""The course's fairness test and harder: 100 requests of A and 5 of B within one second."""

import pytest

from batchproof.sched.config import Limits
from batchproof.sched.fairness import (
    MODELS,
    SCENARIOS,
    Scenario,
    equal_users,
    quantile,
    random_trial,
    run,
    ttft_ratio,
    two_users,
)
from batchproof.sched.latency import LatencyModel

# Seeds and trials of the ordinary suite; `make fairness` runs all.
SEED = 3
TRIALS = range(200, 216)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_light_user_waits_at_most_twice_as_long_as_alone(
    scenario: Scenario, model: LatencyModel
) -> None:
    workload = two_users(scenario, model, SEED)
    together = run(workload, "fair-lane")
    assert ttft_ratio(workload, "fair-lane", together) <= 1.4
    stall_free = run(workload, "stall-free")
    assert together.throughput >= 0.96 * stall_free.throughput


def test_first_come_first_served_makes_it_wait_far_longer() -> None:
    workload = two_users(SCENARIOS[0], MODELS[2], SEED)
    together = run(workload, "stall-free")
    assert ttft_ratio(workload, "stall-free", together) > 20


def test_no_random_trial_makes_a_light_user_wait_twice_as_long() -> None:
    light = 0
    for seed in TRIALS:
        workload = random_trial(seed)
        if 2 * workload.prompt_blocks("B") > workload.limits.max_kv_blocks:
            continue
        light += 1
        together = run(workload, "fair-lane")
        assert ttft_ratio(workload, "fair-lane", together) <= 2, f"trial {seed}"
    assert light > len(TRIALS) // 3


def test_equal_users_lose_nothing_by_it() -> None:
    workload = equal_users(5.0, seed=1, latency=MODELS[2])
    outcomes = {name: run(workload, name) for name in ("stall-free", "vtc", "fair-lane")}
    p99 = {
        name: quantile([t for times in outcome.ttft_s.values() for t in times], 0.99)
        for name, outcome in outcomes.items()
    }
    assert outcomes["fair-lane"].throughput >= 0.98 * outcomes["stall-free"].throughput
    assert outcomes["fair-lane"].preemptions <= outcomes["stall-free"].preemptions
    assert p99["fair-lane"] <= p99["vtc"]


def test_the_same_workload_gives_the_same_run() -> None:
    workload = random_trial(3)
    assert run(workload, "fair-lane") == run(workload, "fair-lane")
    assert random_trial(3) == workload != random_trial(4)
    assert workload.limits.max_kv_blocks == Limits().max_kv_blocks
