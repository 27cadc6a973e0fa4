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
    not a token id, which are ints from 0 to 2**64 - 1.
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

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            lowest = 0 if field.name == "eos_token" else 1
            if type(value) is not int or not lowest <= value < 2**64:
                raise LimitsError(
                    f"limits: {field.name}={value!r} is not an int of at least {lowest} (and below "
                    f"2**64); the default is {field.default}"
                )

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
