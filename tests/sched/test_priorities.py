"""Priorities: among a user's own requests that were never admitted, bounded by ageing (rule 5)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import SMALL, ConstantExecutor, prompt_of, run_to_end, submitted
from support.core_checks import assert_invariants, live_sequences, waiting_ids

from batchproof import Limits, Request, Scheduler
from batchproof.sched.cli import run_cli
from batchproof.sched.errors import InputError, InvalidRequestError
from batchproof.sched.known_workload import known_workload
from batchproof.sched.monitor import Monitor
from batchproof.sched.monitor_facts import ViolationError
from batchproof.sched.monitor_replay import replay
from batchproof.sched.recorder import Recorder, RecordingFile, header
from batchproof.sched.recordings import Trace
from batchproof.sched.replay import Replay
from batchproof.sched.request_gen import Arrival
from batchproof.sched.run_recording import RunRecording, Submit
from batchproof.sched.simulation import Setup
from batchproof.spec import actions
from batchproof.spec.bounds import SIZES
from batchproof.spec.state import State


def urgent(
    name: str, priority: int = 0, user: str = "u", prompt: int = 3, max_tokens: int = 4
) -> Request:
    return Request(user, prompt_of(name, prompt), max_tokens, name, priority=priority)


def a_scheduler(max_passes: int = 16, **options: Any) -> Scheduler:
    limits = replace(SMALL, max_passes=max_passes)
    return Scheduler(limits, executor=ConstantExecutor(), monitor=True, **options)


@pytest.mark.parametrize("priority", ["1", 1.0, True, None])
def test_a_priority_that_is_no_int_is_refused(priority: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"priority is .*, not an int"):
        a_scheduler().submit(urgent("r", priority))


@pytest.mark.parametrize("value", [-1, 1.0, True, None, "2"])
def test_max_passes_is_an_int_and_may_be_0(value: Any) -> None:
    from batchproof.sched.errors import LimitsError

    assert Limits().max_passes == 16
    assert Limits(max_passes=0).max_passes == 0
    with pytest.raises(LimitsError, match=r"max_passes=.*at least 0"):
        Limits(max_passes=value)


def test_a_request_passes_those_of_its_user_that_are_less_urgent_and_stops_at_the_first_other():
    sched = a_scheduler()
    submitted(sched, [urgent("a", 1), urgent("b", 5), urgent("c", 0), urgent("d", -2)])
    assert waiting_ids(sched) == ["b", "a", "c", "d"]
    sched.submit(urgent("e", 1))
    assert waiting_ids(sched) == ["b", "a", "e", "c", "d"]
    sched.submit(urgent("f", 9))
    assert waiting_ids(sched) == ["f", "b", "a", "e", "c", "d"]
    assert [r.request_id for r in sched.active_requests()] == list("abcdef")
    assert [r.request_id for r in run_to_end(sched)][:2] == ["f", "b"]


def test_it_is_stopped_by_one_that_it_may_not_pass_though_others_are_ahead() -> None:
    sched = a_scheduler(max_passes=1)
    submitted(sched, [urgent("a"), urgent("b", 1)])
    assert waiting_ids(sched) == ["b", "a"]
    sched.submit(urgent("c", 2))
    assert waiting_ids(sched) == ["b", "a", "c"], "a was passed once: it is passed no more"


def test_other_users_keep_every_place_of_theirs() -> None:
    sched = a_scheduler()
    submitted(sched, [urgent("a1", 0, "a"), urgent("b1", 0, "b"), urgent("a2", 0, "a")])
    submitted(sched, [urgent("b2", 0, "b"), urgent("a3", 7, "a")])
    assert waiting_ids(sched) == ["a3", "b1", "a1", "b2", "a2"]
    places = {seq.request_id: seq.number for seq in live_sequences(sched)}
    assert places == {"a3": 0, "b1": 1, "a1": 2, "b2": 3, "a2": 4}


def test_without_ageing_priorities_count_for_nothing() -> None:
    sched = a_scheduler(max_passes=0)
    submitted(sched, [urgent("a"), urgent("b", 9)])
    assert waiting_ids(sched) == ["a", "b"]


def test_a_stream_of_urgent_requests_passes_a_patient_one_so_often_and_no_more() -> None:
    sched = a_scheduler(max_passes=3, policy="stall-free")
    big = urgent("patient", 0, prompt=20, max_tokens=4)
    submitted(sched, [urgent("x", 9, prompt=20), big])
    passed_by = 0
    for number in range(40):
        sched.submit(urgent(f"n{number}", 9, prompt=20))
        line = waiting_ids(sched)
        if "patient" in line:
            passed_by = max(passed_by, line.index("patient"))
        sched.tick()
    (seq,) = [seq for seq in live_sequences(sched) if seq.request_id == "patient"] or [None]
    assert seq is None or seq.was_admitted
    assert passed_by <= 3 + 1


def test_who_was_admitted_is_never_passed_preempted_or_not() -> None:
    sched = a_scheduler(policy="stall-free")
    submitted(sched, [urgent("old", 0, prompt=7, max_tokens=14)])
    sched.tick()
    sched.submit(urgent("young", 0, prompt=7, max_tokens=14))
    while not sched.stats()["preemptions"]:
        sched.tick()
    assert waiting_ids(sched) == ["young"]
    sched.submit(urgent("urgent", 99, prompt=28, max_tokens=4))
    assert waiting_ids(sched) == ["young", "urgent"]
    assert_invariants(sched)
    run_to_end(sched)


def test_who_is_in_a_batch_that_is_out_is_not_passed_and_may_be_once_it_is_abandoned() -> None:
    sched = a_scheduler()
    submitted(sched, [urgent("a"), urgent("b", prompt=28)])
    batch = sched.schedule()
    assert [share.request_id for share in batch] == ["a"]
    sched.submit(urgent("c", 5))
    assert waiting_ids(sched) == ["a", "c", "b"]
    sched.abandon(batch)
    sched.submit(urgent("d", 7))
    assert waiting_ids(sched) == ["d", "a", "c", "b"]
    assert_invariants(sched)
    batch = sched.schedule()
    sched.submit(urgent("e", 9))
    sched.complete(batch, [7] * len(batch))
    assert_invariants(sched)
    run_to_end(sched)


def test_a_snapshot_keeps_places_and_how_often_each_was_passed() -> None:
    sched = a_scheduler(max_passes=2)
    submitted(sched, [urgent("a"), urgent("x", 0, "v"), urgent("b", 1), urgent("c", 2)])
    taken = json.loads(json.dumps(sched.snapshot()))
    again = Scheduler.restore(taken, executor=ConstantExecutor(), monitor=True)
    assert again.snapshot() == taken
    assert [r.request_id for r in again.active_requests()] == ["a", "x", "b", "c"]
    for one in (sched, again):
        assert_invariants(one)
        one.submit(urgent("d", 3))
        assert waiting_ids(one) == ["c", "x", "b", "a", "d"], "a was passed twice already"
        assert {r.request_id for r in run_to_end(one)} == set("axbcd")


REQUESTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from("uvw"), st.booleans(), st.integers(0, 9)),
    max_size=25,
)


@given(REQUESTS, st.integers(0, 4))
def test_the_line_is_that_of_the_specification(steps: list[Any], max_passes: int) -> None:
    """Submissions and cancellations, against `spec.actions` on the same requests."""
    users = {"u": 0, "v": 1, "w": 2}
    system = replace(
        SIZES["pair"].system,
        requests=tuple(
            SIZES["pair"].system.requests[0]._replace(user=users[user], priority=priority)
            for priority, user, _, _ in steps
        ),
        max_passes=max_passes,
    )
    sched, state = a_scheduler(max_passes), State((), 5)
    for number, (priority, user, cancels, place) in enumerate(steps):
        sched.submit(urgent(f"r{number}", priority, user))
        state = actions.submit(system, state, number)
        if cancels:
            gone = state.live[place % len(state.live)].request
            assert sched.cancel(f"r{gone}")
            state = actions.cancel(state, gone)
        assert waiting_ids(sched) == [f"r{live.request}" for live in state.live]
        passed = {seq.request_id: seq.passed for seq in live_sequences(sched)}
        assert passed == {f"r{live.request}": live.passed for live in state.live}
        assert max(passed.values(), default=0) <= max_passes
    assert_invariants(sched)


def heard(*requests: tuple[str, int, int], max_passes: int = 2) -> Monitor:
    """Return a monitor told of requests of one user: id, priority, how many it passes."""
    monitor = Monitor(replace(SMALL, max_passes=max_passes), on_violation="record")
    for name, priority, passes in requests:
        monitor.submitted(name, "u", 3, 4, (None, None), priority, passes)
    return monitor


WRONG = {
    "an equal": ([("a", 1, 0), ("b", 1, 1)], "passes one of priority 1, its own is 1"),
    "a more urgent one": ([("a", 2, 0), ("b", 1, 1)], "passes one of priority 2, its own is 1"),
    "more than there are": ([("a", 0, 0), ("b", 1, 2)], "passes 2 of its user, 1 wait"),
    "one too often": (
        [("a", 0, 0), ("b", 1, 1), ("c", 2, 2), ("d", 3, 3)],
        "passes one that was passed 2 times, 2 may be",
    ),
}


@pytest.mark.parametrize(("requests", "says"), WRONG.values(), ids=WRONG)
def test_a_monitor_names_who_passes_whom_it_may_not(requests: Any, says: str) -> None:
    monitor = heard(*requests)
    assert [found.property for found in monitor.violations] == ["passed-for-cause"]
    assert says in monitor.violations[0].detail
    assert replay(json.loads(json.dumps(monitor.report()))) == monitor.violations


def test_a_monitor_knows_the_order_that_priorities_give() -> None:
    right = a_scheduler()
    submitted(right, [urgent("a", prompt=20), urgent("b", 1, prompt=20)])
    run_to_end(right)

    wrong = a_scheduler()
    submitted(wrong, [urgent("a", prompt=20), urgent("b", 1, prompt=20)])
    first, second = (seq for seq in live_sequences(wrong))
    line = wrong._roster.waiting
    for part in (line._fresh, line.by_user["u"]._fresh):
        part[0], part[1] = first, second
    first.number, second.number = 0, 1
    with pytest.raises(ViolationError, match="fcfs-within-user"):
        run_to_end(wrong)


def test_a_report_of_many_ticks_is_taken_again_from_places_as_they_were() -> None:
    sched = a_scheduler()
    submitted(sched, [urgent("runs", max_tokens=20, prompt=12), urgent("a", prompt=20)])
    monitor = sched.monitor
    assert monitor is not None
    monitor.ticks = 199  # the next tick but one begins a stretch
    sched.tick()
    sched.tick()
    sched.submit(urgent("b", 1, prompt=20))
    report = json.loads(json.dumps(monitor.report()))
    assert waiting_ids(sched) == ["b", "a"]
    assert replay(report) == []
    start = monitor._kept[1].start["a"]
    assert (start.number, start.passed) == (1, 0), "a report begins with what there was"


def test_a_recording_keeps_priorities_and_runs_again_the_same(tmp_path) -> None:
    path = tmp_path / "run.jsonl"
    setup = Setup(limits=replace(SMALL, max_passes=2), eos_rate=0)
    gpu = setup.gpu()
    with open(path, "wb") as file:
        out = RecordingFile(file, header(setup, "max_utilization", 0, "test"))
        recorder = Recorder(gpu, SMALL.max_kv_blocks, out.write)
        sched = setup.scheduler(recorder, recorder)
        for number in range(12):
            sched.submit(urgent(f"r{number}", number % 4, "uv"[number % 2], prompt=9))
        run_to_end(sched)
        recorder.end(complete=True)
    records = [record for _, record in RunRecording(str(path))]
    assert sum(record.passes for record in records if isinstance(record, Submit)) > 3
    outcome = Replay(RunRecording(str(path))).run()
    assert (outcome.difference, outcome.broken) == (None, None)
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"passes":' in line)
    record = json.loads(lines[at])
    lines[at] = json.dumps({**record, "passes": record["passes"] + 9})
    path.write_text("\n".join(lines) + "\n")
    broken = Replay(RunRecording(str(path))).run().broken
    assert broken is not None
    assert (broken.line, broken.violation.property) == (at + 1, "passed-for-cause")


ROW = {"timestamp": 5000, "input_length": 6, "output_length": 2}


def a_trace(tmp_path, *rows: dict[str, Any], **options: Any) -> Trace:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps({**ROW, **row}) + "\n" for row in rows))
    return Trace(str(path), **options)


def test_a_row_of_a_trace_may_have_a_priority_and_times(tmp_path) -> None:
    timed = {"priority": -3, "deadline_s": 4.5, "max_queue_time_s": 2, "timestamp": 7000}
    first, second = a_trace(tmp_path, {}, timed, time_scale=3.0)
    assert (first.request.priority, first.request.deadline_s) == (0, None)
    request = second.request
    assert (request.priority, request.max_queue_time_s) == (-3, 2)
    assert second.at_s == 6.0
    assert request.deadline_s == 4.5 + 4.0, "it has as long as before to its deadline"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"priority": "high"}, "priority: found 'high', expected an int; higher is more urgent"),
        ({"priority": True}, "priority: found True"),
        ({"deadline_s": "soon"}, "deadline_s: found 'soon', expected a number of seconds above 0"),
        ({"max_queue_time_s": 0}, "max_queue_time_s: found 0, expected"),
        ({"deadline_s": False}, "deadline_s: found False"),
    ],
)
def test_a_row_with_one_that_makes_no_sense_is_bad(tmp_path, row, says) -> None:
    with pytest.raises(InputError, match=f"line 1, {says}"):
        list(a_trace(tmp_path, row))


def test_policies_are_not_compared_on_requests_that_expire(tmp_path, capsys) -> None:
    path = tmp_path / "urgent.jsonl"
    path.write_text(json.dumps({**ROW, "max_queue_time_s": 2}) + "\n")
    assert run_cli(["compare", str(path)]) == 2
    assert "urgent has requests that expire" in capsys.readouterr().err


def test_a_known_workload_keeps_them_at_every_rate() -> None:
    from batchproof.sched.prompts import PromptRing

    prompt = PromptRing(0).prompt(5, 9)
    times: dict[str, Any] = {"deadline_s": 3.0, "max_queue_time_s": 0.5, "priority": 2}
    arrivals = [
        Arrival(0.0, Request("u", prompt, 2, "a")),
        Arrival(1.0, Request("u", prompt, 2, "b", **times)),
    ]
    known = known_workload("two", "own", arrivals, Setup())
    _, second = known.at_rate(0.5).arrivals()
    request = second.request
    assert second.at_s == 2.0
    assert (request.priority, request.deadline_s, request.max_queue_time_s) == (2, 4.0, 0.5)
