"""The limits of one batch (rule 6)."""

from typing import Final

from batchproof.invariants.claim import Claim
from batchproof.spec.actions import Event, Tick
from batchproof.spec.lifecycle import DECODING
from batchproof.spec.state import State, System


def chunk_bounded(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a request is fed at most a chunk; a decode, exactly one token."""
    if not isinstance(event, Tick):
        return True
    phases = {live.request: live.phase for live in before.live}
    return all(
        tokens == 1 if phases.get(i) == DECODING else 1 <= tokens <= system.limits.chunk_size
        for i, tokens in event.work.feed
    )


def budget_bounded(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a batch feeds at most the token budget."""
    return not isinstance(event, Tick) or (
        sum(tokens for _, tokens in event.work.feed) <= system.limits.token_budget
    )


def batch_bounded(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a batch has at most `max_batch_size` sequences."""
    return not isinstance(event, Tick) or len(event.work.feed) <= system.limits.max_batch_size


def scheduled_once(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether nobody is twice in a batch."""
    if not isinstance(event, Tick):
        return True
    return len(dict(event.work.feed)) == len(event.work.feed)


CLAIMS: Final = (
    Claim(
        "chunk-bounded",
        "a tick feeds a request at most chunk_size prompt tokens, and a decode exactly one token",
        "rule 6",
        "step",
        chunk_bounded,
    ),
    Claim(
        "budget-bounded",
        "a tick feeds at most token_budget tokens",
        "rule 6",
        "step",
        budget_bounded,
    ),
    Claim(
        "batch-bounded",
        "a batch has at most max_batch_size sequences",
        "rule 6",
        "step",
        batch_bounded,
    ),
    Claim(
        "scheduled-once",
        "a request is in a batch at most once",
        "rule 6",
        "step",
        scheduled_once,
    ),
)
