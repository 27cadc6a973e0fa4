"""The numbers that fair-lane decides by, as the design has them."""

import pytest

from batchproof import Limits
from batchproof.sched.policy.fair_share import DEBT, Terms
from batchproof.sched.policy.service import UNIT


@pytest.mark.parametrize(
    ("blocks", "block_size", "chunk", "lane_ticks", "reserve", "step"),
    [
        (256, 16, 64, 65, 16, 64),  # the defaults: 4,096 tokens of memory are 64 chunks, and one
        (33, 4, 8, 18, 2, 8),  # 132 tokens are 16.5 chunks
        (15, 4, 8, 9, 0, 3),  # too small for a reserve
        (3, 1, 8, 2, 0, 1),  # and for steps of more than a block
    ],
)
def test_terms_follow_from_the_limits(
    blocks: int, block_size: int, chunk: int, lane_ticks: int, reserve: int, step: int
) -> None:
    limits = Limits(max_kv_blocks=blocks, block_size=block_size, chunk_size=chunk)
    terms = Terms.of(limits)
    assert (terms.lane_ticks, terms.reserve, terms.step) == (lane_ticks, reserve, step)
    assert terms.debt_max == DEBT * blocks * UNIT
    assert all(isinstance(number, int) for number in terms)
