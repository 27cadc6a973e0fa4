"""Every format is read back by its own consumer, and says what the graph says."""

import io
import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import networkx as nx
import pydot
import pytest
from support.report_samples import awkward_graph, busy_history, small_space

from batchproof.sched.errors import InputError
from batchproof.sched.report.graph import Edge, Graph, Node
from batchproof.sched.report.graph_formats import FORMATS, SVG_NODES_MAX, as_dot, as_graphml, as_svg
from batchproof.sched.report.lifecycle_graph import lifecycle_graph, request_graph, run_graph
from batchproof.sched.report.state_graph import folded_graph, state_graph
from batchproof.spec.lifecycle import EDGES, PHASES

GRAPHS = {
    "lifecycle": lifecycle_graph,
    "run": lambda: run_graph(busy_history()),
    "request": lambda: request_graph(busy_history(), busy_history().lives[5]),
    "states": lambda: state_graph(small_space()),
    "folded": lambda: folded_graph(small_space()),
    "awkward": awkward_graph,
}

a_graph = pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)


def ends(graph: Graph) -> list[tuple[str, str]]:
    return sorted((edge.source, edge.dest) for edge in graph.edges)


@a_graph
def test_networkx_reads_the_graphml(make) -> None:
    graph = make()
    read = nx.read_graphml(io.BytesIO(as_graphml(graph).encode()), force_multigraph=True)
    assert list(read.nodes) == [node.name for node in graph.nodes]
    assert sorted(read.edges()) == ends(graph)
    for node in graph.nodes:
        assert read.nodes[node.name].items() >= node.facts.items()
    titles = {(source, dest, data["title"]) for source, dest, data in read.edges(data=True)}
    assert titles == {(edge.source, edge.dest, edge.title) for edge in graph.edges}


@a_graph
def test_networkx_reads_the_json(make) -> None:
    graph = make()
    read = nx.node_link_graph(json.loads(FORMATS["json"](graph)), edges="links")
    assert read.is_directed()
    assert list(read.nodes) == [node.name for node in graph.nodes]
    assert sorted(read.edges()) == ends(graph)


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning:pydot")
@a_graph
def test_a_dot_grammar_reads_the_dot(make) -> None:
    graph = make()
    (read,) = pydot.graph_from_dot_data(as_dot(graph))
    assert len(read.get_edge_list()) == len(graph.edges)
    dashed = [edge for edge in read.get_edge_list() if edge.get("style") == "dashed"]
    assert len(dashed) == sum(edge.dashed for edge in graph.edges)
    names = [node.get_name() for node in read.get_node_list()]
    assert len([name for name in names if name not in ("node", "edge", "graph")]) == len(
        graph.nodes
    )


@a_graph
def test_the_svg_is_xml_and_shows_every_title(make) -> None:
    graph = make()
    shown = [text.text for text in ElementTree.fromstring(as_svg(graph)).iter() if text.text]
    for part in (*graph.nodes, *graph.edges):
        assert part.title in [text.strip() for text in shown]


@a_graph
@pytest.mark.parametrize("format", FORMATS)
def test_the_same_graph_gives_the_same_bytes(make, format: str) -> None:
    assert FORMATS[format](make()) == FORMATS[format](make())


def test_a_picture_of_too_many_nodes_is_refused() -> None:
    nodes = tuple(Node(f"n{n}", f"n{n}", "state") for n in range(SVG_NODES_MAX + 1))
    with pytest.raises(InputError, match="has 601 nodes, a picture at most 600; fold it"):
        as_svg(Graph("big", "big", nodes, ()))


def test_the_lifecycle_graph_is_the_table() -> None:
    graph = lifecycle_graph()
    assert tuple(node.name for node in graph.nodes) == PHASES
    assert [(edge.title, edge.source, edge.dest) for edge in graph.edges] == [
        (edge.event, edge.source, edge.dest) for edge in EDGES
    ]


def test_a_picture_has_one_arrow_for_edges_that_say_only_their_name() -> None:
    nodes = (Node("a", "a", "state"), Node("b", "b", "state"))
    plain = Graph("g", "g", nodes, (Edge("a", "b", "one"), Edge("a", "b", "two")))
    counted = replace(plain, edges=(Edge("a", "b", "one", ("3 ×",)), Edge("a", "b", "two")))
    assert [as_svg(graph).count('class="edge') for graph in (plain, counted)] == [1, 2]
    assert ">one" in as_svg(plain)
    assert ">two" in as_svg(plain)


def test_the_picture_in_the_docs_is_not_stale(pytestconfig) -> None:
    picture = pytestconfig.rootpath / "docs" / "reference" / "lifecycle.svg"
    assert picture.read_text() == as_svg(lifecycle_graph()), (
        "stale: run batchproof graph -o docs/reference/lifecycle.svg"
    )
