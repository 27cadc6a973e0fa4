"""What stall-free and static do, by examples: each names a promise of the policy's page."""

from collections.abc import Sequence

import pytest
from support.builders import ConstantExecutor, a_request, submitted
from support.core_checks import Recorder, blocks_of, waiting_ids

from batchproof import Limits, Request, Scheduler
from batchproof.sched import policy as policies
from batchproof.sched.config import ADMISSIONS, Admission
from batchproof.sched.errors import LimitsError
from batchproof.sched.policy import POLICIES, Plan, View, make_policy
from batchproof.sched.policy.compose import decodes_first

WIDE = Limits(max_kv_blocks=64, block_size=4, chunk_size=8, token_budget=16, max_batch_size=4)
"""Memory is no matter here: budget and seats are."""
TIGHT = Limits(max_kv_blocks=7, block_size=8, chunk_size=32, token_budget=64, max_batch_size=4)
"""And here it is the other way round."""


def test_the_package_of_policies_gives_what_it_says() -> None:
    assert all(hasattr(policies, name) for name in policies.__all__)


class Stage:
    """A scheduler under one policy, and what it fed in each tick."""

    def __init__(
        self, policy: str, limits: Limits = WIDE, admission: Admission | None = None
    ) -> None:
        self.recorder = Recorder()
        self.scheduler = Scheduler(
            limits, make_policy(policy, admission), ConstantExecutor(), observer=self.recorder
        )
        self.recorder.watch(self.scheduler)

    def submit(self, *requests: Request) -> None:
        submitted(self.scheduler, requests)

    def ticks(self, count: int) -> Sequence[dict[str, int]]:
        for _ in range(count):
            self.scheduler.tick()
        return self.recorder.log[-count:]

    def to_the_end(self) -> Sequence[dict[str, int]]:
        start = len(self.recorder.log)
        while self.scheduler.has_active():
            self.scheduler.tick()
        return self.recorder.log[start:]

    def happened(self, what: str) -> list[tuple[int, str]]:
        return [(tick, name) for tick, name, event in self.recorder.events if event == what]


class TestStallFree:
    def test_decodes_come_first_and_chunks_fill_what_they_leave(self) -> None:
        stage = Stage("stall-free")
        stage.submit(a_request("a", 2, 9), a_request("b", 2, 9))
        stage.ticks(1)
        stage.submit(a_request("long", 40, 1), a_request("next", 40, 1))
        assert stage.ticks(2) == [{"a": 1, "b": 1, "long": 8, "next": 6}] * 2

    def test_a_decode_yields_a_token_in_every_tick_whatever_arrives(self) -> None:
        stage = Stage("stall-free")
        stage.submit(a_request("a", 2, 30))
        stage.ticks(1)
        for index in range(20):
            stage.submit(a_request(f"p{index}", 15, 1))
            assert stage.ticks(1)[0]["a"] == 1

    def test_prefills_under_way_go_on_before_new_ones_begin(self) -> None:
        stage = Stage("stall-free", Limits(chunk_size=8, token_budget=8))
        stage.submit(a_request("first", 20, 1), a_request("second", 20, 1))
        assert stage.ticks(6) == [
            {"first": 8},
            {"first": 8},
            {"first": 4, "second": 4},
            {"second": 8},
            {"second": 8},
            {},
        ]

    def test_a_short_prompt_is_not_held_up_by_a_long_one_when_the_budget_takes_both(self) -> None:
        stage = Stage("stall-free")
        stage.submit(a_request("long", 200, 1), a_request("short", 3, 1))
        assert stage.ticks(1) == [{"long": 8, "short": 3}]

    def test_first_come_first_served_is_strict_a_small_one_waits_behind_a_big_one(self) -> None:
        stage = Stage("stall-free", TIGHT)
        stage.submit(a_request("holder", 24, 8), a_request("big", 30, 1), a_request("small", 2, 1))
        stage.ticks(1)
        assert waiting_ids(stage.scheduler) == ["big", "small"]
        stage.to_the_end()
        assert [name for _, name in stage.happened("admit")] == ["holder", "big", "small"]

    def test_a_seat_that_was_left_is_taken_in_the_next_tick(self) -> None:
        stage = Stage("stall-free", Limits(max_batch_size=2))
        stage.submit(a_request("short", 3, 2), a_request("long", 3, 9), a_request("next", 3, 9))
        log = stage.ticks(3)
        assert [set(fed) for fed in log] == [{"short", "long"}, {"short", "long"}, {"long", "next"}]

    def test_when_growth_fails_the_youngest_goes_and_nobody_comes_in_that_tick(self) -> None:
        stage = Stage("stall-free", TIGHT)
        stage.submit(a_request("old", 16, 20), a_request("young", 16, 20))
        stage.ticks(9)
        stage.submit(a_request("newcomer", 2, 2))
        stage.to_the_end()
        ((tick, loser),) = stage.happened("preempt")
        assert loser == "young"
        assert tick not in [when for when, _ in stage.happened("admit")]
        resumed = [name for when, name in stage.happened("admit") if when > tick]
        assert resumed == ["young", "newcomer"], "it kept its place"

    def test_the_oldest_is_never_preempted(self) -> None:
        stage = Stage("stall-free", TIGHT)
        stage.submit(*(a_request(f"r{index}", 9, 40) for index in range(8)))
        stage.to_the_end()
        lost = stage.happened("preempt")
        assert lost
        ends = dict(map(reversed, stage.happened("end")))  # type: ignore[arg-type]
        for tick, loser in lost:
            assert any(ends[name] >= tick for name in ends if name < loser)

    def test_as_many_go_as_must_and_no_more(self) -> None:
        limits = Limits(max_kv_blocks=9, block_size=8, token_budget=64)
        stage = Stage("stall-free", limits)
        stage.submit(a_request("a", 15, 18), a_request("b", 15, 18), a_request("c", 23, 12))
        stage.to_the_end()
        assert [name for _, name in stage.happened("preempt")] == ["c"]


