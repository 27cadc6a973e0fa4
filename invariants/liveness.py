"""What must come in the end, if only ticks go on (rule 4: an accepted request always ends)."""

from typing import Final

from batchproof.invariants.claim import STARVATION_FREE, Claim
from batchproof.spec.lifecycle import WAITING
from batchproof.spec.state import State, System


def is_live(system: System, request: int, state: State) -> bool:
    """Say whether the request is live."""
    return state.find(request) is not None


def has_ended(system: System, request: int, state: State) -> bool:
    """Say whether the request is not live."""
    return state.find(request) is None


def has_token(system: System, request: int, state: State) -> bool:
    """Say whether the request has a token, or is not live any more."""
    live = state.find(request)
    return live is None or live.generated > 0


def waits_again(system: System, request: int, state: State) -> bool:
    """Say whether the request was preempted, after its first token, and waits."""
    live = state.find(request)
    return live is not None and live.phase == WAITING and live.generated > 0


def does_not_wait(system: System, request: int, state: State) -> bool:
    """Say whether the request is resident or has ended."""
    live = state.find(request)
    return live is None or live.phase != WAITING


def nobody_live(system: System, state: State) -> bool:
    """Say whether everybody has ended."""
    return not state.live


CLAIMS: Final = (
    Claim(
        "every-request-ends",
        "an accepted request ends: none is starved, none is preempted for ever",
        "rule 4",
        "liveness",
        has_ended,
        trigger=is_live,
        promised_by=STARVATION_FREE,
        of_request=True,
    ),
    Claim(
        "first-token-comes",
        "an accepted request gets its first token",
        "rule 4",
        "liveness",
        has_token,
        trigger=is_live,
        promised_by=STARVATION_FREE,
        of_request=True,
    ),
    Claim(
        "preempted-comes-back",
        "a request that was preempted becomes resident again",
        "rule 4",
        "liveness",
        does_not_wait,
        trigger=waits_again,
        promised_by=STARVATION_FREE,
        of_request=True,
    ),
)

RECOVERABLE: Final = (
    Claim(
        "all-can-end",
        "from every reachable state, all requests can still end",
        "rule 4",
        "liveness",
        nobody_live,
    ),
)
"""Claimed of every reachable state: the predicate can still become true. Says something of a
scheduler only where users do not cancel, for cancelling ends everything too."""
