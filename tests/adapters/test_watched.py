"""Watching the scheduler of any engine: what is told to the monitor and written down."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchproof import Limits
from batchproof.sched.adapters.engine import STOPPED
from batchproof.sched.adapters.watched import Scheduled, Watch
from batchproof.sched.cli import run_cli
from batchproof.sched.errors import InputError, LimitsError

LIMITS = Limits(
    max_kv_blocks=8, block_size=4, chunk_size=8, token_budget=8, max_batch_size=4, eos_token=STOPPED
)


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "run.jsonl"


@pytest.fixture
def watch(file) -> Iterator[Watch]:
    watch = Watch(LIMITS, "theirs 1.0", [], str(file))
    yield watch
    watch.end()


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def two_residents(watch: Watch) -> None:
    """Submit `a` and `b`, of 4 + 3 tokens each, and prefill both in one batch."""
    for request_id, user in (("a", "ann"), ("b", "bob")):
        watch.submitted(request_id, user, [5, 6, 7, 8], 3)
    watch.scheduled(Scheduled((), [], [("a", [0, 1]), ("b", [2, 3])], [("a", 0, 4), ("b", 0, 4)]))
    watch.ran({"a": 9, "b": 9}, {}, 4)


def test_a_run_without_fault_is_legal_live_and_afterwards(watch, file, capsys) -> None:
    two_residents(watch)
    watch.scheduled(Scheduled(fed=[("a", 4, 1), ("b", 4, 1)]))
    watch.ran({"a": 9, "b": 54}, {"b": "eos"}, 6)
    watch.scheduled(Scheduled(fed=[("a", 5, 1)]))
    watch.ran({"a": 9}, {"a": "length"}, 8)
    assert not file.exists(), "it is not complete yet"
    watch.end()
    assert watch.violations == []
    assert (watch.tokens_fed, watch.preemptions) == (11, 0)
    head, *events, end = lines(file)
    assert head["policy"] == "theirs 1.0"
    assert [event["event"] for event in events] == ["submit"] * 2 + ["tick"] * 3
    assert events[-2]["decode"] == [["a", 9], ["b", STOPPED]]
    assert [event["start"] <= event["end"] for event in events[2:]] == [True] * 3
    assert end == {"event": "end", "complete": True, "ticks": 3, "live": 0}
    assert run_cli(["replay", str(file)]) == 0
    assert capsys.readouterr().out == "legal; not run again: 6 lines, 3 ticks\n"


def test_a_fault_is_seen_live_and_afterwards(watch, file, capsys) -> None:
    two_residents(watch)
    watch.scheduled(Scheduled(fed=[("a", 4, 1)]))
    watch.ran({"a": 9}, {}, 5)
    (live,) = watch.violations
    watch.end()
    assert run_cli(["replay", str(file)]) == 1
    assert live.property in capsys.readouterr().out


def test_what_it_is_exempt_from_is_not_checked_live_nor_afterwards(file) -> None:
    watch = Watch(LIMITS, "theirs", ["tick-feeds"], str(file))
    watch.submitted("a", "ann", [5], 3)
    watch.scheduled(Scheduled())
    watch.ran({}, {}, 8)
    watch.end()
    assert watch.violations == []
    assert lines(file)[0]["exempt"] == ["tick-feeds"]
    assert run_cli(["replay", str(file)]) == 0
    with pytest.raises(LimitsError, match="exempt from manners, which there is not"):
        Watch(LIMITS, "theirs", ["manners"])


@pytest.mark.parametrize("when", ["batch", "before", "after"])
def test_a_preempted_request_is_told_with_the_next_tick(watch, when) -> None:
    two_residents(watch)
    if when == "before":
        watch.preempted("b")
    watch.scheduled(Scheduled(["b"] if when == "batch" else (), fed=[("a", 4, 1)]))
    if when == "after":
        watch.preempted("b")
    watch.ran({"a": 9}, {}, 6)
    watch.scheduled(Scheduled((), [], [("b", [2, 3])], [("b", 0, 5), ("a", 5, 1)]))
    watch.ran({"a": 9, "b": 9}, {"a": "length"}, 6)
    assert watch.violations == []
    assert watch.preemptions == 1


def test_cancelled_while_its_batch_is_out_it_is_as_if_it_had_not_been_in_it(watch, file) -> None:
    two_residents(watch)
    watch.scheduled(Scheduled((), [], [], [("a", 4, 1), ("b", 4, 1)]))
    watch.cancelled("b")
    watch.ran({"a": 9}, {}, 6)
    watch.end()
    assert watch.violations == []
    assert watch.monitor.live == 1
    *_, cancel, tick, end = lines(file)
    assert (cancel["event"], tick["decode"]) == ("cancel", [["a", 9]])
    assert (end["complete"], end["live"]) == (False, 1)
    assert run_cli(["replay", str(file)]) == 0


def test_a_batch_of_which_all_were_cancelled_is_not_a_tick(watch) -> None:
    two_residents(watch)
    watch.submitted("c", "cas", [5], 3)
    watch.scheduled(Scheduled(["a"], [], [], [("b", 4, 1)]))
    watch.cancelled("b")
    watch.ran({}, {}, 8)
    assert watch.monitor.ticks == 1
    watch.scheduled(Scheduled((), [], [("c", [0])], [("c", 0, 1)]))
    watch.ran({"c": 9}, {}, 7)
    assert watch.violations == [], "that a was preempted is told with the next tick"


def test_a_request_cancelled_after_it_was_preempted_is_cancelled_alone(watch) -> None:
    two_residents(watch)
    watch.preempted("b")
    watch.cancelled("b")
    watch.scheduled(Scheduled(fed=[("a", 4, 1)]))
    watch.ran({"a": 9}, {}, 6)
    assert watch.violations == []


def test_a_tick_that_feeds_nothing_is_told(watch) -> None:
    watch.submitted("a", "ann", [5], 3)
    watch.scheduled(Scheduled())
    watch.ran({}, {}, 8)
    watch.ran({}, {}, 8)  # no batch is out
    assert [found.property for found in watch.violations] == ["tick-feeds"]


def test_a_recording_that_cannot_be_written_is_refused_at_once(tmp_path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        Watch(LIMITS, "theirs", [], str(tmp_path / "no-folder" / "run.jsonl"))


def test_a_process_that_ends_completes_its_recording(file) -> None:
    script = f"""
from batchproof import Limits
from batchproof.sched.adapters.watched import Watch
Watch(Limits(), "theirs", [], {str(file)!r}).submitted("a", "ann", [5], 3)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert lines(file)[-1] == {"event": "end", "complete": False, "ticks": 0, "live": 1}


def test_what_comes_after_the_end_is_not_in_the_recording(watch, file) -> None:
    watch.end()
    two_residents(watch)
    watch.cancelled("a")
    watch.end()
    assert [line["event"] for line in lines(file)] == ["run", "end"]
