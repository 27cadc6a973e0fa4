"""The state of the whole system: its constants, the live requests, the free blocks.

Blocks are counted, not numbered: they are interchangeable, and who holds how
many is all that the rules ask. A block with two owners, or with none, shows as
`free` and the holdings no longer adding up to the pool. A rule number refers to
docs/explanation/rules.md.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from batchproof.spec.lifecycle import DECODING, WAITING, Phase

Admission = Literal["max_utilization", "guaranteed_no_evict"]
"""How much memory an admission takes: what the context needs now, or the request's peak."""


class Limits(NamedTuple):
    """The hard limits of the scheduler, by the names that it has for them."""

    max_kv_blocks: int
    block_size: int
    chunk_size: int
    token_budget: int
    max_batch_size: int


class Request(NamedTuple):
    """What a user asks for: prompt tokens, and the most output tokens."""

    user: int
    prompt: int
    max_tokens: int
    priority: int = 0
    """Higher is more urgent; among the requests of one user alone."""


@dataclass(frozen=True)
class System:
    """The constants: the limits, the way to admit, and the requests that may be submitted."""

    limits: Limits
    requests: tuple[Request, ...]
    """Request id -> what it asks for. An id that is not live may be submitted, again and again."""
    admission: Admission = "max_utilization"
    cancels: bool = True
    """Whether users cancel."""
    max_passes: int = 0
    """How often a request may be passed by later ones of its user with a higher priority."""

    def blocks_for(self, tokens: int) -> int:
        """Return how many blocks hold `tokens` tokens."""
        return -(-tokens // self.limits.block_size)

    def blocks_at_peak(self, request: int) -> int:
        """Return the most blocks that a request ever holds (rule 3).

        Its last token needs no slot.
        """
        _, prompt, max_tokens, _ = self.requests[request]
        return self.blocks_for(prompt + max_tokens - 1)

    def blocks_to_admit(self, request: int, generated: int) -> int:
        """Return the blocks that an admission takes (rule 3)."""
        if self.admission == "guaranteed_no_evict":
            return self.blocks_at_peak(request)
        return self.blocks_to_yield(request, generated)

    def blocks_to_yield(self, request: int, generated: int) -> int:
        """Return the blocks that hold the known context and the token about to come (rule 3)."""
        _, prompt, max_tokens, _ = self.requests[request]
        return self.blocks_for(min(prompt + generated + 1, prompt + max_tokens - 1))

    def is_feasible(self, request: int) -> bool:
        """Say whether a request makes sense and could finish alone in an empty pool (rule 4)."""
        _, prompt, max_tokens, _ = self.requests[request]
        return (
            prompt >= 1
            and max_tokens >= 1
            and self.blocks_at_peak(request) <= self.limits.max_kv_blocks
        )


class Live(NamedTuple):
    """A live request: where it is in its life."""

    request: int
    """Its id: the index of what it asks for in `System.requests`."""
    phase: Phase
    prefilled: int
    """Context tokens fed in this residency."""
    generated: int
    """Output tokens so far; they outlive a preemption (rule 8)."""
    blocks: int
    passed: int = 0
    """How often it was passed; once it is admitted, `max_passes`: it keeps its place for ever."""


class History(NamedTuple):
    """What no rule reads, and policies and their promises do: whose turn it is, by request id."""

    decoding: tuple[int, ...] = ()
    """The decoding requests, least recently scheduled first."""
    prefilling: tuple[int, ...] = ()
    """The prefilling requests, in order of admission."""
    gaps: tuple[int, ...] = ()
    """Of each in `decoding`: ticks since its last token, counted up to `LONG_GAP`."""
    users: tuple[int, ...] = ()
    """The users with live requests, in the order in which they became so."""
    memory: Hashable = None
    """The policy's own state, if it has one."""


LONG_GAP: Final = 4
"""Longer gaps are not told apart: no promise is about more than three ticks at these scales."""


class State(NamedTuple):
    """The system between two ticks. A request that has ended is forgotten (rule 10)."""

    live: tuple[Live, ...]
    """The live requests in order of place: of first submission, but for priorities (rule 5)."""
    free: int
    """Free blocks."""
    history: History | None = None
    """None where there is no policy."""

    def find(self, request: int) -> Live | None:
        """Return the live request of this id, or None."""
        for live in self.live:
            if live.request == request:
                return live
        return None

    def in_phase(self, phase: Phase) -> Iterator[Live]:
        """Yield the live requests in `phase`, oldest first."""
        return (live for live in self.live if live.phase == phase)


NEW: Final = (WAITING, 0, 0, 0)
"""Phase, prefilled, generated and blocks of a request just submitted."""


def context(system: System, live: Live) -> int:
    """Return the known context: prompt tokens and tokens generated."""
    return system.requests[live.request].prompt + live.generated


def feedable(system: System, live: Live) -> int:
    """Return the most tokens that a tick may feed to a request that is or becomes resident."""
    if live.phase == DECODING:
        return 1
    return min(system.limits.chunk_size, context(system, live) - live.prefilled)


def completes(system: System, live: Live, tokens: int) -> bool:
    """Say whether a request that is fed `tokens` tokens thereby yields one (rule 2)."""
    return live.phase == DECODING or live.prefilled + tokens >= context(system, live)
