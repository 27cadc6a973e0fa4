"""A run that shows something, as data: to be read, stored, replayed, or handed to TLA+ tools."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run: the event, and the state that it led to."""

    event: Any
    """None for the first step, which is an initial state."""
    state: Any


@dataclass(frozen=True, slots=True)
class Trace:
    """A run from an initial state; with `loop`, one that goes round for ever.

    Of a finite trace, the last state is where the claim broke. Of a lasso, the
    last state equals the one at index `loop`, up to the model's symmetry.
    """

    steps: tuple[Step, ...]
    loop: int | None = None

    @property
    def length(self) -> int:
        """The number of events."""
        return len(self.steps) - 1
