"""KV memory: never more than there is, never lost, never with two owners (rule 3)."""

from typing import Final

from batchproof.invariants.claim import Claim
from batchproof.spec.actions import Event
from batchproof.spec.lifecycle import DECODING, RESIDENT
from batchproof.spec.state import State, System


def kv_within_cap(system: System, state: State) -> bool:
    """Say whether the blocks held are at most those that there are."""
    return _held(state) <= system.limits.max_kv_blocks


def blocks_conserved(system: System, state: State) -> bool:
    """Say whether free and held blocks add up to the pool."""
    return state.free + _held(state) == system.limits.max_kv_blocks


def only_residents_hold(system: System, state: State) -> bool:
    """Say whether waiting requests hold nothing, and residents something."""
    return all((live.blocks > 0) == (live.phase in RESIDENT) for live in state.live)


def blocks_cover_context(system: System, state: State) -> bool:
    """Say whether every resident holds what its context needs, no block less or more."""
    for live in state.live:
        if live.phase not in RESIDENT:
            continue
        _, prompt, max_tokens, _ = system.requests[live.request]
        tokens = prompt + max_tokens - 1
        if system.admission == "max_utilization":
            coming = 0 if live.phase == DECODING else 1
            tokens = min(tokens, prompt + live.generated + coming)
        if (
            not (live.blocks - 1) * system.limits.block_size
            < tokens
            <= (live.blocks * system.limits.block_size)
        ):
            return False
    return True


def freed_at_once(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether what a request gives up is free in the same step."""
    return after.free + _held(after) == before.free + _held(before)


def _held(state: State) -> int:
    return sum(live.blocks for live in state.live)


CLAIMS: Final = (
    Claim(
        "kv-within-cap",
        "the blocks held by all requests are at most max_kv_blocks",
        "rule 3",
        "invariant",
        kv_within_cap,
    ),
    Claim(
        "blocks-conserved",
        "free and held blocks add up to max_kv_blocks: none is lost, none has two owners",
        "rule 3",
        "invariant",
        blocks_conserved,
    ),
    Claim(
        "only-residents-hold",
        "waiting requests hold no blocks, and requests that have ended are forgotten; "
        "residents hold at least one",
        "rule 3",
        "invariant",
        only_residents_hold,
    ),
    Claim(
        "blocks-cover-context",
        "a resident holds exactly the blocks of its context (while it prefills, and of the token "
        "to come), or of its peak under guaranteed_no_evict",
        "rule 3",
        "invariant",
        blocks_cover_context,
    ),
    Claim(
        "freed-at-once",
        "the blocks of a request that ends, is cancelled or is preempted are free in that step",
        "rules 2, 5 and 9",
        "step",
        freed_at_once,
    ),
)