class TestAdmission:
    def test_max_utilization_takes_what_is_needed_now_and_preempts_later(self) -> None:
        stage = Stage("stall-free", TIGHT, "max_utilization")
        stage.submit(a_request("a", 16, 20), a_request("b", 16, 20))
        stage.ticks(1)
        assert {name: len(blocks) for name, blocks in blocks_of(stage.scheduler).items()} == {
            "a": 3,
            "b": 3,
        }
        stage.to_the_end()
        assert len(stage.happened("preempt")) == 1

    def test_guaranteed_no_evict_takes_the_peak_and_never_preempts_or_grows(self) -> None:
        stage = Stage("stall-free", TIGHT, "guaranteed_no_evict")
        stage.submit(a_request("a", 16, 20), a_request("b", 16, 20))
        stage.ticks(1)
        assert len(blocks_of(stage.scheduler)["a"]) == 5
        assert waiting_ids(stage.scheduler) == ["b"]
        log = stage.to_the_end()
        assert stage.happened("preempt") == stage.happened("grow") == []
        assert all(len(fed) == 1 for fed in log)

    @pytest.mark.parametrize("admission", ADMISSIONS)
    def test_a_feasible_request_is_admitted_to_an_empty_pool_whatever_it_needs(
        self, admission: Admission
    ) -> None:
        stage = Stage("stall-free", TIGHT, admission)
        stage.submit(a_request("all", 56, 1), a_request("all-over-time", 1, 56))
        stage.to_the_end()
        assert [name for _, name in stage.happened("end")] == ["all", "all-over-time"]

    def test_the_defaults_are_to_preempt_and_for_static_not_to(self) -> None:
        assert make_policy("stall-free").admission == "max_utilization"
        assert make_policy("static").admission == "guaranteed_no_evict"


class TestStatic:
    def test_a_batch_runs_until_all_of_it_is_done_and_then_comes_the_next(self) -> None:
        stage = Stage("static", Limits(max_batch_size=2))
        stage.submit(
            a_request("short", 3, 1),
            a_request("long", 3, 4),
            a_request("next", 3, 2),
            a_request("last", 3, 1),
        )
        assert [set(fed) for fed in stage.to_the_end()] == [
            {"short", "long"},
            {"long"},  # the seat that short left stays empty
            {"long"},
            {"long"},
            {"next", "last"},
            {"next"},
        ]

    def test_who_comes_while_a_batch_runs_waits_for_the_next(self) -> None:
        stage = Stage("static")
        stage.submit(a_request("a", 3, 3))
        stage.ticks(1)
        stage.submit(a_request("b", 3, 1))
        assert stage.ticks(3) == [{"a": 1}, {"a": 1}, {"b": 3}]

    def test_a_cancel_of_the_last_of_a_batch_lets_the_next_begin(self) -> None:
        stage = Stage("static", Limits(max_batch_size=1))
        stage.submit(a_request("a", 3, 30), a_request("b", 3, 1))
        stage.ticks(2)
        stage.scheduler.cancel("a")
        assert stage.ticks(1) == [{"b": 3}]

    def test_a_batch_is_as_large_as_memory_and_seats_allow(self) -> None:
        stage = Stage("static", TIGHT)
        stage.submit(*(a_request(f"r{index}", 9, 8) for index in range(5)))  # 2 blocks each
        assert stage.ticks(1)[0].keys() == {"r0", "r1", "r2"}

    def test_a_budget_smaller_than_the_batch_serves_it_in_turn(self) -> None:
        stage = Stage("static", Limits(token_budget=2))
        stage.submit(*(a_request(f"r{index}", 1, 3) for index in range(4)))
        log = stage.to_the_end()
        assert all(sum(fed.values()) <= 2 for fed in log)
        assert len(stage.happened("end")) == 4

    def test_when_it_may_preempt_the_preempted_are_in_the_next_batch(self) -> None:
        stage = Stage("static", TIGHT, "max_utilization")
        stage.submit(a_request("a", 16, 20), a_request("b", 16, 20))
        stage.to_the_end()
        ((tick, loser),) = stage.happened("preempt")
        assert loser == "b"
        ends = {name: when for when, name in stage.happened("end")}
        assert [when for when, name in stage.happened("admit") if name == "b" and when > tick] == [
            ends["a"] + 1
        ]


