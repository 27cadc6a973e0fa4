"""A graph to be drawn or exported: what the graphs of this package share."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Fact = str | int | float | bool
"""What a node or an edge knows, in the types that every format has."""


@dataclass(frozen=True)
class Node:
    """A node: its name is its key and its first line."""

    name: str
    title: str
    kind: str
    """What colours it: a phase, or `state`."""
    lines: tuple[str, ...] = ()
    """Shown below the title."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """For programs: what GraphML and JSON carry."""
    initial: bool = False
    marked: bool = False
    """Whether a property is violated here."""


@dataclass(frozen=True)
class Edge:
    """A directed edge between two nodes, by their names."""

    source: str
    dest: str
    title: str
    lines: tuple[str, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    dashed: bool = False
    marked: bool = False
    straight: bool = False
    """Whether it is on the main line, which is drawn straight."""


@dataclass(frozen=True)
class Graph:
    """Nodes and edges, in the order in which they are written."""

    name: str
    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    downward: bool = False
    """Whether it flows from top to bottom instead of from left to right."""


def count_text(count: int, noun: str) -> str:
    """Return how many there are of something, in words: `1 state`, `1,040 states`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
