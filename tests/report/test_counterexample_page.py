"""The counterexample page has every verdict and every run, as the checker found them."""

import json
from pathlib import Path

import pytest
from support.checked_samples import NOBODY_DONE, violated_checks
from support.report_samples import page_data

from batchproof.sched.cli import run_cli
from batchproof.sched.report.counterexample_page import counterexample_page

CHECKS = violated_checks()
PAGE = counterexample_page(CHECKS)
TRACES = {trace["property"]: trace for trace in page_data(PAGE)}


def test_the_samples_are_violated() -> None:
    report = CHECKS[0].report
    assert [report[name].outcome for name in ("nobody-done", "never-busy")] == ["violated"] * 2


def test_every_verdict_and_every_run_is_there() -> None:
    verdicts = CHECKS[0].report.verdicts
    for verdict in verdicts:
        assert f"{verdict.prop.name}</" in PAGE
    shown = {v.prop.name: v.trace for v in verdicts if v.trace is not None}
    assert TRACES.keys() == shown.keys()
    for name, trace in shown.items():
        assert len(TRACES[name]["steps"]) == len(trace.steps)
        assert TRACES[name]["loop"] == trace.loop


def test_states_are_flattened_whole() -> None:
    trace = CHECKS[0].report["nobody-done"].trace
    last = dict(TRACES["nobody-done"]["steps"][-1]["state"])
    for number, request in enumerate(trace.steps[-1].state.requests):
        for field, value in request._asdict().items():
            assert last[f"requests[{number}].{field}"] == str(value)


def test_the_sentence_and_the_ending_are_the_property_s() -> None:
    assert TRACES["nobody-done"]["claim"] == NOBODY_DONE.claim
    assert TRACES["nobody-done"]["ending"] == "broken by the last state"
    assert "no request is &lt;ever&gt; done" in PAGE
    assert "<ever>" not in PAGE


def test_the_same_check_gives_the_same_bytes() -> None:
    violated_checks.cache_clear()
    assert counterexample_page(violated_checks()) == PAGE


def test_check_writes_it(tmp_path: Path, capsys) -> None:
    file = tmp_path / "check.html"
    command = ["check", "mini-batch", "--bound", "C1", "--json", "--html", str(file)]
    assert run_cli(command) == 0
    properties = json.loads(capsys.readouterr().out)[0]["properties"]
    traces = page_data(file.read_text())
    assert [trace["property"] for trace in traces] == [p["name"] for p in properties if p["trace"]]
    assert f"<h1>All {len(properties)} verdicts: holds</h1>" in file.read_text()


@pytest.mark.parametrize("option", ["--html", "--itf", "--pytest"])
def test_a_folder_that_is_not_there_is_said_in_one_line(option: str, tmp_path, capsys) -> None:
    command = ["check", "mini-batch", "--bound", "C1", option, str(tmp_path / "no" / "check")]
    assert run_cli(command) == 2
    err = capsys.readouterr().err
    assert "cannot be written" in err
    assert err.count("\n") == 1
