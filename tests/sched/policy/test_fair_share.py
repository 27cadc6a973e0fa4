"""The numbers that fair-lane decides by, who is heavier, who has a lane, and what is charged."""

from fractions import Fraction
from math import ceil

import pytest
from support.draft_scene import Scene, decodes, grows, line, waits

from batchproof import Limits
from batchproof.sched.policy.fair_share import Terms
from batchproof.sched.policy.service import UNIT
from batchproof.sched.weights import Weight


@pytest.mark.parametrize(
    ("blocks", "block_size", "chunk", "lane_ticks", "reserve", "step"),
    [
        (256, 16, 64, 65, 16, 64),  # the defaults: 4,096 tokens of memory are 64 chunks, and one
        (33, 4, 8, 18, 2, 8),  # 132 tokens are 16.5 chunks
        (15, 4, 8, 9, 0, 3),  # too small for a reserve
        (3, 1, 8, 2, 0, 1),  # and for steps of more than a block
    ],
)
def test_terms_follow_from_the_limits(
    blocks: int, block_size: int, chunk: int, lane_ticks: int, reserve: int, step: int
) -> None:
    limits = Limits(max_kv_blocks=blocks, block_size=block_size, chunk_size=chunk)
    terms = Terms.of(limits)
    assert (terms.lane_ticks, terms.reserve, terms.step) == (lane_ticks, reserve, step)
    assert terms.debt_max == 16 * blocks * UNIT
    assert all(isinstance(number, int) for number in terms)


def test_heavier_is_four_times_and_newcomers_share_sixteen_full_credits() -> None:
    terms = Terms.of(Limits())
    assert (terms.heavier, terms.purse, terms.credit) == (4, 16, 2**20)


@pytest.mark.parametrize(
    ("blocks", "weight_a", "weight_b", "is_heavier"),
    [
        pytest.param(12, 1, 1, True, id="four times"),
        pytest.param(11, 1, 1, False, id="less than four times"),
        pytest.param(12, 2, 1, False, id="the heavy one has more weight"),
        pytest.param(11, 1, 2, True, id="the light one has more weight"),
        pytest.param(12, 2, 2, True, id="equal weights"),
        pytest.param(11, 2, 2, False, id="equal weights, less than four times"),
        pytest.param(12, Fraction(1, 2), Fraction(1, 2), True, id="equal fractions"),
    ],
)
def test_a_user_is_heavier_that_has_four_times_the_load_over_weight(
    blocks: int, weight_a: Weight, weight_b: Weight, is_heavier: bool
) -> None:
    # A's load is its blocks and 3 times 8, B's is 1 and 8.
    scene = Scene(
        decodes("A0", blocks - 2),
        *line("A", (1, 2)),
        waits("B3"),
        weights={"A": weight_a, "B": weight_b},
    )
    draft = scene.draft()
    assert draft.is_heavier(scene.users["A"], scene.users["B"]) == is_heavier
    assert draft.has_lane(scene.users["B"]) == is_heavier, "B has credit"


@pytest.mark.parametrize(("blocks", "is_light"), [(8, True), (9, True), (10, False)])
def test_no_user_is_light_whose_blocks_do_not_fit_into_memory(blocks: int, is_light: bool) -> None:
    scene = Scene(waits("B0", 5), waits("B1", blocks - 5), *line("A", range(2, 14)), memory=9)
    draft, heavy, light = scene.draft(), scene.users["A"], scene.users["B"]
    assert heavy.load >= 4 * light.load
    assert draft.is_heavier(heavy, light) == is_light
    assert draft.has_lane(light) == is_light


@pytest.mark.parametrize(("short", "has_lane"), [(0, True), (1, False)])
def test_a_lane_needs_the_credit_of_its_next_tick(short: int, has_lane: bool) -> None:
    scene = Scene(waits("B0"), *line("A", range(1, 9)))
    full = scene.terms.lane_ticks * scene.terms.credit
    draft = scene.draft(spent={"B": full - scene.terms.credit + short})
    assert draft.has_lane(scene.users["B"]) == has_lane


def test_with_full_credit_a_user_has_a_lane_however_little_its_weight_is() -> None:
    scene = Scene(waits("B0"), *line("A", range(1, 9)), waits("C9"), weights={"C": 100})
    full = scene.terms.lane_ticks * scene.terms.credit
    assert scene.draft().lane_cost(scene.users["B"]) > full
    assert scene.draft().has_lane(scene.users["B"])
    assert not scene.draft(spent={"B": 1}).has_lane(scene.users["B"])


def test_a_lane_tick_costs_a_credit_times_the_mean_weight_over_the_users_own() -> None:
    scene = Scene(waits("A0"), waits("B1"), waits("C2"), weights={"C": 2})
    mean, draft = Fraction(1 + 1 + 2, 3), scene.draft()
    assert draft.lane_cost(scene.users["A"]) == ceil(scene.terms.credit * mean)
    assert draft.lane_cost(scene.users["C"]) == ceil(scene.terms.credit * mean / 2)


def test_users_are_charged_over_their_weights_for_blocks_but_not_for_recomputation() -> None:
    scene = Scene(
        grows("A0"),
        grows("B1"),
        waits("B2", 2),
        waits("B3", 5, generated=1),
        weights={"A": 2},
    )
    draft = scene.draft()
    draft.grow()
    draft.admit()
    assert [seen.name for seen in draft.admitted] == ["B2", "B3"]
    # The mean weight is 3/2: a block costs A half of that, and B the whole.
    assert dict(draft.charges(draft.decode)) == {"A": UNIT * 3 // 4, "B": UNIT * 3 // 2 * (1 + 2)}
    assert dict(draft.charges([])) == {"B": UNIT * 3 // 2 * 2}, "no decode has a seat"
