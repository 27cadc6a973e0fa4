"""Sizes at which the shipped code is checked in tests alone."""

from typing import Final

from batchproof.spec.bounds import Size
from batchproof.spec.state import Limits, Request, System

TURNS: Final = Size(
    "3 requests that decode at a time, and a budget of 2 tokens",
    System(
        Limits(max_kv_blocks=6, block_size=2, chunk_size=2, token_budget=2, max_batch_size=3),
        (Request(0, prompt=1, max_tokens=3), Request(0, 1, 3), Request(0, 1, 3)),
        cancels=False,
    ),
    states=0,  # not counted
    folded_states=0,
)
"""Under prefill-first alone do more requests decode than a batch has room for."""