class TestPrefillFirst:
    def test_a_prompt_goes_before_every_decode_to_its_end(self) -> None:
        stage = Stage("prefill-first")
        stage.submit(a_request("a", 2, 9), a_request("b", 2, 9))
        stage.ticks(2)
        stage.submit(a_request("long", 20, 5))
        assert stage.ticks(4) == [
            {"long": 8},
            {"long": 8},
            {"long": 4},
            {"a": 1, "b": 1, "long": 1},
        ]

    def test_who_gets_no_chunk_is_not_admitted(self) -> None:
        stage = Stage("prefill-first")
        stage.submit(*(a_request(f"r{index}", 9, 1) for index in range(3)))
        assert stage.ticks(1) == [{"r0": 8, "r1": 8}]
        assert [name for _, name in stage.happened("admit")] == ["r0", "r1"]

    def test_residents_are_never_more_than_the_seats(self) -> None:
        stage = Stage("prefill-first", Limits(token_budget=8, chunk_size=4, max_batch_size=3))
        stage.submit(a_request("a", 1, 9), a_request("b", 1, 9))
        stage.ticks(1)
        stage.submit(a_request("c", 7, 9), a_request("d", 1, 9), a_request("e", 1, 9))
        assert stage.ticks(3) == [{"c": 4}, {"c": 3}, {"a": 1, "b": 1, "c": 1}]

    def test_memory_is_used_to_the_last_block_and_nobody_passes_one_that_does_not_fit(self) -> None:
        stage = Stage("prefill-first", TIGHT)  # 7 blocks of 8 tokens
        stage.submit(a_request("a", 23, 2), a_request("b", 31, 2))
        stage.submit(a_request("c", 7, 2))
        assert stage.ticks(1) == [{"a": 23, "b": 31}]
        stage.scheduler.cancel("a")
        stage.submit(a_request("d", 31, 2), a_request("e", 1, 2))
        assert stage.ticks(1) == [{"c": 7}]


class TestTurns:
    """When there are more decodes than a batch can take, the least recently scheduled go first."""

    class OneByOne:
        """Admits whenever it can, so that decodes pile up, and has a budget for two of them."""

        name = "one-by-one"
        admission: Admission = "max_utilization"

        def plan(self, view: View) -> Plan:
            oldest = next(iter(view.waiting), None)
            if oldest is not None:
                return Plan(admit=[oldest], prefill=[(oldest, oldest.prefill_left)])
            return Plan(decode=decodes_first(view).decode)

    def test_every_one_has_its_turn(self) -> None:
        recorder = Recorder()
        limits = Limits(token_budget=2, block_size=64)
        scheduler = Scheduler(limits, self.OneByOne(), ConstantExecutor(), observer=recorder)
        submitted(scheduler, (a_request(name, 1, 9) for name in "abcde"))
        for _ in range(10):
            scheduler.tick()
        assert [tuple(fed) for fed in recorder.log[5:]] == [
            ("a", "b"),
            ("c", "d"),
            ("e", "a"),
            ("b", "c"),
            ("d", "e"),
        ]


class TestTheRegistry:
    @pytest.mark.parametrize("name", sorted(POLICIES))
    def test_a_policy_is_made_by_its_own_name_in_both_ways_to_admit(self, name: str) -> None:
        assert make_policy(name).name == name
        for admission in ADMISSIONS:
            assert make_policy(name, admission).admission == admission

    def test_an_unknown_name_or_admission_is_refused_with_those_there_are(self) -> None:
        with pytest.raises(LimitsError, match=r"'best' is unknown; there are: .*static"):
            make_policy("best")
        with pytest.raises(LimitsError, match="there are: max_utilization, guaranteed_no_evict"):
            make_policy("static", "sometimes")  # type: ignore[arg-type]
