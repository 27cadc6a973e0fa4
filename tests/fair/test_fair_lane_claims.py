"""Fair-lane's three statements held over whole runs, at small scale and at full."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import ConstantExecutor, a_request, run_to_end

from batchproof import Limits, Scheduler
from batchproof.sched.policy.fair_lane import FairLane
from batchproof.sched.policy.fair_lane_claims import (
    Resident,
    Work,
    first_token_ticks_max,
    heads_go_last,
    lane_share_is_kept,
    lane_work,
    oldest_goes_on,
)
from batchproof.sched.policy.protocol import Plan, View

SMALL = Limits(max_kv_blocks=8, block_size=4, chunk_size=8, token_budget=16, max_batch_size=4)


class Held(FairLane):
    """Fair-lane, each plan held to the claims before it goes out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.run_of_lane: list[tuple[Work, Work]] = []
        self.lane_ticks = 0
        self.preemptions = 0

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        assert self.planned_again(view) == plan, "a plan depends on more than view and state"
        residents = [Resident(c.user_id, c.number) for c in (*view.decoding, *view.prefilling)]
        preempted = [c.number for c in plan.preempt]
        assert oldest_goes_on(residents, preempted)
        assert heads_go_last(residents, preempted)
        note: Any = plan.note
        if not note.lane:
            self.run_of_lane = []
            return plan
        own, whole = lane_work(view, plan, note.lane, heavier=4)
        assert any(c.remaining == c.max_tokens for c, _ in plan.prefill), "no first token in it"
        self.run_of_lane.append((own, whole))
        assert lane_share_is_kept(self.run_of_lane)
        return plan

    def planned_again(self, view: View) -> Plan:
        fresh = FairLane(self.admission)
        fresh.restore(self.state())
        assert fresh.state() == self.state()
        return fresh.plan(view)

    def completed(self, plan: Plan, seconds: float = 0.0) -> None:
        super().completed(plan)  # without times: the claim is about counts
        note: Any = plan.note
        self.lane_ticks += bool(note and note.lane)
        self.preemptions += len(plan.preempt)


