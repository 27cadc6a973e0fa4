"""Mermaid's own parser, in a browser, reads what `batchproof graph --format mermaid` writes."""

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from support.report_samples import awkward_graph, busy_history, small_space

from batchproof.sched.report.graph_formats import as_mermaid
from batchproof.sched.report.lifecycle_graph import lifecycle_graph, request_graph, run_graph
from batchproof.sched.report.state_graph import folded_graph

MERMAID = "mermaid@12.3.0"


@pytest.fixture(scope="module")
def mermaid_script(pytestconfig) -> Path:
    """Mermaid's browser bundle, from npm, kept in the build folder."""
    folder = pytestconfig.rootpath / "build" / "npm"
    script = folder / f"{MERMAID}.min.js"
    if script.exists():
        return script
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on the path: mermaid's parser cannot be had")
    folder.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        [npm, "pack", "--silent", MERMAID],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if packed.returncode:
        pytest.skip(f"npm pack {MERMAID}: {packed.stderr.strip()[-200:]}")
    with tarfile.open(folder / packed.stdout.strip().splitlines()[-1]) as archive:
        member = archive.extractfile("package/dist/mermaid.min.js")
        assert member is not None
        script.write_bytes(member.read())
    return script


def test_mermaid_reads_every_graph_in_the_browser(chromium, mermaid_script: Path) -> None:
    history = busy_history()
    graphs = [
        lifecycle_graph(),
        run_graph(history),
        request_graph(history, max(history.lives, key=lambda life: life.preemptions)),
        folded_graph(small_space()),
        awkward_graph(),
    ]
    page = chromium.new_page()
    page.add_script_tag(path=mermaid_script)
    page.evaluate("mermaid.initialize({startOnLoad: false})")
    for graph in graphs:
        found = page.evaluate("text => mermaid.parse(text)", as_mermaid(graph))
        assert found["diagramType"].startswith("flowchart")
        drawn = page.evaluate(
            "async text => { document.body.innerHTML ="
            " (await mermaid.render('drawn', text)).svg;"
            " return document.body.innerText; }",
            as_mermaid(graph),
        )
        for node in graph.nodes:
            assert node.title in drawn
    with pytest.raises(Exception, match="Parse error"):
        page.evaluate("text => mermaid.parse(text)", "flowchart LR\n  a -->|| b")
    page.close()
