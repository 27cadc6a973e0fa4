"""Fair-lane at small scale, in every run there is: `batchproof check fair-lane`.

The environment submits and cancels whatever it likes whenever it likes, and
decides whose output ends.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from support.builders import ConstantExecutor, a_request

from batchproof import Limits as SchedulerLimits
from batchproof import Scheduler
from batchproof.sched import fair_lane_family
from batchproof.sched.fair_lane_family import FAIR_SIZES, MODEL_FAMILY
from batchproof.sched.policy import fair_share
from batchproof.sched.policy.fair_lane_claims import first_token_ticks_max
from batchproof.sched.policy.protocol import Candidate, UserView
from batchproof.sched.shipped import Shipped
from batchproof.sched.shipped_family import MODEL_FAMILY as SHIPPED
from batchproof.spec.bounds import SIZES
from batchproof.spec.checker import Limits, Report, check
from batchproof.spec.property import Property

QUICK = ("heavy-beside-light", "one-seat")


def run(bound_name: str, *names: str, states_max: int | None = None) -> Report:
    bound = MODEL_FAMILY.bounds[bound_name]
    claims: tuple[Property, ...] = MODEL_FAMILY.claims(bound, "fair-lane")
    if names:
        claims = tuple(MODEL_FAMILY.find(name, bound) for name in names)
    recover = () if names else MODEL_FAMILY.recoverable
    limits = Limits(states_max, None, None)
    return check(MODEL_FAMILY.build(bound, "fair-lane"), claims, recover=recover, limits=limits)


def everything_holds(bound: str) -> None:
    report = run(bound)
    assert [v.prop.name for v in report.verdicts if v.outcome != "holds"] == []
    assert report.states == FAIR_SIZES[bound].states


@pytest.mark.parametrize("bound", QUICK)
def test_all_that_is_claimed_holds_beside_a_heavy_user_and_with_one_seat(bound: str) -> None:
    everything_holds(bound)


@pytest.mark.deep
@pytest.mark.parametrize("bound", [name for name in FAIR_SIZES if name not in QUICK])
def test_all_that_is_claimed_holds_with_three_users_and_with_weights(bound: str) -> None:
    everything_holds(bound)


def test_a_lane_makes_others_wait_for_their_next_token() -> None:
    name = "bounded-time-between-tokens"
    assert run("three-users", name, states_max=600)[name].outcome == "violated"


def test_a_lane_without_a_share_for_others_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchproof.sched.policy.fair_lane.LANE_SHARE", 1)
    report = run("three-users", "lane-is-shared", states_max=600)
    assert report["lane-is-shared"].outcome == "violated"


def test_a_tick_less_is_too_few_for_the_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def a_tick_less(prompt: int, older: int, limits: Any) -> int:
        return first_token_ticks_max(prompt, older, limits) - 1

    monkeypatch.setattr(fair_lane_family, "first_token_ticks_max", a_tick_less)
    report = run("three-users", "first-token-in-time", states_max=4_000)
    assert report["first-token-in-time"].outcome == "violated"


def test_a_head_that_goes_before_others_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def oldest_first(draft: fair_share.Draft, user: UserView) -> Iterator[Candidate]:
        return (c for c in user.residents if c.number not in draft.lost)

    monkeypatch.setattr(fair_share.Draft, "_followers", oldest_first)
    assert run(QUICK[0], "heads-go-last")["heads-go-last"].outcome == "violated"


def test_a_seat_that_nobody_takes_over_leaves_a_batch_empty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fair_share.Draft, "grow", fair_share.Draft._grow_chosen)
    report = run("one-seat", "tick-feeds", states_max=4_000)
    assert report["tick-feeds"].outcome == "violated"


def test_growth_that_is_charged_to_whoever_waits_for_a_seat_too_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, charges = "service-is-memory", fair_share.Draft.charges
    assert run("weights", name, states_max=2_000)[name].outcome != "violated"
    monkeypatch.setattr(fair_share.Draft, "charges", lambda draft, _: charges(draft, draft.decode))
    assert run("weights", name, states_max=2_000)[name].outcome == "violated"


def test_the_scheduler_under_weights_keeps_to_the_specification_and_starves_nobody() -> None:
    bound = SHIPPED.bounds["budget"]
    size = SIZES["budget"]
    model = Shipped(system=size.system, watched=size.watched, policy="fair-lane", weights=(2, 1))
    report = check(model, SHIPPED.claims(bound, "fair-lane"))
    assert [v.prop.name for v in report.verdicts if v.outcome != "holds"] == []
    assert report.states == 1_887


def test_a_user_that_leaves_and_comes_back_does_not_pass_one_who_waits_for_ever() -> None:
    limits = SchedulerLimits(
        max_kv_blocks=4, block_size=2, chunk_size=2, token_budget=2, max_batch_size=1
    )
    scheduler = Scheduler(limits, executor=ConstantExecutor(), weights={"A": 2})
    for name in ("A0", "A1"):
        scheduler.submit(a_request(name, 2, 2, "A"))
    ended = []
    for _ in range(10):
        if scheduler._roster.users.get("B") is None:
            scheduler.submit(a_request("B", 2, 1, "B"))
        ended += [request.request_id for request in scheduler.tick()]
    assert {"A0", "A1", "B"} <= set(ended)
