"""What one tick sends to the executor, and what comes back."""

from array import array
from collections.abc import Sequence as SequenceOf

from batchproof.sched.blocks import BlockPool
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

    def take_blocks(self, pool: BlockPool) -> None:
        """Let the preempted give up their blocks; those that grow or are admitted take theirs."""
        for sequence in self.preempted:
            self.evicted.append(sequence.blocks)
            pool.give(sequence.blocks)
            sequence.blocks = []
        for sequence in self.grown:
            sequence.blocks += pool.take(1)
        for sequence in self.admitted:
            sequence.blocks = pool.take(sequence.admission_blocks)

    def return_blocks(self, pool: BlockPool) -> None:
        """Undo `take_blocks`, the last taken first: all have the blocks that they had."""
        for sequence in reversed(self.admitted):
            pool.give(sequence.blocks)
            sequence.blocks = []
        for sequence in reversed(self.grown):
            pool.give([sequence.blocks.pop()])
        for sequence, blocks in zip(reversed(self.preempted), reversed(self.evicted), strict=True):
            sequence.blocks = pool.take(len(blocks))


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
