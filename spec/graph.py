"""The explored steps of a search, in compact arrays: what liveness is decided on."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Graph:
    """The explored steps in compressed rows: state `n` has `targets[offsets[n]:offsets[n + 1]]`.

    Rows exist for expanded states only; a target may be a state without a row.
    """

    offsets: "array[int]" = field(default_factory=lambda: array("Q", [0]))
    targets: "array[int]" = field(default_factory=lambda: array("I"))
    classes: "array[int]" = field(default_factory=lambda: array("B"))
    """Per step, the number of its fairness class plus one; 0 if it is in none."""
    class_names: list[str] = field(default_factory=list)

    def add_row(self, row: Iterable[tuple[int, int]]) -> None:
        """Append the steps `(target, class)` of the next state, each once."""
        for target, fairness in dict.fromkeys(row):
            self.targets.append(target)
            self.classes.append(fairness)
        self.offsets.append(len(self.targets))

    def class_number(self, name: str | None) -> int:
        """Return the number that `classes` holds for a class, numbering it if it is new."""
        if name is None:
            return 0
        if name not in self.class_names:
            self.class_names.append(name)
        return self.class_names.index(name) + 1

    def row(self, number: int) -> range:
        """Return the positions of the steps of state `number`."""
        return range(self.offsets[number], self.offsets[number + 1])

    @property
    def expanded(self) -> int:
        """How many states have a row."""
        return len(self.offsets) - 1
