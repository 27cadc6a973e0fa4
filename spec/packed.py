"""A model in integers, for the fast search: what to implement, and its meaning in plain Python.

A packed state is `view << rest_bits | rest`, below 2**63. The view is whatever
decides the moves; the rest is only carried along. So the moves of a view are
worked out once, in Python, and then applied to whole arrays of states.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from batchproof.spec.machine import Model


class Field(NamedTuple):
    """A part of the rest, `(rest >> shift) & mask`, and what it contributes to the next state."""

    shift: int
    mask: int
    to: int = 0
    """Without a table: it contributes itself, shifted left by `to`."""
    table: tuple[int, ...] | None = None
    """With one: it contributes `table[field]`, which may be negative."""


class Guard(NamedTuple):
    """A move is possible where `(rest >> shift) & mask == value`."""

    shift: int
    mask: int
    value: int


class Move(NamedTuple):
    """One way on from a view: the next state is `base` plus what the fields contribute."""

    base: int
    fields: tuple[Field, ...]
    guard: Guard | None = None


class PackedModel(Protocol):
    """A model whose states fit in 63 bits."""

    @property
    def plain(self) -> Model:
        """The same model in plain Python, which says what the integers mean."""
        ...

    @property
    def rest_bits(self) -> int:
        """How many low bits are the rest."""
        ...

    def initial(self) -> Sequence[int]:
        """Every initial state."""
        ...

    def moves(self, view: int) -> Sequence[Move]:
        """Every move from a view, each once; asked once per view."""
        ...

    def unpack(self, packed: int) -> Any:
        """Return the plain state that `packed` stands for."""
        ...


def successors(model: PackedModel, packed: int) -> Iterator[int]:
    """Yield the states after `packed`: the meaning of moves, one state at a time."""
    rest = packed & ((1 << model.rest_bits) - 1)
    for move in model.moves(packed >> model.rest_bits):
        guard = move.guard
        if guard is None or (rest >> guard.shift) & guard.mask == guard.value:
            yield move.base + sum(_contribution(field, rest) for field in move.fields)


def _contribution(field: Field, rest: int) -> int:
    value = (rest >> field.shift) & field.mask
    return value << field.to if field.table is None else field.table[value]
