"""What must not change when a run is changed: company, refused requests, names."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import prompt_of
from support.core_checks import Recorder
from support.workloads import ARRIVALS, LIMITS, Arrival

from batchproof import Limits, Request, Scheduler, SimulatedGPU
from batchproof.sched.errors import RequestError
from batchproof.sched.policy import POLICIES

Rename = Callable[[str], str]

ANY_NAME = {"a": "Zoe", "b": "b", "c": "Ann"}
"""Users in another order of their names."""
SAME_ORDER = {"a": "user 1", "b": "user 2", "c": "user 3"}
"""Fair-lane lets names decide between users that hold equally much: only their order may count."""
RENAMED = {policy: SAME_ORDER if policy == "fair-lane" else ANY_NAME for policy in POLICIES}


class Outcome(NamedTuple):
    """A run, in terms of the places of its requests and not of their names."""

    fed: list[dict[int, int]]
    events: list[tuple[int, int, str]]
    tokens: list[list[int]]
    stats: dict[str, object]


def run(
    limits: Limits,
    arrivals: list[Arrival],
    policy: str,
    rename: Rename = str,
    rename_user: Rename = str,
    *,
    refused: bool = False,
) -> Outcome:
    """Run a workload to its end; with `refused`, each tick also sees requests refused."""
    gpu, recorder = SimulatedGPU(limits, eos_rate=1 / 16), Recorder()
    scheduler = Scheduler(limits, policy, gpu, observer=recorder)
    requests = [
        Request(rename_user(a.user), prompt_of(f"r{i}", a.prompt), a.max_tokens, rename(f"r{i}"))
        for i, a in enumerate(arrivals)
    ]
    tick = 0
    while tick <= max(a.tick for a in arrivals) or scheduler.has_active():
        for request, arrival in zip(requests, arrivals, strict=True):
            if refused:
                _submit_what_is_refused(scheduler, request)
            if arrival.tick == tick:
                try:
                    scheduler.submit(request)
                except RequestError:
                    continue
            if arrival.cancelled_after == tick - arrival.tick:
                scheduler.cancel(request.request_id)
        scheduler.tick()
        tick += 1
        assert tick < 3_000
    places = {request.request_id: index for index, request in enumerate(requests)}
    stats = {
        name: value
        for name, value in scheduler.stats().items()
        if name not in ("users", "requests")  # by name, and with the count of refusals
    }
    return Outcome(
        [{places[name]: tokens for name, tokens in fed.items()} for fed in recorder.log],
        [(at, places[name], what) for at, name, what in recorder.events if what != "refuse"],
        [request.generated for request in requests],
        {name: repr(value) for name, value in stats.items()},  # NaN equals itself so
    )


def _submit_what_is_refused(scheduler: Scheduler, request: Request) -> None:
    too_large = scheduler.limits.max_kv_blocks * scheduler.limits.block_size + 1
    bad = [Request(request.user_id, [1] * too_large, 2, request.request_id)]
    if request.phase not in (None, "done"):
        bad.append(Request("somebody new", [1], 1, request.request_id))
    for one in bad:
        with pytest.raises(RequestError):
            scheduler.submit(one)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20)
@given(limits=LIMITS, arrivals=ARRIVALS)
def test_a_refused_request_changes_nothing(policy, limits, arrivals) -> None:
    assert run(limits, arrivals, policy, refused=True) == run(limits, arrivals, policy)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20)
@given(limits=LIMITS, arrivals=ARRIVALS)
def test_names_decide_nothing(policy, limits, arrivals) -> None:
    renamed = run(
        limits,
        arrivals,
        policy,
        lambda name: f"{name[::-1]} of another",
        RENAMED[policy].__getitem__,
    )
    assert renamed == run(limits, arrivals, policy)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=20)
@given(limits=LIMITS, arrivals=ARRIVALS, kept=st.sets(st.integers(0, 9), min_size=1))
def test_tokens_do_not_depend_on_company(policy, limits, arrivals, kept) -> None:
    """Whoever is left when others do not come yields the same tokens, as far as it gets."""
    never = 99
    alone = [
        a._replace(cancelled_after=None) if i in kept else a._replace(prompt=never)
        for i, a in enumerate(arrivals)
    ]  # no memory here has room for 99 tokens: refused
    crowded = [a._replace(cancelled_after=None) for a in arrivals]
    few, all_of_them = run(limits, alone, policy), run(limits, crowded, policy)
    for index in kept & set(range(len(arrivals))):
        assert few.tokens[index] == all_of_them.tokens[index]
