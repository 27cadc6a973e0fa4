"""Bad requests: each is refused with its own clear error, and the scheduler stays as it was."""

import copy
from array import array
from collections import UserList
from typing import Any

import numpy as np
import pytest
from support.builders import SMALL, a_gpu, a_request, run_to_end, submitted
from support.core_checks import assert_invariants
from support.state_dump import dump

from batchproof import Request, Scheduler
from batchproof.sched.errors import (
    DuplicateRequestError,
    InfeasibleRequestError,
    InvalidRequestError,
    MisuseError,
    RequestError,
)

BUT_COUNTED = frozenset({"_metrics"})
"""A refusal is counted; that it is, and once, has a test of its own."""


@pytest.fixture
def busy() -> Scheduler:
    """Return a scheduler with a request in each phase, one of them preempted before."""
    scheduler = Scheduler(SMALL, executor=a_gpu())
    submitted(
        scheduler,
        [a_request("old", 7, 14), a_request("young", 7, 14), a_request("queued", 20, 5)],
    )
    for _ in range(8):
        scheduler.tick()
    scheduler.submit(a_request("new", 2, 2))
    return scheduler


def _with(**changes: Any) -> Request:
    request = a_request("bad")
    for name, value in changes.items():
        setattr(request, name, value)
    return request


# What is wrong -> (the request, the error, what the message must say).
BAD: dict[str, tuple[Any, type[RequestError], tuple[str, ...]]] = {
    "empty prompt": (
        _with(prompt=[]),
        InvalidRequestError,
        ("'bad'", "prompt is empty", "at least one token id"),
    ),
    "max_tokens 0": (
        _with(max_tokens=0),
        InvalidRequestError,
        ("'bad'", "max_tokens is 0", "at least 1"),
    ),
    "max_tokens negative": (
        _with(max_tokens=-3),
        InvalidRequestError,
        ("'bad'", "max_tokens is -3", "at least 1"),
    ),
    "max_tokens a float": (
        _with(max_tokens=2.0),
        InvalidRequestError,
        ("max_tokens is 2.0", "an int"),
    ),
    "max_tokens a string": (
        _with(max_tokens="2"),
        InvalidRequestError,
        ("max_tokens is '2'", "an int"),
    ),
    "max_tokens a bool": (
        _with(max_tokens=True),
        InvalidRequestError,
        ("max_tokens is True", "an int"),
    ),
    "max_tokens None": (
        _with(max_tokens=None),
        InvalidRequestError,
        ("max_tokens is None", "an int"),
    ),
    "a negative token": (
        _with(prompt=[3, -1]),
        InvalidRequestError,
        ("prompt[1] is -1", "not a token id"),
    ),
    "a float token": (
        _with(prompt=[3, 4, 1.5]),
        InvalidRequestError,
        ("prompt[2] is 1.5", "not a token id"),
    ),
    "a string token": (
        _with(prompt=["a"]),
        InvalidRequestError,
        ("prompt[0] is 'a'", "not a token id"),
    ),
    "a token beyond 64 bits": (
        _with(prompt=[2**64]),
        InvalidRequestError,
        (f"prompt[0] is {2**64}", "2**64 - 1"),
    ),
    "a text for a prompt": (
        _with(prompt="hello"),
        InvalidRequestError,
        ("prompt is a str", "sequence of token ids"),
    ),
    "bytes for a prompt": (
        _with(prompt=b"hello"),
        InvalidRequestError,
        ("prompt is a bytes", "sequence of token ids"),
    ),
    "a set for a prompt": (
        _with(prompt={1, 2}),
        InvalidRequestError,
        ("prompt is a set", "sequence of token ids"),
    ),
    "no prompt": (
        _with(prompt=None),
        InvalidRequestError,
        ("prompt is a NoneType", "sequence of token ids"),
    ),
    "a prompt that cannot fit": (
        _with(prompt=[1] * 33, max_tokens=1),
        InfeasibleRequestError,
        ("'bad'", "33 tokens", "9 blocks", "pool has 8", "at most 33"),
    ),
    "max_tokens that cannot fit": (
        _with(prompt=[1] * 3, max_tokens=31),
        InfeasibleRequestError,
        ("3 tokens", "max_tokens=31", "9 blocks", "pool has 8", "at most 33"),
    ),
    "an empty id": (
        _with(request_id=""),
        InvalidRequestError,
        ("request_id is ''", "non-empty string"),
    ),
    "an id that is no string": (
        _with(request_id=7),
        InvalidRequestError,
        ("request_id is 7", "non-empty string"),
    ),
    "an empty user id": (
        _with(user_id=""),
        InvalidRequestError,
        ("'bad'", "user_id is ''", "non-empty string"),
    ),
    "a user id that is no string": (
        _with(user_id=["u"]),
        InvalidRequestError,
        ("user_id is ['u']", "non-empty string"),
    ),
    "an id that is live": (
        _with(request_id="queued"),
        DuplicateRequestError,
        ("'queued'", "a live request has this id", "choose another"),
    ),
    "not a request": (
        {"request_id": "bad"},
        InvalidRequestError,
        ("{'request_id': 'bad'} is not a batchproof.Request",),
    ),
}


