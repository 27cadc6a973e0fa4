"""Liveness on the explored graph: fair cycles, recoverability, and worst-case numbers of steps.

A run is fair if no class of weakly fair events (`machine.Fair`) is enabled for
ever and never taken; a finite run is fair if it ends where no fair event is
enabled. So "trigger leads to predicate" fails exactly if, after a state where
the trigger holds, a path that avoids the predicate ends in such a state, or in
a strongly connected component that has, for every class, a state where the
class is disabled or a step of it.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from batchproof.spec.counterexample import Trace
from batchproof.spec.graph import Graph
from batchproof.spec.property import Property
from batchproof.spec.search import Search, decide


@dataclass(frozen=True, slots=True)
class Liveness:
    """What was found of one liveness property."""

    counterexample: Trace | None = None
    """A lasso, or a run that ends too early; None if there is none in the explored graph."""
    worst: int | None = None
    """If it holds: the most fair steps from a trigger to the predicate, None if unbounded."""


def leads_to(search: Search, prop: Property, *, fair: bool = True) -> Liveness:
    """Decide a liveness property on the explored part of `search`, which kept its graph.

    Without `fair`, every run that goes on while anything is possible counts.
    A counterexample is genuine even if the search is incomplete; that there is
    none means something only if it is complete.

    Raises:
        PropertyError: the predicate or the trigger raised.

    """
    graph = _graph_of(search)
    pending, starts = _obligations(search, graph, prop)
    classes = range(1, len(graph.class_names) + 1) if fair else range(0)
    stops = _stops(graph, pending, fair=fair)
    order, residue = _trim(graph, pending)
    components = list(_components(graph, residue))
    accepting = {n: c for c in components if _is_fair(graph, c, classes) for n in c}
    bad = set(stops) | set(accepting)
    if bad:
        path = _shortest_path(search, graph, pending, starts, bad)
        cycle = _fair_cycle(graph, accepting, path[-1], classes)
        return Liveness(counterexample=_lasso(search, path, cycle))
    if not search.complete:
        return Liveness()
    return Liveness(worst=_longest(graph, pending, starts, order, components))


def recoverable(search: Search, prop: Property) -> Trace | None:
    """Return a shortest run to a state from which `prop.predicate` cannot be reached any more.

    None if there is no such state among those whose future is wholly explored.
    """
    graph = _graph_of(search)
    sources, offsets = _reversed(graph, len(search.states))
    can = bytearray(len(search.states))
    todo: deque[int] = deque()
    for number, state in enumerate(search.states):
        if number >= graph.expanded or decide(prop, prop.predicate, state):
            can[number] = 1
            todo.append(number)
    while todo:
        number = todo.popleft()
        for at in range(offsets[number], offsets[number + 1]):
            if not can[sources[at]]:
                can[sources[at]] = 1
                todo.append(sources[at])
    lost = can.find(0)
    return None if lost < 0 else Trace(tuple(search.run_through(search.path(lost))))


def _graph_of(search: Search) -> Graph:
    if search.graph is None:
        raise ValueError("liveness needs a search made with keep_graph=True")
    return search.graph


def _obligations(search: Search, graph: Graph, prop: Property) -> tuple[bytearray, list[int]]:
    """Return which states have the obligation open, and those where it begins."""
    open_here = bytearray(graph.expanded)
    starts: list[int] = []
    for number in range(graph.expanded):
        state = search.states[number]
        if decide(prop, prop.predicate, state):
            continue
        open_here[number] = 1
        if prop.trigger is None or decide(prop, prop.trigger, state):
            starts.append(number)
    if len(starts) == sum(open_here):
        return open_here, starts
    pending = bytearray(graph.expanded)
    todo = list(starts)
    for number in starts:
        pending[number] = 1
    while todo:
        for target in _targets(graph, open_here, todo.pop()):
            if not pending[target]:
                pending[target] = 1
                todo.append(target)
    return pending, starts


def _targets(graph: Graph, within: bytearray, number: int) -> Iterator[int]:
    for at in graph.row(number):
        target = graph.targets[at]
        if target < len(within) and within[target]:
            yield target


def _stops(graph: Graph, pending: bytearray, *, fair: bool) -> list[int]:
    """Return the pending states in which a run may end."""
    classes = graph.classes
    return [
        number
        for number, is_pending in enumerate(pending)
        if is_pending
        and not (any(classes[at] for at in graph.row(number)) if fair else graph.row(number))
    ]


def _trim(graph: Graph, pending: bytearray) -> tuple[list[int], bytearray]:
    """Take away, in topological order, the pending states that no pending cycle leads to.

    Return those in that order, and the rest as flags.
    """
    residue = bytearray(pending)
    incoming = array("I", bytes(4 * len(pending)))
    for number, is_pending in enumerate(pending):
        if is_pending:
            for target in _targets(graph, pending, number):
                incoming[target] += 1
    order = [n for n, is_pending in enumerate(pending) if is_pending and not incoming[n]]
    for number in order:
        residue[number] = 0
        for target in _targets(graph, pending, number):
            incoming[target] -= 1
            if not incoming[target]:
                order.append(target)
    return order, residue


def _components(graph: Graph, within: bytearray) -> Iterator[list[int]]:
    """Yield the strongly connected components of a part of the graph, those led to first.

    Tarjan's algorithm with its recursion kept in a list.
    """
    indices: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    for root in range(len(within)):
        if not within[root] or root in indices:
            continue
        calls = [(root, _targets(graph, within, root))]
        indices[root] = low[root] = len(indices)
        stack.append(root)
        on_stack.add(root)
        while calls:
            number, targets = calls[-1]
            for target in targets:
                if target not in indices:
                    indices[target] = low[target] = len(indices)
                    stack.append(target)
                    on_stack.add(target)
                    calls.append((target, _targets(graph, within, target)))
                    break
                if target in on_stack:
                    low[number] = min(low[number], indices[target])
            else:
                calls.pop()
                if calls:
                    low[calls[-1][0]] = min(low[calls[-1][0]], low[number])
                if low[number] == indices[number]:
                    component = _pop_until(stack, number)
                    on_stack.difference_update(component)
                    yield component


def _pop_until(stack: list[int], number: int) -> list[int]:
    component = [stack.pop()]
    while component[-1] != number:
        component.append(stack.pop())
    return sorted(component)


def _is_fair(graph: Graph, component: Sequence[int], classes: Iterable[int]) -> bool:
    """Say whether a fair run can stay in `component` for ever."""
    members = frozenset(component)
    inside = [at for n in component for at in graph.row(n) if graph.targets[at] in members]
    if not inside:
        return False
    taken = {graph.classes[at] for at in inside}
    return all(c in taken or _where_disabled(graph, component, c) for c in classes)


def _where_disabled(graph: Graph, component: Sequence[int], fairness: int) -> list[int]:
    return [n for n in component if all(graph.classes[at] != fairness for at in graph.row(n))]


def _shortest_path(
    search: Search, graph: Graph, pending: bytearray, starts: Sequence[int], goals: set[int]
) -> list[int]:
    """Return the shortest run from an initial state, through a start, pending until a goal.

    Every step is of length one, and a start is as near as its depth: so who is
    met first is met on a shortest way. Some start leads to a goal.
    """
    origin = dict.fromkeys(starts, -1)
    heap = [(search.depth_of(number), number) for number in starts]
    heapify(heap)
    length, number = heappop(heap)
    while number not in goals:
        for target in _targets(graph, pending, number):
            if target not in origin:
                origin[target] = number
                heappush(heap, (length + 1, target))
        length, number = heappop(heap)
    path = [number]
    while origin[path[-1]] >= 0:
        path.append(origin[path[-1]])
    return search.path(path[-1]) + path[-2::-1]


def _fair_cycle(
    graph: Graph, accepting: dict[int, list[int]], start: int, classes: Iterable[int]
) -> list[tuple[int, int | None]]:
    """Return a fair cycle from `start` as `(next state, class the step must have)`.

    Empty if the run ends at `start` instead.
    """
    component = accepting.get(start)
    if component is None:
        return []
    members = frozenset(component)
    cycle: list[tuple[int, int | None]] = []
    here = start
    for fairness in classes:
        disabled = frozenset(_where_disabled(graph, component, fairness))
        if disabled:
            cycle += _within(graph, members, here, disabled.__contains__)
        else:
            step_of = _steps_of(graph, members, fairness)
            cycle += _within(graph, members, here, step_of.__contains__)
            here = cycle[-1][0] if cycle else here
            cycle.append((step_of[here], fairness))
        here = cycle[-1][0] if cycle else here
    if not cycle:
        here = next(graph.targets[at] for at in graph.row(here) if graph.targets[at] in members)
        cycle.append((here, None))
    return cycle + _within(graph, members, here, start.__eq__)


def _steps_of(graph: Graph, members: frozenset[int], fairness: int) -> dict[int, int]:
    """Return source -> target of the steps of a class inside a component."""
    return {
        number: graph.targets[at]
        for number in sorted(members)
        for at in graph.row(number)
        if graph.classes[at] == fairness and graph.targets[at] in members
    }


def _within(
    graph: Graph, members: frozenset[int], start: int, is_goal: Callable[[int], bool]
) -> list[tuple[int, int | None]]:
    """Return the steps of a shortest path inside a component to the nearest goal."""
    origin = {start: -1}
    todo = deque([start])
    while True:
        number = todo.popleft()
        if is_goal(number):
            break
        for at in graph.row(number):
            target = graph.targets[at]
            if target in members and target not in origin:
                origin[target] = number
                todo.append(target)
    path: list[tuple[int, int | None]] = []
    while origin[number] >= 0:
        path.append((number, None))
        number = origin[number]
    return path[::-1]


def _lasso(search: Search, path: Sequence[int], cycle: Sequence[tuple[int, int | None]]) -> Trace:
    steps = search.run_through(path)
    loop = len(steps) - 1
    for number, fairness in cycle:
        steps.append(search.step_to(steps[-1].state, number, fairness))
    return Trace(tuple(steps), loop if cycle else None)


def _longest(
    graph: Graph,
    pending: bytearray,
    starts: Sequence[int],
    order: Sequence[int],
    components: Sequence[Sequence[int]],
) -> int | None:
    """Return the most fair steps on a pending path from a start, or None if there is no most."""
    longest = array("q", bytes(8 * len(pending)))
    groups = [*components, *([number] for number in reversed(order))]
    for group in groups:
        members = frozenset(group)
        most = 0
        for at in (at for number in group for at in graph.row(number)):
            target, weight = graph.targets[at], int(graph.classes[at] > 0)
            if target in members:
                if weight:
                    return None
            else:
                most = max(most, weight + (longest[target] if pending[target] else 0))
        for number in group:
            longest[number] = most
    return max((longest[number] for number in starts), default=0)


def _reversed(graph: Graph, states: int) -> tuple["array[int]", "array[int]"]:
    """Return the steps by target, in compressed rows: sources and offsets."""
    offsets = array("Q", bytes(8 * (states + 1)))
    for target in graph.targets:
        offsets[target + 1] += 1
    for number in range(states):
        offsets[number + 1] += offsets[number]
    sources = array("I", bytes(4 * len(graph.targets)))
    free = offsets[:]
    for number in range(graph.expanded):
        for at in graph.row(number):
            target = graph.targets[at]
            sources[free[target]] = number
            free[target] += 1
    return sources, offsets
