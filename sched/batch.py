"""What one tick sends to the executor, and what comes back."""

from array import array
from collections.abc import Sequence as SequenceOf

from batchproof.sched.errors import ExecutorError
from batchproof.sched.request import Sequence


class Batch(list[Sequence]):
    """What one tick sends to the executor: decodes first, then chunks.

    A list of `executor.ScheduledSequence`, valid until it is completed. What
    else the tick does is kept beside, to be carried out by `complete` or undone
    by `abandon`.
    """

    __slots__ = (
        "admitted",
        "chunks_from",
        "evicted",
        "grown",
        "preempted",
        "scheduled_at",
        "tokens",
    )

    def __init__(self, sequences: SequenceOf[Sequence], scheduled_at: float) -> None:
        super().__init__(sequences)
        self.scheduled_at = scheduled_at
        self.chunks_from = len(sequences)
        """Index of the first chunk."""
        self.tokens = len(sequences)
        """Tokens that the batch feeds."""
        self.preempted: SequenceOf[Sequence] = ()
        self.evicted: list[list[int]] = []
        """The blocks that each of `preempted` held."""
        self.grown: SequenceOf[Sequence] = ()
        self.admitted: SequenceOf[Sequence] = ()


def checked_tokens(batch: Batch, tokens: SequenceOf[int]) -> list[int]:
    """Return the tokens as ints; raise `ExecutorError` unless there is one for each sequence."""
    try:
        if isinstance(tokens, bytes | bytearray):  # `array` would take them for its own memory
            raise TypeError("bytes are not ints")
        checked = array("Q", tokens).tolist()  # at the speed of C
    except (TypeError, OverflowError) as error:
        raise ExecutorError(
            f"executor: returned {tokens!r:.200}, not a list of token ids ({error})"
        ) from None
    if len(checked) != len(batch):
        raise ExecutorError(
            f"executor: returned {len(checked)} tokens for a batch of {len(batch)} sequences; "
            "return exactly one each, in order"
        )
    return checked
