"""The timeline's page carries the run, whole, and nothing from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.report_samples import busy_history, busy_recording, history_of, page_data

from batchproof.sched.cli import run_cli
from batchproof.sched.report.timeline import timeline_page

PAGE = timeline_page(busy_history(), "sample <run>")


class Outline(HTMLParser):
    """What a page's markup has: tags, and every address that it could fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def test_it_is_one_file_that_refers_to_no_other() -> None:
    outline = Outline(PAGE)
    assert outline.addresses == []
    assert "link" not in outline.tags
    assert "default-src 'none'" in PAGE
    assert "url(" not in PAGE
    assert "import" not in re.sub(
        r"\bimportant\b", "", PAGE.split("<style>")[1].split("</style>")[0]
    )


def test_a_title_is_text() -> None:
    assert "<title>sample &lt;run&gt; - timeline</title>" in PAGE
    assert "<run>" not in PAGE


def test_the_data_is_the_run() -> None:
    data, history = page_data(PAGE), busy_history()
    assert data["requests"]["name"] == [life.name for life in history.lives]
    assert data["requests"]["generated"] == [life.generated for life in history.lives]
    assert [data["users"][user] for user in data["requests"]["user"]] == [
        life.user for life in history.lives
    ]
    assert sum(data["ticks"]["share_decodes"]) + sum(data["ticks"]["share_chunks"]) == sum(
        tick.sequences for tick in history.ticks
    )
    assert data["ticks"]["free"] == [tick.free for tick in history.ticks]
    moves = [move for life in history.lives for move in life.moves]
    assert [data["phases"][phase] for phase in data["requests"]["move_phase"]] == [
        move.dest for move in moves
    ]
    assert sum(data["holdings"]["length"]) == sum(h.end - h.start for h in history.holdings)


def test_the_same_recording_gives_the_same_bytes() -> None:
    assert timeline_page(history_of(busy_recording()), "sample <run>") == PAGE


@pytest.mark.parametrize("format", ["html", "perfetto"])
def test_the_command_writes_what_it_prints(format: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "run.jsonl").write_bytes(busy_recording())
    command = ["timeline", str(tmp_path / "run.jsonl"), "--format", format]
    assert run_cli(command) == 0
    printed = capsys.readouterr().out
    assert run_cli([*command, "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out").read_text() == printed


@pytest.mark.parametrize(
    ("spoil", "arguments", "message"),
    [
        (lambda content: content, ["--format", "png"], "unknown format 'png'"),
        (lambda content: b"", [], "the file is empty"),
        (lambda content: content[:-40], [], "line "),
        (lambda content: b"TIMESTAMP,a\n1,2\n", [], "not the header of a recording of a run"),
        (lambda content: content.replace(b'"format":1', b'"format":0', 1), [], "is of format 0"),
        (lambda content: content, ["-o", "RUN/x"], "cannot be written"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_written(
    spoil, arguments: list[str], message: str, tmp_path: Path, capsys
) -> None:
    run = tmp_path / "run.jsonl"
    run.write_bytes(spoil(busy_recording()))
    rest = [part.replace("RUN", str(run)) for part in arguments or ["-o", str(tmp_path / "out")]]
    assert run_cli(["timeline", str(run), *rest]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert (out, err.count("\n")) == ("", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]
