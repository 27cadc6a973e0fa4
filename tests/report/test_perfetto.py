"""The trace is what the Trace Event Format documents, and says what the recording says."""

import json
from collections import defaultdict

import pytest
from support.report_samples import busy_history, busy_recording, history_of

from batchproof.sched.report.perfetto import perfetto_json

RECORDS = [json.loads(line) for line in busy_recording().splitlines()]
TICKS = [record for record in RECORDS if record["event"] == "tick"]
TRACE = json.loads(perfetto_json(busy_history()))
EVENTS = TRACE["traceEvents"]

FIELDS = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "C": {"name", "pid", "tid", "ts", "args"},
    "i": {"name", "cat", "pid", "tid", "ts", "s"},
    "M": {"name", "pid", "args"},
}
"""What an event of each phase letter has, of all that the format knows."""
METADATA = {"process_name": "name", "process_sort_index": "sort_index", "thread_name": "name"}


def of(letter: str) -> list[dict]:
    return [event for event in EVENTS if event["ph"] == letter]


@pytest.mark.parametrize("letter", FIELDS)
def test_every_event_has_the_documented_fields(letter: str) -> None:
    assert of(letter)
    for event in of(letter):
        assert event.keys() - {"ph"} >= FIELDS[letter]
        assert event.keys() - {"ph", "tid"} <= FIELDS[letter]
        assert isinstance(event["name"], str)
        for field in event.keys() & {"pid", "tid", "ts", "dur"}:
            assert isinstance(event[field], int)
            assert event[field] >= 0


def test_there_are_no_other_events_and_it_is_the_object_form() -> None:
    assert {event["ph"] for event in EVENTS} == FIELDS.keys()
    assert TRACE["displayTimeUnit"] in ("ms", "ns")
    assert all(event["s"] in ("g", "p", "t") for event in of("i"))
    assert all(set(event["args"]) == {METADATA[event["name"]]} for event in of("M"))
    assert all(type(value) is int for event in of("C") for value in event["args"].values())


def test_every_track_has_a_name() -> None:
    processes = {e["pid"] for e in of("M") if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]) for e in of("M") if e["name"] == "thread_name"}
    assert {event["pid"] for event in EVENTS} == processes
    assert {(event["pid"], event["tid"]) for event in of("X") + of("i")} == threads


def test_slices_of_a_track_do_not_overlap() -> None:
    ends: dict[tuple[int, int], int] = defaultdict(int)
    for event in of("X"):
        track = event["pid"], event["tid"]
        assert event["ts"] >= ends[track]
        ends[track] = event["ts"] + event["dur"]


def test_there_is_a_track_for_each_user_and_request() -> None:
    names = {e["pid"]: e["args"]["name"] for e in of("M") if e["name"] == "process_name"}
    requests = sorted(
        (names[e["pid"]].removeprefix("user "), e["args"]["name"])
        for e in of("M")
        if e["name"] == "thread_name" and names[e["pid"]] != "scheduler"
    )
    assert requests == sorted(
        (record["request"]["user"], record["request"]["id"])
        for record in RECORDS
        if record["event"] == "submit"
    )


def counter(name: str) -> list[tuple[int, int]]:
    return [(e["ts"], e["args"]["value"]) for e in of("C") if e["name"] == name]


def test_counters_are_those_of_the_recording() -> None:
    pool = RECORDS[0]["limits"]["max_kv_blocks"]
    assert counter("KV blocks held") == [
        (round(tick["end"] * 1e6), pool - tick["free"]) for tick in TICKS
    ]
    fed = [
        len(tick.get("decode", [])) + sum(fed for _, _, fed, _ in tick.get("chunks", []))
        for tick in TICKS
    ]
    assert [value for _, value in counter("budget used (tokens)")] == fed
    size = [len(tick.get("decode", [])) + len(tick.get("chunks", [])) for tick in TICKS]
    assert [value for _, value in counter("batch size (sequences)")] == size
    assert [value for _, value in counter("queue (waiting requests)")] == waiting()


def waiting() -> list[int]:
    """Count who waits in each tick, from the recording alone."""
    counts, phase = [], {}
    for record in RECORDS:
        if record["event"] == "submit":
            phase[record["request"]["id"]] = "waiting"
        elif record["event"] == "cancel":
            phase[record["id"]] = "done"
        elif record["event"] == "tick":
            phase |= dict.fromkeys(record.get("preempt", []), "waiting")
            phase |= {name: "resident" for name, _ in record.get("admit", [])}
            counts.append(list(phase.values()).count("waiting"))
            phase |= {name: "done" for name, _ in record.get("ended", [])}
    return counts


def test_preemptions_and_cancellations_are_marked() -> None:
    marks = [event["name"] for event in of("i")]
    assert marks.count("preempt") == sum(len(tick.get("preempt", [])) for tick in TICKS)
    assert marks.count("cancel") == sum(record["event"] == "cancel" for record in RECORDS)


def test_the_same_recording_gives_the_same_bytes() -> None:
    assert perfetto_json(history_of(busy_recording())) == perfetto_json(busy_history())
