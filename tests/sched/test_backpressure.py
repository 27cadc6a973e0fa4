"""What may wait is bounded where limits say so; a request beyond is refused and leaves no trace."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import SMALL, a_request, a_scheduler, run_to_end, submitted

import batchproof
from batchproof import Limits, QueueFullError, Request, Scheduler
from batchproof.sched.cli import run_cli
from batchproof.sched.errors import DuplicateRequestError, InvalidRequestError, RequestError
from batchproof.sched.monitor_facts import Account
from batchproof.sched.monitor_queue import WaitingAccounts


def a_bounded(**bounds: int) -> Scheduler:
    return a_scheduler(limits=replace(SMALL, **bounds))


CASES = {
    "max_waiting_requests": (2, [("a", 3), ("b", 3)], ("c", 1), 2, 3),
    "max_waiting_tokens": (7, [("a", 3), ("b", 4)], ("c", 1), 7, 8),
    "max_waiting_requests_per_user": (2, [("a", 3), ("b", 3), ("a", 3)], ("a", 1), 2, 3),
    "max_waiting_tokens_per_user": (7, [("a", 3), ("b", 9 - 2), ("a", 4)], ("a", 1), 7, 8),
}
"""Bound -> its value, who waits (user, prompt), who is refused, what waits, and would."""


@pytest.mark.parametrize("name", CASES)
def test_a_request_beyond_a_bound_is_refused_with_what_there_is(name: str) -> None:
    most, waiting, (user, prompt), there, would_be = CASES[name]
    sched = a_bounded(**{name: most})
    submitted(sched, [a_request(f"r{i}", p, user=u) for i, (u, p) in enumerate(waiting)])
    before = {key: value for key, value in sched.snapshot().items() if key not in OF_FIGURES}

    with pytest.raises(QueueFullError) as refusal:
        sched.submit(a_request("late", prompt, user=user))

    full = refusal.value
    assert (full.limit, full.most, full.waiting, full.would_be) == (name, most, there, would_be)
    assert not full.is_for_ever
    for part in ("'late'", str(there), str(would_be), f"{name} is {most}", "try again"):
        assert part in str(full)
    assert ("user 'a'" in str(full)) == name.endswith("per_user")
    assert {k: v for k, v in sched.snapshot().items() if k not in OF_FIGURES} == before
    assert sched.stats()["requests"]["refused"] == 1


OF_FIGURES = ("metrics", "digest")


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("per_user")])
def test_a_bound_of_one_user_is_nothing_to_another(name: str) -> None:
    most, waiting, (_, prompt), _, _ = CASES[name]
    sched = a_bounded(**{name: most})
    submitted(sched, [a_request(f"r{i}", p, user=u) for i, (u, p) in enumerate(waiting)])
    sched.submit(a_request("late", prompt, user="somebody else"))


def test_what_no_queue_could_hold_is_told_so() -> None:
    sched = a_bounded(max_waiting_tokens=4)
    with pytest.raises(QueueFullError, match="not even an empty queue has room") as refusal:
        sched.submit(a_request("long", 5))
    assert refusal.value.is_for_ever


def test_every_bound_that_is_set_counts() -> None:
    sched = a_bounded(max_waiting_requests=9, max_waiting_tokens=9, max_waiting_tokens_per_user=5)
    sched.submit(a_request("a", 5))
    with pytest.raises(QueueFullError) as refusal:
        sched.submit(a_request("b", 1))
    assert refusal.value.limit == "max_waiting_tokens_per_user"
    sched.submit(a_request("b", 4, user="v"))
    with pytest.raises(QueueFullError) as refusal:
        sched.submit(a_request("c", 1, user="w"))
    assert refusal.value.limit == "max_waiting_tokens"


def test_what_an_empty_queue_would_just_hold_may_be_tried_again() -> None:
    sched = a_bounded(max_waiting_tokens=7)
    sched.submit(a_request("a", 1))
    with pytest.raises(QueueFullError, match="try again") as refusal:
        sched.submit(a_request("b", 7))
    assert not refusal.value.is_for_ever


BOUNDS = st.fixed_dictionaries(
    {},
    optional={
        "max_waiting_requests": st.integers(1, 6),
        "max_waiting_tokens": st.integers(1, 20),
        "max_waiting_requests_per_user": st.integers(1, 4),
        "max_waiting_tokens_per_user": st.integers(1, 12),
    },
)


@given(
    BOUNDS,
    st.lists(st.tuples(st.sampled_from("uv"), st.integers(1, 6), st.booleans()), max_size=20),
)
def test_the_monitors_account_of_the_queue_is_what_one_finds_by_counting(bounds, steps) -> None:
    queue = WaitingAccounts(Limits(**bounds))
    waiting: list[Account] = []
    for number, (user, prompt, leaves) in enumerate(steps):
        own = [one for one in waiting if one.user == user]
        would_be = {
            "max_waiting_requests": len(waiting) + 1,
            "max_waiting_tokens": sum(_context(one) for one in waiting) + prompt,
            "max_waiting_requests_per_user": len(own) + 1,
            "max_waiting_tokens_per_user": sum(_context(one) for one in own) + prompt,
        }
        has_room = all(would_be[name] <= most for name, most in bounds.items())
        assert queue.has_room(user, prompt) == has_room
        account = Account(user, prompt, 9, number)
        account.generated = number % 3
        assert queue.is_first(account) == (not own)
        queue.remove(account)  # it is not there: nothing happens
        if leaves and waiting:
            gone = waiting.pop(prompt % len(waiting))
            queue.remove(gone)
        else:
            queue.add(account)
            waiting.append(account)


def _context(account: Account) -> int:
    return account.prompt + account.generated


def test_an_admission_a_cancellation_and_nothing_else_makes_room() -> None:
    sched = a_bounded(max_waiting_requests=1)
    sched.submit(a_request("a"))
    with pytest.raises(QueueFullError):
        sched.submit(a_request("b"))
    sched.tick()
    sched.submit(a_request("b"))
    with pytest.raises(QueueFullError):
        sched.submit(a_request("c"))
    assert sched.cancel("b")
    sched.submit(a_request("c"))
    assert {r.finish_reason for r in run_to_end(sched)} == {"length"}


def test_preempted_requests_count_with_all_their_tokens_and_are_never_dropped() -> None:
    sched = a_bounded(max_waiting_tokens=20)
    submitted(sched, [a_request("old", 7, 14)])
    sched.tick()
    sched.submit(a_request("young", 7, 14))
    while not sched.stats()["preemptions"]:
        sched.tick()
    waiting = [r for r in sched.active_requests() if r.phase == "waiting"]
    assert [r.request_id for r in waiting] == ["young"]
    known = 7 + len(waiting[0].generated)
    assert known > 7
    with pytest.raises(QueueFullError) as refusal:
        sched.submit(a_request("late", 21 - known))
    assert refusal.value.waiting == known
    sched.submit(a_request("fits", 20 - known))
    assert {r.request_id for r in run_to_end(sched)} == {"old", "young", "fits"}


def test_a_queue_that_a_preemption_fills_over_its_bound_keeps_what_it_has() -> None:
    sched = a_bounded(max_waiting_requests=1)
    sched.submit(a_request("old", 7, 14))
    sched.tick()
    sched.submit(a_request("young", 7, 14))
    sched.tick()
    sched.submit(a_request("last", 7, 14))
    while sched.stats()["live"]["waiting"] < 2:
        sched.tick()
    with pytest.raises(QueueFullError) as refusal:
        sched.submit(a_request("late"))
    assert (refusal.value.waiting, refusal.value.would_be) == (2, 3)
    assert len(run_to_end(sched)) == 3


def test_what_is_wrong_by_itself_is_said_before_that_the_queue_is_full() -> None:
    sched = a_bounded(max_waiting_requests=1)
    sched.submit(a_request("a"))
    with pytest.raises(InvalidRequestError):
        sched.submit(a_request("b", 0))
    with pytest.raises(DuplicateRequestError):
        sched.submit(a_request("a"))


def test_room_for_several_is_asked_for_all_or_none() -> None:
    sched = a_bounded(max_waiting_requests=2)
    sched.submit(a_request("a"))
    sched.check_room([])
    sched.check_room([a_request("b")])
    with pytest.raises(QueueFullError, match="2 requests: 1 requests wait, it would be 3"):
        sched.check_room([a_request("b"), a_request("c")])
    assert sched.stats()["requests"] == {**sched.stats()["requests"], "refused": 0, "live": 1}
    a_scheduler().check_room([a_request(f"r{i}") for i in range(100)])
    a_bounded(max_waiting_tokens=6).check_room([a_request("b", 3), a_request("c", 3)])
    with pytest.raises(QueueFullError, match="it would be 7"):
        a_bounded(max_waiting_tokens=6).check_room([a_request("b", 3), a_request("c", 4)])


def test_a_restored_scheduler_has_the_same_bounds_and_the_same_queue() -> None:
    sched = a_bounded(max_waiting_requests=1)
    sched.submit(a_request("a"))
    again = Scheduler.restore(sched.snapshot())
    with pytest.raises(QueueFullError):
        again.submit(a_request("b"))
    again.cancel("a")
    again.submit(a_request("b"))


def test_the_error_is_public_and_the_requests_fault() -> None:
    assert issubclass(batchproof.QueueFullError, RequestError)


def test_the_command_line_bounds_the_queue_and_says_what_was_refused(tmp_path, capsys) -> None:
    file = tmp_path / "run.jsonl"
    options = ["--requests", "200", "--rate", "60", "--max-waiting-requests", "3"]
    assert run_cli(["run", *options, "--record", str(file)]) == 0
    text = capsys.readouterr().out
    assert ": the queue had no room" in text
    assert run_cli(["replay", str(file)]) == 0
    lines = file.read_text().splitlines()
    assert '"max_waiting_requests":3' in lines[0]
    assert any('"kind":"queue_full"' in line for line in lines)


def test_policies_are_not_compared_on_queues_that_refuse(capsys) -> None:
    assert run_cli(["compare", "--max-waiting-tokens", "100"]) == 2
    assert "max_waiting_tokens" in capsys.readouterr().err


def test_a_prompt_that_is_no_request_leaves_the_bounds_alone() -> None:
    sched = a_bounded(max_waiting_tokens=4)
    with pytest.raises(InvalidRequestError):
        sched.submit(Request("u", "text", 1, "r"))  # type: ignore[arg-type]
