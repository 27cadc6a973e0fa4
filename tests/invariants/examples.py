"""States and steps in a line each, and what a claim says of them."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from batchproof.invariants.catalog import CATALOG, RECOVERABLE
from batchproof.invariants.claim import Claim
from batchproof.spec.actions import Tick, Work
from batchproof.spec.lifecycle import DECODING, PREFILLING, WAITING, FinishReason
from batchproof.spec.state import History, Limits, Live, Request, State, System

LIMITS: Final = Limits(
    max_kv_blocks=6, block_size=2, chunk_size=2, token_budget=4, max_batch_size=2
)
SYSTEM: Final = System(
    LIMITS,
    (
        Request(user=0, prompt=3, max_tokens=3),  # admitted with 2 blocks; peak 3
        Request(user=0, prompt=1, max_tokens=2),  # 1 block
        Request(user=1, prompt=4, max_tokens=2),  # 3 blocks
        Request(user=1, prompt=9, max_tokens=4),  # 6 blocks at the peak: the whole pool
        Request(user=1, prompt=9, max_tokens=5),  # a token too many for the pool
        Request(user=1, prompt=0, max_tokens=1),
        Request(user=1, prompt=1, max_tokens=0),
        Request(user=1, prompt=1, max_tokens=1),  # the least that can be asked
    ),
)
RESERVING: Final = System(LIMITS, SYSTEM.requests, "guaranteed_no_evict")
CLAIMS: Final[Mapping[str, Claim]] = {claim.name: claim for claim in (*CATALOG, *RECOVERABLE)}


def waiting(request: int, generated: int = 0) -> Live:
    return Live(request, WAITING, 0, generated, 0)


def prefilling(request: int, prefilled: int, blocks: int, generated: int = 0) -> Live:
    return Live(request, PREFILLING, prefilled, generated, blocks)


def decoding(request: int, generated: int, blocks: int) -> Live:
    return Live(request, DECODING, 0, generated, blocks)


def state(*live: Live, free: int | None = None, history: History | None = None) -> State:
    """Return a state; what nobody holds is free, unless said otherwise."""
    held = sum(one.blocks for one in live)
    return State(live, LIMITS.max_kv_blocks - held if free is None else free, history)


def tick(
    feed: Mapping[int, int] | None = None,
    *,
    preempt: tuple[int, ...] = (),
    admit: tuple[int, ...] = (),
    eos: tuple[int, ...] = (),
    ended: tuple[tuple[int, FinishReason], ...] = (),
) -> Tick:
    return Tick(Work(preempt, admit, tuple((feed or {}).items())), eos, ended)


def says(name: str, *case: Any, system: System = SYSTEM) -> bool:
    """Return what the claim of this name says of a state, or of a step."""
    return CLAIMS[name].predicate(system, *case)


Cases = Mapping[str, tuple[Any, ...]]
"""Story -> a state, or what was before, the event and what was after."""


def told(holds: Mapping[str, Cases], broken: Mapping[str, Cases]) -> pytest.MarkDecorator:
    """Give a test each example: claim, case and whether the claim holds of it."""
    return pytest.mark.parametrize(
        ("claim", "case", "expected"),
        [
            pytest.param(claim, case, expected, id=f"{claim}: {story}")
            for expected, examples in ((True, holds), (False, broken))
            for claim, cases in examples.items()
            for story, case in cases.items()
        ],
    )
