"""Runs under limits as tight as they get: few blocks, one seat, chunks of one token."""

from dataclasses import replace

import pytest

from batchproof import Limits
from batchproof.sched.policy.registry import POLICIES
from batchproof.sched.soak_case import Case
from batchproof.sched.soak_run import Run

TIGHT = (
    Limits(max_kv_blocks=48, block_size=1, chunk_size=64, token_budget=16, max_batch_size=1),
    Limits(max_kv_blocks=24, block_size=1, chunk_size=7, token_budget=3, max_batch_size=2),
    Limits(max_kv_blocks=12, block_size=2, chunk_size=3, token_budget=1, max_batch_size=3),
    Limits(max_kv_blocks=5, block_size=4, chunk_size=1, token_budget=2, max_batch_size=2),
)
CASES = 8


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("limits", TIGHT, ids=lambda limits: f"{limits.max_kv_blocks} blocks")
def test_every_request_ends_with_its_tokens(limits: Limits, policy: str) -> None:
    for number in range(CASES):
        case = replace(Case.draw(5, number), limits=limits, policy=policy, ticks=60, users=9)
        Run(replace(case, rate=1.0, fault_rate=0.0, admission="max_utilization")).to_the_end()