requests = st.lists(
    st.tuples(
        st.sampled_from("aaaabcde"),
        st.integers(1, 14),
        st.integers(1, 14),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=24,
)


weights = st.dictionaries(st.sampled_from("abcde"), st.sampled_from((0.25, 0.3, 2, 3, 20)))


@given(requests, st.sampled_from(("max_utilization", "guaranteed_no_evict")), weights)
@settings(max_examples=100)
def test_the_claims_hold_in_every_tick_and_all_requests_end(
    drawn: list[tuple[str, int, int, int]], admission: Any, weights: dict[str, float]
) -> None:
    policy = Held(admission=admission)
    scheduler = Scheduler(SMALL, policy, ConstantExecutor(), weights=weights)
    ended = 0
    for index, (user, prompt, output, ticks) in enumerate(drawn):
        scheduler.submit(a_request(str(index), prompt, output, user))
        for _ in range(ticks):
            ended += len(scheduler.tick())
    ended += len(run_to_end(scheduler))
    assert ended == len(drawn)
    assert admission == "max_utilization" or not policy.preemptions


@given(
    st.integers(20, 120),
    st.integers(1, 512),
    st.integers(1, 400),
    st.integers(1, 200),
    st.integers(0, 40),
    st.sampled_from((1, 0.5, 6)),
)
@settings(max_examples=30)
def test_a_light_prompt_has_its_first_token_within_the_bound(
    heavy: int, heavy_prompt: int, heavy_output: int, light_prompt: int, ticks: int, weight: float
) -> None:
    limits = Limits()
    policy = Held()
    scheduler = Scheduler(limits, policy, ConstantExecutor(), weights={"B": weight})
    for index in range(heavy):
        scheduler.submit(a_request(f"h{index}", heavy_prompt, heavy_output, "A"))
    for _ in range(ticks):
        scheduler.tick()
    light = a_request("light", light_prompt, 2, "B")
    scheduler.submit(light)
    users = scheduler._roster.users
    a, b = users.get("A"), users["B"]
    if a is None or a.load * weight < 4 * b.load:
        return
    head = a.residents[0].block_count if a.residents else 0
    if limits.blocks_for(light_prompt + 1) > limits.max_kv_blocks - head:
        return
    waited = 0
    while not light.generated:
        scheduler.tick()
        waited += 1
    assert waited <= first_token_ticks_max(light_prompt, 0, limits)


@pytest.mark.parametrize("oversize", [20, 26, 31])
def test_requests_larger_than_a_share_do_not_preempt_each_other_for_ever(oversize: int) -> None:
    policy = Held()
    scheduler = Scheduler(SMALL, policy, ConstantExecutor())
    for index in range(12):
        scheduler.submit(a_request(str(index), 3, oversize - 3, f"u{index % 4}"))
    assert len(run_to_end(scheduler, ticks_max=12 * oversize * 3)) == 12


def test_lanes_do_not_last_for_ever_whatever_names_light_users_take() -> None:
    """New users with one prompt each: DESIGN's credit, a full one for each, would never end."""
    policy = Held()
    scheduler = Scheduler(Limits(), policy, ConstantExecutor())
    for index in range(60):
        scheduler.submit(a_request(f"h{index}", 60, 400, "A"))
    scheduler.tick()
    fed = 0
    for index in range(2_000):
        scheduler.submit(a_request(f"l{index}", 64, 1, f"B{index}"))
        fed += len([r for r in scheduler.tick() if r.user_id == "A"])
    assert policy.lane_ticks < 1_600
    assert fed > 0


class TestThePredicates:
    def test_lane_share(self) -> None:
        half = (Work(64, 1), Work(65, 2))
        none = (Work(64, 1), Work(64, 1))
        assert lane_share_is_kept([none, half, none, half])
        assert not lane_share_is_kept([none, half, half, half])
        assert not lane_share_is_kept([(Work(10, 4), Work(16, 6))])

    def test_heads(self) -> None:
        residents = [Resident("a", 1), Resident("a", 3), Resident("b", 2)]
        assert heads_go_last(residents, [3])
        assert heads_go_last(residents, [3, 2])
        assert not heads_go_last(residents, [2])
        assert not oldest_goes_on(residents, [1])

    def test_the_bound(self) -> None:
        assert first_token_ticks_max(65, 0, Limits()) == 3
        assert first_token_ticks_max(64, 449, Limits()) == 3


class TestLaneWork:
    """B and C have the lane, D is lighter than four times B, the lightest, and A is not."""

    view: Any = SimpleNamespace(
        users={
            "A": SimpleNamespace(load=12, weight=1),
            "B": SimpleNamespace(load=6, weight=2),
            "C": SimpleNamespace(load=4, weight=1),
            "D": SimpleNamespace(load=11, weight=1),
        }
    )

    def own_and_whole(self, decodes: str, chunks: list[tuple[str, int, int]]) -> tuple[Work, Work]:
        """Decodes are named by their users, chunks are (user, tokens so far, tokens fed)."""
        decode: Any = [SimpleNamespace(user_id=user) for user in decodes]
        prefill: Any = [
            (SimpleNamespace(user_id=user, max_tokens=9, remaining=9 - yielded), fed)
            for user, yielded, fed in chunks
        ]
        plan = Plan(decode=decode, prefill=prefill)
        return lane_work(self.view, plan, ("C", "B"), heavier=4)

    @pytest.mark.parametrize(("user", "is_own"), [("A", 0), ("B", 1), ("C", 1), ("D", 1)])
    def test_first_tokens_of_the_light_side_are_its_own(self, user: str, is_own: int) -> None:
        own, whole = self.own_and_whole("", [(user, 0, 5)])
        assert (own, whole) == (Work(5 * is_own, is_own), Work(5, 1))

    @pytest.mark.parametrize("user", ["A", "B", "C", "D"])
    def test_what_is_computed_again_is_not(self, user: str) -> None:
        assert self.own_and_whole("", [(user, 1, 5)]) == (Work(0, 0), Work(5, 1))

    @pytest.mark.parametrize(("user", "is_own"), [("A", 0), ("B", 0), ("C", 0), ("D", 1)])
    def test_decodes_are_of_light_users_without_a_lane(self, user: str, is_own: int) -> None:
        assert self.own_and_whole(user, []) == (Work(is_own, is_own), Work(1, 1))

    def test_all_is_added_up(self) -> None:
        own, whole = self.own_and_whole("ABDD", [("B", 0, 7), ("D", 0, 6), ("A", 0, 5)])
        assert own == Work(7 + 6 + 2, 4)
        assert whole == Work(7 + 6 + 5 + 4, 7)
