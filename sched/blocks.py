"""The pool of KV blocks: which are free, and nothing else."""

from batchproof.sched.errors import MisuseError


class BlockPool:
    """A stack of free block numbers, so that undoing in reverse order restores it exactly.

    Who holds which block is written in the holder's own block table. A block is
    in one table or here, never in both (rule 3).
    """

    __slots__ = ("_free", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = list(range(size - 1, -1, -1))

    @property
    def free(self) -> int:
        """How many blocks are free."""
        return len(self._free)

    @property
    def held(self) -> int:
        """How many blocks are held by requests."""
        return self.size - len(self._free)

    def take(self, count: int) -> list[int]:
        """Take `count` blocks; raise `MisuseError` when fewer are free."""
        free = self._free
        if count > len(free):
            raise MisuseError(f"pool: {count} blocks asked, {len(free)} of {self.size} free")
        start = len(free) - count
        taken = free[start:]
        del free[start:]
        taken.reverse()
        return taken

    def give(self, blocks: list[int]) -> None:
        """Give blocks back: the exact inverse of the `take` that took them."""
        self._free.extend(reversed(blocks))

    def stack(self) -> list[int]:
        """Return the free blocks, the one to be taken next last."""
        return list(self._free)

    def restore(self, stack: list[int]) -> None:
        """Become a pool whose `stack` was this."""
        self._free = list(stack)
