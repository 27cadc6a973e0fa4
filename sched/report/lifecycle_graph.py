"""The life of a request as a graph: the table itself, with a run's counts, or one request's path.

All of it is made from the table in `batchproof.spec.lifecycle`.
"""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

from batchproof.sched.report.graph import Edge, Fact, Graph, Node, count_text
from batchproof.sched.report.run_history import Life, RunHistory
from batchproof.spec.lifecycle import EDGES, INITIAL, PHASES, Phase
from batchproof.spec.lifecycle import Edge as LifecycleEdge


def lifecycle_graph() -> Graph:
    """Return the phases and edges."""
    return Graph(
        name="lifecycle",
        title="The life of a request",
        nodes=tuple(Node(phase, phase, phase, initial=phase == INITIAL) for phase in PHASES),
        edges=tuple(
            Edge(
                edge.source,
                edge.dest,
                edge.event,
                facts={"rule": edge.rule},
                straight=_is_straight(edge),
            )
            for edge in EDGES
        ),
    )


def run_graph(history: RunHistory) -> Graph:
    """Return the lifecycle with what happened in a run.

    Each phase has its visits, each edge its number of times, both with the
    median of the time spent in the phase before leaving (by that edge). Edges
    never taken are dashed.
    """
    times: dict[tuple[str, Phase, Phase], list[float]] = defaultdict(list)
    stays: dict[Phase, list[float]] = defaultdict(list)
    visits: dict[Phase, int] = defaultdict(int)
    for life in history.lives:
        visits["done"] += life.phase == "done"
        for stay in life.stays():
            visits[stay.phase] += 1
        for move, stay in zip(life.moves, life.stays(), strict=False):
            duration = move.at - stay.start
            times[move.event, move.source, move.dest].append(duration)
            stays[stay.phase].append(duration)
    plain = lifecycle_graph()
    return Graph(
        name="lifecycle-of-a-run",
        title=f"{count_text(len(history.lives), 'request')} under {history.header.policy}",
        nodes=tuple(_counted_node(node, visits, stays) for node in plain.nodes),
        edges=tuple(_counted_edge(edge, times) for edge in plain.edges),
    )


def _counted_node(node: Node, visits: Any, stays: Any) -> Node:
    facts: dict[str, Fact] = {"visits": visits[node.name]}
    lines = [count_text(visits[node.name], "visit")]
    if stays[node.name]:
        facts["median_s"] = _microseconds(median(stays[node.name]))
        lines.append(f"median {duration_text(median(stays[node.name]))}")
    return Node(node.name, node.title, node.kind, tuple(lines), facts, node.initial)


def _counted_edge(edge: Edge, times: Any) -> Edge:
    taken = times[edge.title, edge.source, edge.dest]
    facts: dict[str, Fact] = {**edge.facts, "count": len(taken)}
    lines: tuple[str, ...] = ("never",)
    if taken:
        facts["median_s"] = _microseconds(median(taken))
        lines = (f"{len(taken):,} ×", f"after {duration_text(median(taken))}")
    return Edge(edge.source, edge.dest, edge.title, lines, facts, not taken, straight=edge.straight)


def request_graph(history: RunHistory, life: Life) -> Graph:
    """Return one request's own path: a node for each stay, an edge for each move."""
    return Graph(
        name="path-of-a-request",
        title=f"{life.name} of {life.user}: prompt {life.prompt:,}, {life.generated:,} generated",
        nodes=tuple(_path_nodes(history, life)),
        edges=tuple(
            Edge(
                str(number),
                str(number + 1),
                move.event,
                (f"tick {move.tick:,}", f"at {_seconds(move.at)}"),
                {"tick": move.tick, "at_s": _microseconds(move.at)},
            )
            for number, move in enumerate(life.moves)
        ),
    )


def _path_nodes(history: RunHistory, life: Life) -> Iterable[Node]:
    for number, stay in enumerate(life.stays()):
        first = number == 0
        facts: dict[str, Fact] = {"phase": stay.phase, "from_s": _microseconds(stay.start)}
        lines = [f"submitted {_seconds(stay.start)}"] if first else []
        if stay.end is None:
            lines.append("when the run ended")
        else:
            facts["stay_s"] = _microseconds(stay.end - stay.start)
            lines.append(f"for {duration_text(stay.end - stay.start)}")
        yield Node(str(number), stay.phase, stay.phase, tuple(lines), facts, first)
    if life.ended_at is not None:
        facts = {"phase": "done", "from_s": _microseconds(life.ended_at)}
        reason = str(life.finish_reason)
        facts["finish_reason"] = reason
        whole = f"after {duration_text(life.ended_at - life.submitted_at)}"
        yield Node(str(len(life.moves)), "done", "done", (reason, whole), facts)


def _is_straight(edge: LifecycleEdge) -> bool:
    """Tell whether an edge is a step of an undisturbed life."""
    one_on = PHASES.index(edge.dest) == PHASES.index(edge.source) + 1
    return one_on and edge.event not in ("cancel", "expire")


def duration_text(seconds: float) -> str:
    """Return a duration as people say it: three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{_three_digits(seconds * scale)} {unit}"
    return f"{_three_digits(seconds * 1e6)} µs" if seconds else "0 s"


def _three_digits(value: float) -> str:
    return f"{value:,.{max(0, 3 - len(str(int(value))))}f}"


def _seconds(at: float) -> str:
    return f"{at:,.3f} s"


def _microseconds(seconds: float) -> float:
    return round(seconds, 6)
