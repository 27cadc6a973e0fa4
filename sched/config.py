"""The limits that every rule is stated in terms of."""

from dataclasses import dataclass, fields
from typing import Literal, get_args

from batchproof.sched.errors import LimitsError

Admission = Literal["max_utilization", "guaranteed_no_evict"]
"""How much memory an admission takes.

- `max_utilization`: what the context needs now; preempt when growth fails.
- `guaranteed_no_evict`: the request's peak; it never grows, nobody is preempted.
"""
ADMISSIONS: tuple[Admission, ...] = get_args(Admission)


@dataclass(frozen=True, slots=True)
class Limits:
    """The hard limits of a scheduler (rules 3, 4 and 6).

    Raises `LimitsError` when a limit is not an int of at least 1, or `eos_token`
    not a token id, which are ints from 0 to 2**64 - 1. Only the bounds of the
    queue may be None: there is no bound then.
    """

    max_kv_blocks: int = 256
    """Blocks in the KV pool."""
    block_size: int = 16
    """Tokens that a block holds."""
    chunk_size: int = 64
    """The most prompt tokens that one request prefills in one tick."""
    token_budget: int = 512
    """The most tokens that one batch feeds."""
    max_batch_size: int = 64
    """The most sequences in one batch."""
    eos_token: int = 0
    """The token id that ends a request."""
    max_waiting_requests: int | None = None
    """The most requests that wait, more are refused; no bound if left out (`serve`: 1024)."""
    max_waiting_tokens: int | None = None
    """The most prompt tokens of all waiting requests together; no bound if left out."""
    max_waiting_requests_per_user: int | None = None
    """The most requests of one user that wait; no bound if left out."""
    max_waiting_tokens_per_user: int | None = None
    """The most prompt tokens of one user's waiting requests; no bound if left out."""

    max_passes: int = 16
    """How often a request may be passed by later ones of its user with a higher priority; 0: no
    priority counts."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            lowest = 0 if field.name in ("eos_token", "max_passes") else 1
            if type(value) is not int or not lowest <= value < 2**64:
                raise LimitsError(
                    f"limits: {field.name}={value!r} is not an int of at least {lowest} (and below "
                    f"2**64); the default is {field.default}"
                )

    @property
    def queue_bounds(self) -> dict[str, int]:
        """The bounds of the queue that are set, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if name in _QUEUE and value}

    def blocks_for(self, tokens: int) -> int:
        """Return how many blocks hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def blocks_at_admission(self, prompt: int, generated: int, max_tokens: int) -> int:
        """Return the blocks that an admission takes (rule 3).

        They cover the whole known context and the token about to come; the last
        token of a request needs no slot.
        """
        return self.blocks_for(min(prompt + generated + 1, prompt + max_tokens - 1))

    def blocks_at_peak(self, prompt: int, max_tokens: int) -> int:
        """Return the most blocks that a request ever holds (rule 3)."""
        return self.blocks_for(prompt + max_tokens - 1)


_QUEUE = tuple(field.name for field in fields(Limits) if field.default is None)
