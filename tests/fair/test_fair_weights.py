"""Shares in proportion to weights, and the same decisions as ever where weights are equal."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from support.builders import ConstantExecutor, a_request
from support.fair_stage import LIMITS

from batchproof import Scheduler
from batchproof.sched.fairness import (
    BACKLOGS,
    MODELS,
    Workload,
    backlog,
    equal_users,
    random_trial,
    run,
    tokens_while_all_wait,
)
from batchproof.sched.policy.service import UNIT

# `make fairness` measures more of them, and longer.
TOLERANCE = 0.1
"""How far a user's tokens may be from its share, as a fraction of the share."""
REQUESTS = {"chats": 100, "short": 200, "a token or few": 400}
"""Of the user with the smallest weight: chance in their lengths is smaller the more there are."""
WEIGHTS = ({"A": 3, "B": 1}, {"A": 1, "B": 0.5})


def with_weights(workload: Workload, weights: Mapping[str, float]) -> Workload:
    return Workload(
        workload.jobs, workload.latency, workload.limits, workload.light_when_full, weights
    )


@pytest.mark.parametrize("policy", ["fair-lane", "vtc"])
@pytest.mark.parametrize("weight", [2, 0.5, 7])
@pytest.mark.parametrize("seed", range(2))
def test_weights_that_are_all_equal_decide_as_none(seed: int, weight: float, policy: str) -> None:
    for workload in (random_trial(seed), equal_users(9.0, seed, MODELS[2], users=4)):
        weights = dict.fromkeys(workload.users, weight)
        assert run(with_weights(workload, weights), policy) == run(workload, policy)


@pytest.mark.parametrize("scale", [2, 0.25])
def test_only_the_ratios_of_weights_count(scale: float) -> None:
    workload = equal_users(9.0, 1, MODELS[2], users=3)
    some = {"u1": 3, "u2": 2, "u3": 1}
    scaled = {user: scale * weight for user, weight in some.items()}
    as_is = run(with_weights(workload, some), "fair-lane")
    assert as_is == run(with_weights(workload, scaled), "fair-lane")
    assert as_is != run(workload, "fair-lane")


@pytest.mark.parametrize("policy", ["fair-lane", "vtc"])
@pytest.mark.parametrize("lengths", REQUESTS)
@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
def test_users_that_want_more_than_there_is_get_tokens_by_weight(
    weights: dict[str, float], lengths: str, policy: str
) -> None:
    requests = round(REQUESTS[lengths] / min(weights.values()))
    workload = backlog(weights, BACKLOGS[lengths], requests, MODELS[2], seed=0)
    tokens = tokens_while_all_wait(workload, policy)
    for user, weight in weights.items():
        share = weight / sum(weights.values())
        assert tokens[user] / sum(tokens.values()) == pytest.approx(share, rel=TOLERANCE), user


def test_a_policy_that_knows_no_users_knows_no_weights() -> None:
    workload = backlog({"A": 3, "B": 1}, BACKLOGS["short"], 50, MODELS[2], seed=0)
    assert tokens_while_all_wait(workload, "stall-free")["B"] == 0, "A's are all older"


@pytest.mark.parametrize("seed", range(4))
def test_users_are_charged_for_the_blocks_that_they_take_but_not_to_recompute(seed: int) -> None:
    rng, weights = Random(seed), {"A": 1, "B": 2, "C": 5}
    scheduler = Scheduler(LIMITS, "fair-lane", ConstantExecutor(), weights=weights)
    lanes = charged = 0
    for number in range(100):
        user = rng.choice("AAAAAABC")
        request = a_request(f"{number}", rng.randint(1, 40), rng.randint(1, 12), user)
        scheduler.submit(request)
        for _ in range(rng.randint(0, 3)):
            users: Any = scheduler._roster.users
            mean = Fraction(users.weight_sum, len(users)) if users else 1
            batch = scheduler.schedule()
            blocks = Counter(sequence.user_id for sequence in batch.grown)
            for sequence in batch.admitted:
                blocks[sequence.user_id] += sequence.block_count * (not sequence.generated)
            note: Any = scheduler._plan.note
            scheduler.complete(batch, [7] * len(batch))
            if note is not None and note.service is not None:
                service = {user: blocks[user] * UNIT * mean / weights[user] for user in blocks}
                assert dict(note.service[1]) == pytest.approx(service, abs=LIMITS.max_batch_size)
                lanes, charged = lanes + bool(note.lane), charged + bool(service)
    assert lanes > 10
    assert charged > 50
