"""A snapshot is the whole scheduler, or it is refused."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from support.core_checks import Recorder, assert_invariants
from support.state_dump import dump

from batchproof import Limits, Request, Scheduler, SimulatedGPU
from batchproof.sched.config import ADMISSIONS
from batchproof.sched.errors import MisuseError, SnapshotError
from batchproof.sched.policy import POLICIES, make_policy

LIMITS = Limits(max_kv_blocks=24, token_budget=96, max_batch_size=8)


UNKEPT = frozenset(
    {
        *("arrival", "_arrivals"),  # numbers of which only the order matters
        *("_by_usage", "_by_load", "_stale", "_sketch"),  # caches, and what has its own test
        "admission_blocks",  # means nothing of a resident
        "steps_left",  # means nothing of a waiting request
    }
)


def busy_scheduler(policy: Any = "stall-free", ticks: int = 30) -> Scheduler:
    """Return a scheduler in the middle of a run that preempts."""
    sched = Scheduler(LIMITS, policy, SimulatedGPU(LIMITS, seed=3))
    rng = Random(5)
    for index in range(40):
        prompt = [rng.randrange(1000) for _ in range(rng.randint(1, 120))]
        user = f"u{rng.randrange(5)}"
        sched.submit(Request(user, prompt, rng.randint(1, 90), f"r{index}"))
    for _ in range(ticks):
        sched.tick()
    return sched


def through_json(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return the snapshot as it comes back from a file."""
    return json.loads(json.dumps(snapshot))


def run_to_the_end(sched: Scheduler) -> list[tuple[str, list[int]]]:
    """Return what ends in each tick from here on."""
    ended = []
    while sched.has_active():
        ended += [(request.request_id, request.generated) for request in sched.tick()]
        assert_invariants(sched)
    return ended


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("admission", ADMISSIONS)
@pytest.mark.parametrize("ticks", [0, 1, 30, 120])
def test_a_restored_scheduler_is_the_same_and_goes_on_the_same(policy, admission, ticks) -> None:
    sched = busy_scheduler(make_policy(policy, admission), ticks)
    taken = sched.snapshot()

    again = Scheduler.restore(through_json(taken), executor=sched.executor)

    assert again.snapshot() == taken
    assert dump(again, UNKEPT) == dump(sched, UNKEPT)
    assert_invariants(again)
    twin = Scheduler.restore(taken, executor=SimulatedGPU(LIMITS, seed=3), memory_lost=True)
    assert run_to_the_end(again)
    assert run_to_the_end(twin)


def test_it_goes_on_exactly_as_the_original_would() -> None:
    sched = busy_scheduler()
    again = Scheduler.restore(sched.snapshot(), executor=busy_scheduler().executor)
    assert run_to_the_end(again) == run_to_the_end(sched)
    assert again.stats() == sched.stats()


def test_after_a_crash_residents_are_recomputed_and_no_token_changes() -> None:
    sched = busy_scheduler()
    data = through_json(sched.snapshot())
    del sched
    gpu = SimulatedGPU(LIMITS, seed=3)  # a new process: its memory holds nothing

    again = Scheduler.restore(data, executor=gpu, memory_lost=True)

    requests = again.active_requests()
    assert requests
    assert_invariants(again)
    assert again.stats()["live"]["free_blocks"] == LIMITS.max_kv_blocks
    run_to_the_end(again)
    assert all(request.generated == gpu.expected_output(request) for request in requests)


def test_counts_go_on_where_they_were() -> None:
    sched = busy_scheduler(ticks=60)
    again = Scheduler.restore(sched.snapshot(), executor=sched.executor)
    assert again.stats() == sched.stats()
    assert again.stats()["requests"]["finished"] > 0


def test_a_policy_of_your_own_is_given_again() -> None:
    class Mine(type(make_policy("stall-free"))):  # type: ignore[misc]
        name = "mine"

    taken = busy_scheduler(Mine()).snapshot()
    assert Scheduler.restore(taken, policy=Mine()).policy.name == "mine"
    with pytest.raises(SnapshotError, match="'mine'"):
        Scheduler.restore(taken)
    with pytest.raises(SnapshotError, match="'mine'"):
        Scheduler.restore(taken, policy=make_policy("stall-free"))


def test_none_is_taken_while_a_batch_is_out() -> None:
    sched = busy_scheduler()
    batch = sched.schedule()
    with pytest.raises(MisuseError, match="complete or abandon"):
        sched.snapshot()
    sched.abandon(batch)
    assert sched.snapshot()


ALTERATIONS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "not a snapshot": (lambda data: data.update(format="x"), "not a snapshot"),
    "another version": (lambda data: data.update(version=99), "version 99; .* reads version 2"),
    "cut short": (lambda data: data.pop("requests"), "cut short or altered: requests"),
    "more than there should be": (lambda data: data.update(more=1), "altered: more"),
    "a token altered": (lambda data: data["requests"][0]["prompt"].append(1), "digest"),
    "no digest": (lambda data: data.pop("digest"), "digest"),
}


@pytest.mark.parametrize(("alter", "message"), ALTERATIONS.values(), ids=ALTERATIONS)
def test_an_altered_snapshot_is_refused(alter, message) -> None:
    data = through_json(busy_scheduler().snapshot())
    alter(data)
    with pytest.raises(SnapshotError, match=message):
        Scheduler.restore(data)


INCONSISTENCIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a block with two owners": lambda data: data["free_blocks"].append(
        next(r for r in data["requests"] if r["blocks"])["blocks"][0]
    ),
    "a block lost": lambda data: next(r for r in data["requests"] if r["blocks"])["blocks"].pop(),
    "a resident in no list": lambda data: data["decoding"].pop(),
    "a phase that is none": lambda data: data["requests"][0].update(phase="asleep"),
    "limits below 1": lambda data: data["limits"].update(chunk_size=0),
    "an unknown policy": lambda data: data["policy"].update(name="whim"),
    "an impossible request": lambda data: data["requests"][-1].update(max_tokens=10**6),
}


@pytest.mark.parametrize("alter", INCONSISTENCIES.values(), ids=INCONSISTENCIES)
def test_content_that_makes_no_sense_is_refused_though_its_digest_fits(alter) -> None:
    from batchproof.sched.snapshot import _digest

    data = through_json(busy_scheduler().snapshot())
    alter(data)
    del data["digest"]
    data["digest"] = _digest(data)
    with pytest.raises(SnapshotError, match="makes no sense"):
        Scheduler.restore(data)


@pytest.mark.parametrize("data", [None, [], "text", {}])
def test_anything_else_is_refused(data) -> None:
    with pytest.raises(SnapshotError, match="not a snapshot"):
        Scheduler.restore(data)


def test_a_restored_scheduler_tells_its_observer_what_happens_from_then_on() -> None:
    recorder = Recorder()
    sched = Scheduler.restore(busy_scheduler().snapshot(), observer=recorder, memory_lost=True)
    sched.tick()
    assert sched.monitor is None, "it was not asked for"
    assert len(recorder.log) == 1
    assert "admit" in {what for _, _, what in recorder.events}
