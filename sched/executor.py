"""What runs a batch: the protocol of an executor, and what it may read of a batch."""

from collections.abc import Sequence
from typing import Protocol


class ScheduledSequence(Protocol):
    """One request's share of a batch. Read-only, and valid until the batch is completed."""

    @property
    def request_id(self) -> str:
        """The request's id."""
        ...

    @property
    def tokens(self) -> Sequence[int]:
        """The token ids to feed."""
        ...

    @property
    def position(self) -> int:
        """The position of the first of `tokens` in the request's context."""
        ...

    @property
    def block_table(self) -> Sequence[int]:
        """The blocks that hold the context, in order: position p is in entry p // block_size."""
        ...

    @property
    def remaining(self) -> int:
        """Output tokens still to come, the next one included, unless EOS comes before."""
        ...

    @property
    def yields(self) -> bool:
        """Whether the token returned for it counts: False while its prefill is unfinished."""
        ...


class Executor(Protocol):
    """A model that runs one batch at a time."""

    def forward(self, batch: Sequence[ScheduledSequence], /) -> Sequence[int]:
        """Run the batch and return one token id for each sequence, in order.

        When it raises, the tick did not happen: the scheduler is as before it.
        """
        ...

    def now(self) -> float:
        """Return the time in seconds, from any origin; it never goes back."""
        ...
