"""The one list of what must hold, that the checker, the tests, the monitor and the docs read."""

from collections.abc import Iterable
from typing import Final

from batchproof.invariants import (
    life,
    limits,
    liveness,
    memory,
    order,
    progress,
    tokens,
    witnesses,
)
from batchproof.invariants.claim import Claim
from batchproof.spec.property import Property
from batchproof.spec.state import System

CATALOG: Final[tuple[Claim, ...]] = (
    *memory.CLAIMS,
    *limits.CLAIMS,
    *life.CLAIMS,
    *tokens.CLAIMS,
    *order.CLAIMS,
    *progress.CLAIMS,
    *liveness.CLAIMS,
    *witnesses.CLAIMS,
)
"""Every claim, by subject; `Claim.promised_by` says which are a policy's and not the rules'."""

RECOVERABLE: Final[tuple[Claim, ...]] = liveness.RECOVERABLE
"""What must stay possible from every reachable state."""


def properties(system: System, watched: Iterable[int] = ()) -> list[Property]:
    """Return the catalog as properties of a system at one size.

    `watched` are the requests for each of which those of one request are claimed.
    """
    watched = tuple(watched)
    return [prop for claim in CATALOG for prop in claim.at(system, watched)]
