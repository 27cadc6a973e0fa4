"""Mermaid's own parser, in a browser, reads what `batchproof graph --format mermaid` writes."""

import pytest
from support.report_samples import awkward_graph, busy_history, small_space

from batchproof.sched.report.graph_formats import as_mermaid
from batchproof.sched.report.lifecycle_graph import lifecycle_graph, request_graph, run_graph
from batchproof.sched.report.state_graph import folded_graph

MERMAID = "mermaid@12.3.0"


def test_mermaid_reads_every_graph_in_the_browser(chromium, npm_script) -> None:
    history = busy_history()
    graphs = [
        lifecycle_graph(),
        run_graph(history),
        request_graph(history, max(history.lives, key=lambda life: life.preemptions)),
        folded_graph(small_space()),
        awkward_graph(),
    ]
    page = chromium.new_page()
    page.add_script_tag(path=npm_script(MERMAID, "dist/mermaid.min.js"))
    page.evaluate("mermaid.initialize({startOnLoad: false})")
    for graph in graphs:
        found = page.evaluate("text => mermaid.parse(text)", as_mermaid(graph))
        assert found["diagramType"].startswith("flowchart")
    drawn = page.evaluate(
        "async text => { document.body.innerHTML ="
        " (await mermaid.render('drawn', text)).svg;"
        " return document.body.innerText; }",
        as_mermaid(awkward_graph()),
    )
    for node in awkward_graph().nodes:
        assert node.title in drawn
    with pytest.raises(Exception, match="Parse error"):
        page.evaluate("text => mermaid.parse(text)", "flowchart LR\n  a -->|| b")
    page.close()
