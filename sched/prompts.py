"""Generated prompts: cheap at any length, told apart by where they start, and found again.

A prompt is a slice of one seeded ring of all token ids. No token occurs twice
in the ring, so the first token of a prompt says where it starts: a recording
can store the prompt as a start and a length.
"""

from collections.abc import Sequence
from random import Random

from batchproof.sched.inference_stub import VOCABULARY


class PromptRing:
    """All token ids but 0, in an order that `seed` decides, joined end to start."""

    def __init__(self, seed: int) -> None:
        tokens = list(range(1, VOCABULARY))
        # Fisher-Yates on `random()`, the one function whose numbers every Python version keeps.
        draw = Random(seed).random
        for last in range(len(tokens) - 1, 0, -1):
            other = int(draw() * (last + 1))
            tokens[last], tokens[other] = tokens[other], tokens[last]
        self._tokens = tuple(tokens)
        self._starts: dict[int, int] = {}

    @property
    def size(self) -> int:
        """How many places there are to start at."""
        return len(self._tokens)

    def prompt(self, start: int, length: int) -> tuple[int, ...]:
        """Return the `length` tokens from `start` on; beyond the ring's size they repeat."""
        end = start + length
        if end <= len(self._tokens):
            return self._tokens[start:end]
        rounds, rest = divmod(end, len(self._tokens))
        return self._tokens[start:] + self._tokens * (rounds - 1) + self._tokens[:rest]

    def find(self, prompt: Sequence[int]) -> int | None:
        """Return the start of a prompt that was made by this ring, None for any other."""
        if not self._starts:
            self._starts = {token: start for start, token in enumerate(self._tokens)}
        start = self._starts.get(prompt[0])
        if start is None or self.prompt(start, len(prompt)) != tuple(prompt):
            return None
        return start
