"""`compare --report DIR`: the page says what `--json` says, in tables and in plots."""

import json
import re
from pathlib import Path

import pytest
from support.page_cells import Cells

from batchproof.sched.cli import run_cli
from batchproof.sched.report.compare_report import comparison_page

COMPARE = [
    *("compare", "--requests", "12", "--policy", "stall-free,orca", "--load", "0.5,1.0"),
    *("--latency", "linear", "--slo", "ttft_p50=9s", "--jobs", "1", "--json"),
]


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("compare") / "out"
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *parts, **_: printed.extend(map(str, parts)))
        assert run_cli([*COMPARE, "--report", str(folder)]) == 0
    return folder, json.loads(printed[-1])


def test_the_folder_has_the_page_and_the_result(compared) -> None:
    folder, result = compared
    assert {path.name for path in folder.iterdir()} == {"index.html", "result.json"}
    assert json.loads((folder / "result.json").read_text()) == result
    assert Cells((folder / "index.html").read_text()).links == ["result.json"]


def test_the_tables_say_what_the_result_says(compared) -> None:
    folder, result = compared
    rows = Cells((folder / "index.html").read_text()).rows
    for run in result["runs"]:
        (row,) = [row for row in rows if row[:2] == [f"{run['load']:g}", run["policy"]]]
        assert row[2] == f"{run['throughput_of_limit']:.1%}"
        assert row[3:5] == [f"{run['ttft_s'][q]:,.3f}" for q in ("p50", "p99")]
        assert row[-2:] == [f"{run['preemptions']:,}", f"{run['recomputed_tokens']:,}"]
    assert len(result["runs"]) == 4
    assert [row[2] for row in rows if row[:2] == ["generated", "linear"]] == ["stall-free", "orca"]


def test_each_measure_is_plotted_with_a_line_for_each_policy(compared) -> None:
    folder, _ = compared
    page = (folder / "index.html").read_text()
    plots = re.findall(r'<figure class="plot">.*?</figure>', page, re.DOTALL)
    assert len(plots) == 4
    for plot in plots:
        assert re.findall(r'class="line ([^"]*)" points="[^ "]+ [^ "]+"', plot) == [
            "user-1",
            "user-2",
        ]


def test_names_are_text_and_the_same_result_gives_the_same_bytes(compared) -> None:
    _, result = compared
    assert comparison_page(result) == comparison_page(json.loads(json.dumps(result)))
    named = json.loads(json.dumps(result).replace("generated", "<b>x"))
    assert "&lt;b&gt;x" in comparison_page(named)
    assert "<b>x" not in comparison_page(named)


def test_a_folder_that_cannot_be_made_is_said_before_the_work(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("mine")
    assert run_cli([*COMPARE, "--report", str(tmp_path / "file")]) == 2
    out, err = capsys.readouterr()
    assert "cannot be made a folder" in err
    assert (out, err.count("\n")) == ("", 1)