@pytest.mark.parametrize("wrong", BAD)
def test_a_bad_request_is_refused_clearly_and_changes_nothing(busy: Scheduler, wrong: str) -> None:
    bad, error, says = BAD[wrong]
    before, bad_before = dump(busy, BUT_COUNTED), copy.deepcopy(bad)

    with pytest.raises(RequestError) as refusal:
        busy.submit(bad)

    assert type(refusal.value) is error
    assert [part for part in says if part not in str(refusal.value)] == []
    assert "\n" not in str(refusal.value)
    assert dump(busy, BUT_COUNTED) == before
    assert dump(bad) == dump(bad_before), "the refused object is as it was"


@pytest.mark.parametrize("wrong", BAD)
def test_a_refusal_is_counted_once_and_disturbs_nobody(busy: Scheduler, wrong: str) -> None:
    counted = busy.stats()["requests"]
    with pytest.raises(RequestError):
        busy.submit(BAD[wrong][0])
    assert busy.stats()["requests"] == {
        **counted,
        "submitted": counted["submitted"] + 1,
        "refused": counted["refused"] + 1,
    }
    assert len(run_to_end(busy)) == 4
    assert_invariants(busy)


def test_the_dump_would_show_a_change(busy: Scheduler) -> None:
    before = dump(busy)
    assert dump(busy) == before
    busy.submit(a_request("one-more"))
    assert dump(busy) != before


def test_the_largest_request_that_fits_is_accepted_and_ends() -> None:
    scheduler = Scheduler(SMALL, executor=a_gpu())
    largest = [a_request("prompt", 32, 1), a_request("output", 1, 32)]
    for request in submitted(scheduler, largest):
        assert request.phase == "waiting"
    run_to_end(scheduler)
    assert [len(request.generated) for request in largest] == [1, 32]


def test_an_object_that_is_live_cannot_be_submitted_again_under_another_id() -> None:
    scheduler, request = Scheduler(SMALL, executor=a_gpu()), a_request("one")
    scheduler.submit(request)
    request.request_id = "two"
    with pytest.raises(DuplicateRequestError, match="live"):
        scheduler.submit(request)


def test_an_object_that_is_live_elsewhere_is_refused() -> None:
    request = a_request()
    Scheduler(SMALL, executor=a_gpu()).submit(request)
    with pytest.raises(DuplicateRequestError, match="another scheduler"):
        Scheduler(SMALL, executor=a_gpu()).submit(request)


def test_an_object_that_is_done_can_be_submitted_again_and_starts_afresh() -> None:
    scheduler, request = Scheduler(SMALL, executor=a_gpu()), a_request()
    scheduler.submit(request)
    run_to_end(scheduler)
    first = request.generated

    scheduler.submit(request)
    assert (request.phase, request.generated, request.finish_reason) == ("waiting", [], None)
    run_to_end(scheduler)

    assert request.generated == first
    assert request.generated is not first, "what was handed out before is not written to"


@pytest.mark.parametrize(
    "kind",
    [tuple, lambda ids: range(ids[0], ids[-1] + 1), lambda ids: array("L", ids), np.array, iter],
    ids=["tuple", "range", "array", "numpy", "iterator"],
)
def test_any_sequence_of_ints_is_a_prompt_and_means_the_same(kind: Any) -> None:
    gpu = a_gpu()
    scheduler = Scheduler(SMALL, executor=gpu)
    request = Request("u", kind([5, 6, 7]), 5, "r")
    scheduler.submit(request)
    run_to_end(scheduler)
    assert request.generated == gpu.expected_output(Request("u", [5, 6, 7], 5, "r"))


def test_a_prompt_that_fails_while_it_is_read_is_refused_like_any_other() -> None:
    class Torn(UserList[int]):
        reads = 0

        def __iter__(self) -> Any:
            self.reads += 1
            if self.reads == 1:
                raise TypeError("changed while it was read")
            return super().__iter__()

    with pytest.raises(InvalidRequestError, match="prompt is not a sequence of token ids"):
        Scheduler(SMALL).submit(Request("u", Torn([1, 2]), 1, "r"))


def test_a_prompt_of_one_numpy_int_can_be_fed() -> None:
    gpu = a_gpu()
    scheduler, request = Scheduler(SMALL, executor=gpu), Request("u", np.array([9]), 2, "r")
    scheduler.submit(request)
    run_to_end(scheduler)
    assert request.generated == gpu.expected_output(Request("u", [9], 2, "r"))


def test_the_prompt_is_read_once_so_that_changing_it_later_changes_nothing() -> None:
    gpu = a_gpu()
    scheduler, request = Scheduler(SMALL, executor=gpu), a_request(prompt=12)
    expected = gpu.expected_output(request)
    scheduler.submit(request)
    scheduler.tick()
    request.prompt[:] = [1] * 40  # type: ignore[index]
    run_to_end(scheduler)
    assert request.generated == expected


@pytest.mark.parametrize("time", ["now", float("nan"), float("-inf"), [0.0], 1e9])
def test_a_submission_time_that_is_none_or_to_come_is_misuse_and_changes_nothing(
    busy: Scheduler, time: Any
) -> None:
    before = dump(busy)
    with pytest.raises(MisuseError, match="submitted_at"):
        busy.submit(a_request("late"), submitted_at=time)
    assert dump(busy) == before


def test_a_request_says_of_itself_what_one_wants_to_know() -> None:
    said = repr(a_request("r9", 3, 4, "eve"))
    assert "'r9'" in said
    assert "'eve'" in said
    assert "prompt=3 tokens" in said
