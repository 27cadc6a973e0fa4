"""`run --report DIR`: the page says what `--json` says, and links to all of it."""

import json
import re
from pathlib import Path

import pytest
from support.page_cells import Cells
from support.report_samples import busy_history

from batchproof.sched.cli import run_cli
from batchproof.sched.report.svg_plots import Axis, distribution, most_by_time, rate_by_time

RUN = ["run", "--requests", "60", "--rate", "30", "--max-kv-blocks", "96", "--json"]
FILES = {"index.html", "timeline.html", "trace.json", "lifecycle.svg", "run.jsonl.gz"}


@pytest.fixture(scope="module")
def reported(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("report") / "new" / "out"
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *parts, **_: printed.extend(map(str, parts)))
        assert run_cli([*RUN, "--report", str(folder)]) == 0
    return folder, json.loads(printed[-1])


def test_the_folder_has_everything_and_the_links_lead_there(reported) -> None:
    folder, _ = reported
    assert {path.name for path in folder.iterdir()} == FILES
    page = Cells((folder / "index.html").read_text())
    assert set(page.links) == FILES - {"index.html"}


def test_the_tables_say_what_the_result_says(reported) -> None:
    folder, result = reported
    rows = Cells((folder / "index.html").read_text()).rows
    assert ["preemptions", f"{result['preemptions']:,}"] in rows
    assert ["output tokens", f"{result['tokens']['output']:,}"] in rows
    ttft = [f"{result['ttft_s'][q]:,.3f}" for q in ("p50", "p90", "p99", "mean", "max")]
    assert ["TTFT", *ttft] in rows
    for user, figures in result["users"].items():
        (row,) = [row for row in rows if row[0] == user]
        assert row[1:4] == [f"{figures[name]:,}" for name in ("submitted", "finished", "refused")]


def test_the_recording_beside_it_is_replayed(reported, capsys) -> None:
    folder, _ = reported
    assert run_cli(["replay", str(folder / "run.jsonl.gz")]) == 0


def test_the_same_run_gives_the_same_bytes(reported, tmp_path: Path, capsys) -> None:
    folder, _ = reported
    assert run_cli([*RUN, "--report", str(tmp_path)]) == 0
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--report", "FILE"], "cannot be made a folder"),
        (["--report", "FILE/below"], "cannot be made a folder"),
        (["--report", "DIR", "--record", "x"], "leave out --record"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys
) -> None:
    (tmp_path / "file").write_text("mine")
    places = {"FILE": str(tmp_path / "file"), "DIR": str(tmp_path / "dir")}
    given = [re.sub("FILE|DIR", lambda found: places[found[0]], part) for part in arguments]
    assert run_cli([*RUN, *given]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (out, err.count("\n")) == ("", 1)
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_distribution_is_the_share_at_most_x() -> None:
    assert distribution([3.0, 1.0]) == [(1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0)]
    values = [life.submitted_at for life in busy_history().lives] * 200
    thin = distribution(values)
    assert len(thin) < 2_000
    assert (thin[0], thin[-1]) == ((min(values), 0.0), (max(values), 1.0))


def test_binning_keeps_what_is_most_and_what_is_all() -> None:
    assert most_by_time([(0.0, 1.0), (0.4, 5.0), (1.9, 2.0)], 2.0, 2) == [(0.5, 5.0), (1.5, 2.0)]
    assert rate_by_time([(0.0, 1.0), (0.4, 5.0), (2.0, 2.0)], 2.0, 2) == [(0.5, 6.0), (1.5, 2.0)]


def test_axes_have_round_marks() -> None:
    assert Axis("s", 0.0, 114.3).marks() == [0.0, 50.0, 100.0]
    assert Axis("s", 0.02, 1.3, log=True).marks() == pytest.approx([0.02, 0.05, 0.1, 0.2, 0.5, 1])
    assert Axis("s", 1e-5, 1.0, log=True).marks() == pytest.approx([1e-5, 1e-4, 1e-3, 0.01, 0.1, 1])
