"""Walks that take every step of a state graph: how a scheduler that cannot be copied is covered.

A search expands a state by trying every step from it, which needs a copy of the
scheduler for each. One that cannot be copied can still be led along every step:
from its start, in a few long walks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import networkx

from batchproof.spec.machine import Model
from batchproof.spec.search import Search

Led = TypeVar("Led")
"""What is led along the walks."""


@dataclass(frozen=True)
class Step:
    """One step of a walk."""

    event: Any
    after: int
    """The number of the state that it leads to."""


@dataclass(frozen=True)
class Cover:
    """Walks that together take every edge: a step between two states, told apart by its event."""

    edges: int
    states: tuple[Any, ...]
    walks: tuple[tuple[Step, ...], ...]
    """Each begins in state 0, the only initial one."""

    @property
    def steps(self) -> int:
        """Steps of all walks."""
        return sum(map(len, self.walks))

    @property
    def covered(self) -> int:
        """Distinct edges that the walks take."""
        return len({edge for walk in self.walks for edge in _edges(walk)})


def cover(model: Model) -> Cover:
    """Return walks that take every edge of a model with one initial state.

    Greedy: a walk takes an edge that is new while there is one, and else the
    shortest way to the next; it ends where none can be reached any more. Raises
    `ModelError` for a model at fault, ValueError for several initial states.
    """
    search = Search(model, reduce=False).run()
    if search.levels[1:2] != [1]:
        raise ValueError(f"model {model.name!r} has several initial states")
    graph = _graph_of(search)
    fresh = {state: list(graph.out_edges(state, keys=True)) for state in graph}
    walks: list[tuple[Step, ...]] = []
    while walk := tuple(_walk(graph, fresh)):
        walks.append(walk)
    return Cover(graph.number_of_edges(), tuple(search.states), tuple(walks))


def replay(cover: Cover, start: Callable[[], Led], follow: Callable[[Led, Step], Led]) -> int:
    """Lead schedulers along the walks; return how many edges were covered.

    `start` makes a scheduler; `follow` does one step on it and returns the one
    to go on with, and raises if the step does not lead where the walk does.
    """
    done: set[tuple[int, Any, int]] = set()
    for walk in cover.walks:
        scheduler = start()
        for step, edge in zip(walk, _edges(walk), strict=True):
            scheduler = follow(scheduler, step)
            done.add(edge)
    return len(done)


def _graph_of(search: Search) -> Any:
    numbers = {state: number for number, state in enumerate(search.states)}
    graph = networkx.MultiDiGraph()
    graph.add_nodes_from(range(len(search.states)))
    for number, state in enumerate(search.states):
        for event, after in search.successors(state):
            graph.add_edge(number, numbers[after], key=event)
    return graph


def _walk(graph: Any, fresh: dict[int, list[tuple[int, int, Any]]]) -> Iterator[Step]:
    """Walk from state 0, taking edges out of `fresh` while one can be reached."""
    here = 0
    while (way := _way_to_fresh(graph, fresh, here)) is not None:
        for before, after in pairwise(way):
            yield Step(next(iter(graph[before][after])), after)
        _, here, event = fresh[way[-1]].pop()
        yield Step(event, here)


def _way_to_fresh(
    graph: Any, fresh: dict[int, list[tuple[int, int, Any]]], here: int
) -> list[int] | None:
    """Return a shortest way to a state with an edge not taken yet; None if there is none."""
    if fresh[here]:
        return [here]
    for source, parent in _breadth_first(graph, here):
        if fresh[source]:
            way = [source]
            while way[-1] != here:
                way.append(parent[way[-1]])
            return way[::-1]
    return None


def _breadth_first(graph: Any, here: int) -> Iterator[tuple[int, dict[int, int]]]:
    parent: dict[int, int] = {}
    for before, after in networkx.bfs_edges(graph, here):
        parent[after] = before
        yield after, parent


def _edges(walk: tuple[Step, ...]) -> Iterator[tuple[int, Any, int]]:
    here = 0
    for step in walk:
        yield here, step.event, step.after
        here = step.after
