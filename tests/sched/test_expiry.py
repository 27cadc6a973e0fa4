"""Requests that expire: ended between two ticks, at once, for good, and returned exactly once."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    SMALL,
    AnsweringExecutor,
    ConstantExecutor,
    a_request,
    prompt_of,
    run_to_end,
    submitted,
)
from support.core_checks import assert_invariants, live_sequences

from batchproof import Request, Scheduler
from batchproof.sched.errors import InvalidRequestError
from batchproof.sched.expiry import Expiry, expires_at
from batchproof.sched.inference_stub import SimulatedGPU
from batchproof.sched.monitor import Monitor
from batchproof.sched.monitor_facts import ViolationError
from batchproof.sched.monitor_replay import replay
from batchproof.sched.observer import SilentObserver
from batchproof.sched.policy.registry import make_policy
from batchproof.sched.recorder import Recorder, RecordingFile, header
from batchproof.sched.replay import Replay
from batchproof.sched.report.run_history import RunHistory
from batchproof.sched.request import Sequence as LiveRequest
from batchproof.sched.run_recording import Expire, RunRecording
from batchproof.sched.simulation import Setup
from batchproof.spec.behavior import Step, follow
from batchproof.spec.bounds import SIZES


def timed(
    name: str, prompt: int = 3, max_tokens: int = 4, user: str = "u", **times: Any
) -> Request:
    return Request(user, prompt_of(name, prompt), max_tokens, name, **times)


def a_scheduler(executor: Any = None, **options: Any) -> Scheduler:
    """Return a scheduler on an executor whose every batch takes a second."""
    return Scheduler(SMALL, executor=executor or ConstantExecutor(), **options)


def ends(requests: Sequence[Request]) -> list[tuple[str, str | None]]:
    return [(request.request_id, request.finish_reason) for request in requests]


@pytest.mark.parametrize("name", ["deadline_s", "max_queue_time_s"])
@pytest.mark.parametrize(
    "value", ["1", True, float("nan"), float("inf"), float("-inf"), 10**400, [1.0]]
)
def test_a_time_that_is_no_number_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"{name} is .*, not a finite number of seconds"):
        a_scheduler().submit(timed("r", **{name: value}))


@pytest.mark.parametrize("patience", [0, 0.0, -1])
def test_no_patience_at_all_is_refused(patience: float) -> None:
    with pytest.raises(InvalidRequestError, match=r"max_queue_time_s is .*, not above 0"):
        a_scheduler().submit(timed("r", max_queue_time_s=patience))


def test_a_deadline_that_is_over_is_refused_and_leaves_no_trace() -> None:
    sched = a_scheduler()
    submitted(sched, [a_request("first")])
    sched.tick()
    for over in (1.0, 1, 0.5, -3.0):
        with pytest.raises(InvalidRequestError, match=r"deadline_s is .* clock is at 1\.0"):
            sched.submit(timed("late", deadline_s=over))
    sched.submit(timed("late", deadline_s=1.001))
    assert sched.stats()["requests"]["refused"] == 4


def test_a_deadline_ends_a_request_in_every_phase_and_frees_its_blocks() -> None:
    sched = a_scheduler()
    requests = [
        timed("decodes", 3, 20, deadline_s=3),
        timed("prefills", 20, 5, user="v", deadline_s=1),
        timed("waits", 9, 9, user="w", deadline_s=1),
    ]
    submitted(sched, requests)
    assert sched.tick() == []
    assert [r.phase for r in requests] == ["decoding", "prefilling", "waiting"]
    assert ends(sched.tick()) == [("prefills", "expired"), ("waits", "expired")]
    assert {r.phase for r in requests[1:]} == {"done"}
    assert [r.request_id for r in sched.active_requests()] == ["decodes"]
    sched.tick()
    assert ends(sched.tick()) == [("decodes", "expired")]
    assert len(requests[0].generated) == 3
    assert sched.stats()["live"]["free_blocks"] == SMALL.max_kv_blocks
    assert not sched.has_active()


def test_a_request_that_is_done_by_its_deadline_is_finished() -> None:
    sched = a_scheduler()
    sched.submit(timed("r", 3, 2, deadline_s=1.5))
    sched.tick()
    assert ends(sched.tick()) == [("r", "length")]


def test_patience_is_for_the_first_admission_alone() -> None:
    sched = a_scheduler(policy="stall-free")
    old = timed("old", 7, 14, max_queue_time_s=1)
    young = timed("young", 7, 14, max_queue_time_s=1)
    late = timed("late", 28, 4, max_queue_time_s=3)
    submitted(sched, [old, young, late])
    ended = run_to_end(sched)
    assert sched.stats()["preemptions"] > 0, "young waits again, for longer than its patience"
    assert dict(ends(ended)) == {"old": "length", "young": "length", "late": "expired"}


def test_a_deadline_counts_on_where_patience_was_rewarded() -> None:
    sched = a_scheduler()
    sched.submit(timed("r", 3, 20, max_queue_time_s=1.5, deadline_s=4))
    ended = run_to_end(sched)
    assert ends(ended) == [("r", "expired")]
    assert (len(ended[0].generated), sched.executor.now()) == (4, 4.0)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_who_has_ended_is_expected_to_expire_no_more(is_cancelled: bool) -> None:
    sched = a_scheduler()
    sched.submit(timed("r", deadline_s=100))
    assert sched._expiry
    if is_cancelled:
        sched.cancel("r")
    else:
        run_to_end(sched)
    assert not sched._expiry


def test_who_was_admitted_in_time_and_has_no_deadline_never_expires_after_a_restart_too() -> None:
    sched = a_scheduler()
    sched.submit(timed("r", 3, 5, max_queue_time_s=1.5))
    sched.tick()
    again = Scheduler.restore(sched.snapshot(), executor=ConstantExecutor())
    assert not again._expiry
    for one in (sched, again):
        assert ends(run_to_end(one)) == [("r", "length")]
    assert not sched._expiry


def waiting_until(deadline: float, number: int = 0) -> LiveRequest:
    request = timed(f"r{number}", deadline_s=deadline)
    request.phase = "waiting"
    return LiveRequest(request, [1], number, 0.0)  # type: ignore[arg-type]


def test_the_entry_of_who_has_ended_meanwhile_is_passed_over() -> None:
    expiry, gone, stays = Expiry(), waiting_until(1.5), waiting_until(2.5)
    expiry.enter(gone)
    expiry.enter(stays)
    expiry.forget(gone)
    assert expiry.next_due(3.0) is stays
    assert expiry.next_due(3.0) is None


def test_entries_of_ended_requests_are_dropped_in_time_and_the_order_stays() -> None:
    expiry = Expiry()
    sequences = [waiting_until(float(n * 37 % 100 + 1), n) for n in range(100)]
    for sequence in sequences:
        expiry.enter(sequence)
    for sequence in sequences[::2] + sequences[1::4]:
        expiry.forget(sequence)
        assert len(expiry._heap) <= 2 * len(expiry._timed) + 16
    left = []
    while (sequence := expiry.next_due(1e9)) is not None:
        left.append(sequence.deadline_s)
        expiry.forget(sequence)
    assert left == sorted(s.deadline_s for s in sequences[3::4])
    assert len(left) == 25


def test_patience_runs_from_the_submission_that_was_told() -> None:
    sched = a_scheduler()
    submitted(sched, [a_request("first")])
    sched.tick()
    sched.submit(timed("late", max_queue_time_s=1), submitted_at=0.0)
    sched.submit(timed("in time", max_queue_time_s=1), submitted_at=0.5)
    assert ends(sched.tick()) == [("late", "expired")]


def test_the_earlier_of_both_times_counts_and_the_deadline_after_admission() -> None:
    waits = LiveRequest(timed("r", deadline_s=9, max_queue_time_s=2), [1], 0, 5.0)  # type: ignore[arg-type]
    waits.request.phase = "waiting"
    assert expires_at(waits) == 7.0
    waits.max_queue_time_s = 5
    assert expires_at(waits) == 9
    waits.max_queue_time_s = 2
    waits.request.phase = "decoding"
    assert expires_at(waits) == 9
    waits.request.phase, waits.preemptions = "waiting", 1
    assert expires_at(waits) == 9


class Policy:
    """Passes on to stall-free, and keeps whom it was shown."""

    name, admission = "own", "max_utilization"

    def __init__(self) -> None:
        self.inner = make_policy("stall-free")
        self.shown: set[str] = set()

    def plan(self, view: Any) -> Any:
        users = [c for u in view.users.values() for c in (*u.residents, *u.waiting)]
        for candidate in (*view.decoding, *view.prefilling, *view.waiting, *users):
            self.shown.add(candidate.request_id)
        return self.inner.plan(view)


def test_a_policy_is_never_shown_a_request_that_has_expired() -> None:
    policy = Policy()
    sched = a_scheduler(policy=policy)
    submitted(sched, [a_request("stays", 3, 9), timed("goes", 20, 9, deadline_s=1)])
    sched.tick()
    policy.shown.clear()
    sched.tick()
    assert policy.shown == {"stays"}


def test_expiry_is_for_good_though_the_tick_fails_and_is_reported_once() -> None:
    sched = a_scheduler(AnsweringExecutor(lambda n: [7] * n, ConnectionError("lost")))
    gone = timed("gone", 20, 9, deadline_s=0.5)
    submitted(sched, [a_request("stays", 3, 4), gone])
    sched.tick()
    sched.executor.seconds = 1.0
    with pytest.raises(ConnectionError):
        sched.tick()
    assert (gone.phase, gone.finish_reason) == ("done", "expired")
    assert [r.request_id for r in sched.active_requests()] == ["stays"]
    assert not sched.cancel("gone")
    batch = sched.schedule()
    sched.abandon(batch)
    assert ends(sched.tick()) == [("gone", "expired")]
    assert ends(run_to_end(sched)) == [("stays", "length")]


def test_a_scheduler_of_which_all_expires_is_active_until_it_has_said_so() -> None:
    sched = a_scheduler()
    submitted(sched, [timed("a", deadline_s=1), timed("b", max_queue_time_s=1)])
    sched.executor.seconds = 1.0
    batch = sched.schedule()
    assert list(batch) == []
    sched.abandon(batch)
    assert sched.active_requests() == []
    assert sched.has_active()
    assert ends(sched.complete(sched.schedule(), [])) == [("a", "expired"), ("b", "expired")]
    assert not sched.has_active()
    assert sched.tick() == []


def test_an_id_can_be_used_again_as_soon_as_its_request_has_expired() -> None:
    sched = a_scheduler()
    sched.submit(timed("r", 20, 5, deadline_s=1))
    sched.executor.seconds = 1.0
    sched.abandon(sched.schedule())
    again = timed("r", 3, 1)
    sched.submit(again)
    assert ends(sched.tick()) == [("r", "expired"), ("r", "length")]


def test_expired_requests_are_counted_apart_in_all_and_by_user() -> None:
    sched = a_scheduler()
    submitted(sched, [a_request("a", 3, 2), timed("b", 3, 9, user="v", deadline_s=2)])
    run_to_end(sched)
    stats = sched.stats()
    assert stats["requests"] == {
        "submitted": 2, "finished": 1, "cancelled": 0, "expired": 1, "refused": 0, "live": 0,
    }  # fmt: skip
    assert stats["finish_reasons"] == {"eos": 0, "length": 1, "cancelled": 0, "expired": 1}
    assert stats["users"]["v"]["expired"] == 1
    assert stats["users"]["u"]["expired"] == 0
    assert stats["users"]["v"]["latency_s"]["max"] != stats["users"]["v"]["latency_s"]["max"]
    assert stats["tokens"]["output"] == 4, "what it was delivered before it expired counts"


def test_a_snapshot_carries_deadlines_and_who_has_expired() -> None:
    sched = a_scheduler()
    submitted(
        sched,
        [
            timed("gone", deadline_s=0.5),
            timed("soon", 3, 9, deadline_s=3.5),
            timed("patient", 28, 4, max_queue_time_s=2),
        ],
    )
    sched.executor.seconds = 1.0
    sched.abandon(sched.schedule())
    taken = json.loads(json.dumps(sched.snapshot()))
    executor = ConstantExecutor()
    executor.seconds = 1.0
    again = Scheduler.restore(taken, executor=executor)
    assert again.snapshot() == taken
    assert_invariants(again)
    first = again.tick()
    assert ends(first) == [("gone", "expired")]
    assert first[0].phase == "done"
    for one in (sched, again):
        rest = one.tick() if one is sched else []
        assert ends(rest) in ([("gone", "expired")], [])
    assert sorted(ends(run_to_end(sched))) == sorted(ends(run_to_end(again)))


def test_a_snapshot_whose_deadline_has_come_is_restored_and_expires() -> None:
    sched = a_scheduler()
    sched.submit(timed("r", deadline_s=1))
    executor = ConstantExecutor()
    executor.seconds = 5.0
    again = Scheduler.restore(sched.snapshot(), executor=executor)
    assert ends(again.tick()) == [("r", "expired")]


def test_what_is_kept_of_times_is_bounded_by_the_live_requests() -> None:
    sched = a_scheduler()
    for number in range(1000):
        sched.submit(timed(f"r{number}", 1, 1, deadline_s=1e9 + number))
        sched.tick()
    assert len(sched._expiry._heap) < 20
    assert not sched._expiry


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 20), st.integers(1, 20), st.booleans()),
        max_size=60,
    )
)
def test_who_is_due_is_who_a_look_at_all_would_find(steps: list[Any]) -> None:
    expiry, live, now = Expiry(), [], 0.0
    for number, (enters, place, seconds, has_patience) in enumerate(steps):
        if enters:
            name = "max_queue_time_s" if has_patience else "deadline_s"
            request = timed(f"r{number}", **{name: seconds if has_patience else now + seconds})
            request.phase = "waiting"
            sequence = LiveRequest(request, [1], number, now)  # type: ignore[arg-type]
            live.append(sequence)
            expiry.enter(sequence)
        elif live:
            chosen = live[place % len(live)]
            if has_patience:
                chosen.request.phase = "prefilling"
            else:
                live.remove(chosen)
                expiry.forget(chosen)
        now += seconds / 8
        due = {s for s in live if (at := expires_at(s)) is not None and at <= now}
        while (sequence := expiry.next_due(now)) is not None:
            due.remove(sequence)
            live.remove(sequence)
            expiry.forget(sequence)
        assert not due
        assert len(expiry._heap) <= 2 * len(live) + 17


class Heard(SilentObserver):
    def __init__(self) -> None:
        self.heard: list[tuple[str, float]] = []

    def expired(self, sequence: Any, now: float) -> None:
        assert sequence.request.finish_reason == "expired"
        self.heard.append((sequence.request_id, now))


def test_observers_hear_of_it_when_it_happens() -> None:
    heard, also = Heard(), Monitor(SMALL, on_violation="raise")
    sched = a_scheduler(observer=heard, monitor=also)
    submitted(sched, [timed("a", 20, 5, deadline_s=1.0), timed("b", 28, 4, max_queue_time_s=1.5)])
    assert len(run_to_end(sched)) == 2
    assert heard.heard == [("a", 1.0)]
    assert also.live == 0


MONITORED = {
    "never had a time": (None, None),
    "before its deadline": (5.0, None),
    "admitted by its time": (None, 1.0),
}


@pytest.mark.parametrize("times", MONITORED.values(), ids=MONITORED)
def test_a_monitor_names_who_expires_before_its_time(times: Any) -> None:
    monitor = Monitor(SMALL, on_violation="record")
    monitor.submitted("r", "u", 3, 4, times)
    if times == (None, 1.0):
        monitor.ticked(_admitted())
    monitor.expired("r", 2.0)
    assert [found.property for found in monitor.violations] == ["ended-once"]
    assert monitor.live == 0
    assert replay(json.loads(json.dumps(monitor.report()))) == monitor.violations


def _admitted() -> Any:
    from batchproof.sched.monitor_facts import TickFacts

    return TickFacts(admit=[("r", [0])], chunks=[("r", 0, 3, 9)], free=7)


def test_a_monitor_names_who_expires_and_is_not_live() -> None:
    with pytest.raises(ViolationError, match="'r' expires and is not live"):
        Monitor(SMALL).expired("r", 1.0)


def recorded(path: Any) -> list[Any]:
    """Record a run in which requests expire in each phase, one tick of it failing."""
    setup = Setup(limits=replace(SMALL), policy="stall-free", eos_rate=0)
    gpu = setup.gpu()
    with open(path, "wb") as file:
        first = header(setup, "max_utilization", 0, "test")
        out = RecordingFile(file, first)
        recorder = Recorder(gpu, SMALL.max_kv_blocks, out.write)
        sched = setup.scheduler(recorder, recorder)
        tick_s = 0.006
        requests = [
            timed("decodes", 3, 20, deadline_s=4 * tick_s),
            timed("prefills", 20, 5, user="v", deadline_s=tick_s),
            timed("waits", 9, 9, user="w", max_queue_time_s=tick_s),
            timed("stays", 3, 12, user="x", deadline_s=1e6),
        ]
        submitted(sched, requests)
        ended = run_to_end(sched)
        recorder.end(complete=True)
    assert sorted(r.finish_reason or "" for r in ended) == ["expired"] * 3 + ["length"]
    return list(RunRecording(str(path)))


def test_a_recording_has_a_line_for_each_and_runs_again_the_same(tmp_path) -> None:
    path = tmp_path / "run.jsonl"
    lines = recorded(path)
    assert sum(isinstance(record, Expire) for _, record in lines) == 3
    outcome = Replay(RunRecording(str(path))).run()
    assert (outcome.difference, outcome.broken) == (None, None)
    assert outcome.lines == len(lines)
    history = RunHistory(RunRecording(str(path)))
    assert [life.finish_reason for life in history.lives].count("expired") == 3


def test_a_line_that_says_so_too_early_or_too_late_is_found(tmp_path) -> None:
    path = tmp_path / "run.jsonl"
    recorded(path)
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"event":"expire"' in line)
    early = [*lines[:at], json.dumps({**json.loads(lines[at]), "at": 0.0}), *lines[at + 1 :]]
    path.write_text("\n".join(early) + "\n")
    broken = Replay(RunRecording(str(path))).run().broken
    assert broken is not None
    assert (broken.line, broken.violation.property) == (at + 1, "ended-once")

    late = [*lines[:at], *lines[at + 1 : at + 3], lines[at], *lines[at + 3 :]]
    path.write_text("\n".join(late) + "\n")
    assert Replay(RunRecording(str(path))).run().difference is not None


def test_to_the_specification_expiring_is_cancelling() -> None:
    system = SIZES["pair"].system
    submit, expire = Step(action="submit", request=0), Step(action="expire", request=0, free=5)
    assert follow(system, [submit, expire, submit]).allowed
    outcome = follow(system, [submit, expire, expire])
    assert outcome.matched == 2
    assert "rule 9" in outcome.objections[0]


def test_the_simulated_gpu_judges_those_that_remain() -> None:
    gpu = SimulatedGPU(SMALL, eos_rate=0)
    sched = Scheduler(SMALL, executor=gpu, monitor=True)
    requests = [timed(f"r{i}", 7, 9, deadline_s=0.01 * (i + 1)) for i in range(8)]
    submitted(sched, requests)
    for request in run_to_end(sched):
        alone = gpu.expected_output(Request("u", request.prompt, request.max_tokens, "alone"))
        assert request.generated == alone[: len(request.generated)]
        assert live_sequences(sched) or not sched._roster.pool.held
