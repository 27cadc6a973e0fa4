"""The tick coordinator: its calls, their order, and what happens when one of them fails."""

from typing import Any

import pytest
from support.builders import (
    SMALL,
    AnsweringExecutor,
    ConstantExecutor,
    FailingExecutor,
    a_gpu,
    a_request,
    a_scheduler,
    crowd,
    run_to_end,
    submitted,
)
from support.core_checks import assert_invariants, blocks_of
from support.state_dump import dump

from batchproof import Limits, Scheduler
from batchproof.sched.errors import LimitsError
from batchproof.sched.monitor import Monitor
from batchproof.sched.policy import Plan, make_policy


class TestALife:
    def test_of_one_request_is_its_prompt_in_chunks_then_a_token_a_tick(self) -> None:
        scheduler, request = a_scheduler(), a_request(prompt=20, max_tokens=3)
        seen = []
        scheduler.submit(request)
        while scheduler.has_active():
            ended = scheduler.tick()
            seen.append((request.phase, len(request.generated), [r.request_id for r in ended]))
        assert seen == [
            ("prefilling", 0, []),
            ("prefilling", 0, []),
            ("decoding", 1, []),
            ("decoding", 2, []),
            ("done", 3, ["r"]),
        ]
        assert request.finish_reason == "length"

    def test_of_one_token_goes_from_prefilling_to_done(self) -> None:
        scheduler, request = a_scheduler(), a_request(max_tokens=1)
        scheduler.submit(request)
        assert scheduler.tick() == [request]
        assert (request.phase, request.finish_reason) == ("done", "length")
        assert len(request.generated) == 1

    def test_ends_with_eos_in_the_tick_that_yields_it(self) -> None:
        scheduler = a_scheduler(AnsweringExecutor([5], [SMALL.eos_token]))
        request = a_request(max_tokens=20)
        scheduler.submit(request)
        assert scheduler.tick() == []
        assert scheduler.tick() == [request]
        assert (request.finish_reason, request.generated) == ("eos", [5, SMALL.eos_token])
        assert not scheduler.has_active()

    def test_ends_with_eos_and_not_length_when_the_last_token_is_eos(self) -> None:
        scheduler, request = a_scheduler(ConstantExecutor(token=0)), a_request(max_tokens=1)
        scheduler.submit(request)
        scheduler.tick()
        assert request.finish_reason == "eos"

    def test_eos_is_the_token_that_the_limits_name(self) -> None:
        limits = Limits(eos_token=7)
        scheduler, request = Scheduler(limits, executor=ConstantExecutor(7)), a_request()
        scheduler.submit(request)
        assert scheduler.tick() == [request]
        assert request.finish_reason == "eos"

    def test_a_token_returned_for_an_unfinished_prefill_is_thrown_away(self) -> None:
        scheduler = a_scheduler(AnsweringExecutor([SMALL.eos_token], [9]))
        request = a_request(prompt=16, max_tokens=1)
        scheduler.submit(request)
        scheduler.tick()
        assert (request.phase, request.generated) == ("prefilling", [])
        scheduler.tick()
        assert request.generated == [9]

    def test_in_a_crowd_yields_what_it_yields_alone(self) -> None:
        gpu = a_gpu()
        scheduler = a_scheduler(gpu)
        crowd(scheduler)
        ended = run_to_end(scheduler)
        assert scheduler.stats()["preemptions"] > 0, "the crowd is to be large enough"
        assert {r.request_id: r.generated for r in ended} == {
            r.request_id: gpu.expected_output(r) for r in ended
        }
        assert len(ended) == 6


class TestScheduleAndComplete:
    def test_are_what_tick_is_made_of(self) -> None:
        ticking, stepping = a_scheduler(), a_scheduler()
        crowd(ticking)
        crowd(stepping)
        while ticking.has_active():
            by_tick = ticking.tick()
            batch = stepping.schedule()
            tokens = stepping.executor.forward(batch)
            by_hand = stepping.complete(batch, tokens)
            assert [r.request_id for r in by_tick] == [r.request_id for r in by_hand]
            assert dump(ticking) == dump(stepping)
        assert not stepping.has_active()

    def test_a_sequence_of_a_batch_says_all_that_an_engine_needs(self) -> None:
        scheduler, request = a_scheduler(), a_request(prompt=10, max_tokens=3)
        scheduler.submit(request)
        shares = []
        while scheduler.has_active():
            batch = scheduler.schedule()
            (seq,) = batch
            assert len(seq.block_table) * SMALL.block_size >= seq.position + len(seq.tokens)
            shares.append((list(seq.tokens), seq.position, seq.remaining, seq.yields))
            scheduler.complete(batch, [100 + len(shares)])
        prompt = list(request.prompt)
        assert shares == [
            (prompt[:8], 0, 3, False),
            (prompt[8:], 8, 3, True),
            ([102], 10, 2, True),
            ([103], 11, 1, True),
        ]

    def test_a_resumed_request_is_fed_its_prompt_and_then_what_it_had_generated(self) -> None:
        limits = Limits(max_kv_blocks=4, block_size=4, chunk_size=5, token_budget=16)
        scheduler = a_scheduler(limits=limits)
        old, young = submitted(scheduler, [a_request("old", 4, 10), a_request("young", 4, 9)])
        fed: list[int] = []
        while young.phase != "done":
            batch = scheduler.schedule()
            if young in [seq.request for seq in batch.preempted]:
                fed, generated = [], list(young.generated)
            for seq in batch:
                if seq.request is young and young.phase != "decoding":
                    assert seq.position == len(fed)
                    fed += seq.tokens
            scheduler.complete(batch, scheduler.executor.forward(batch))
        assert old.phase == "done"
        assert len(generated) > 1
        assert fed == [*young.prompt, *generated]

    def test_decodes_come_before_chunks_in_a_batch(self) -> None:
        scheduler = a_scheduler()
        submitted(scheduler, [a_request("a", 2, 9), a_request("b", 2, 9)])
        scheduler.tick()
        scheduler.submit(a_request("c", 9, 9))
        batch = scheduler.schedule()
        assert [seq.request_id for seq in batch] == ["a", "b", "c"]
        assert batch.chunks_from == 2
        assert batch.tokens == 2 + 8

    def test_the_memory_of_a_batch_that_is_out_is_taken(self) -> None:
        scheduler = a_scheduler()
        scheduler.submit(a_request(prompt=9, max_tokens=2))
        scheduler.schedule()
        assert scheduler.stats()["live"]["free_blocks"] == 8 - 3

    def test_with_nothing_live_the_batch_is_empty_and_the_executor_left_alone(self) -> None:
        executor = FailingExecutor(ConstantExecutor(), [1])
        scheduler = a_scheduler(executor)
        assert scheduler.tick() == []
        batch = scheduler.schedule()
        assert list(batch) == []
        assert scheduler.complete(batch, []) == []
        assert executor.calls == 0
        assert scheduler.stats()["ticks"] == 2


class TestCancel:
    @pytest.mark.parametrize(
        ("ticks", "phase"), [(0, "waiting"), (1, "prefilling"), (3, "decoding")]
    )
    def test_ends_a_request_at_once_in_any_phase_and_frees_all_it_held(
        self, ticks: int, phase: str
    ) -> None:
        scheduler, request = a_scheduler(), a_request(prompt=16, max_tokens=5)
        scheduler.submit(request)
        for _ in range(ticks):
            scheduler.tick()
        assert request.phase == phase

        assert scheduler.cancel("r")

        assert (request.phase, request.finish_reason) == ("done", "cancelled")
        assert len(request.generated) == max(ticks - 1, 0)
        assert not scheduler.has_active()
        assert scheduler.stats()["live"]["free_blocks"] == 8

    def test_of_a_preempted_request_takes_it_out_of_the_line(self) -> None:
        limits = Limits(max_kv_blocks=4, block_size=4)
        scheduler = a_scheduler(limits=limits)
        _, young = submitted(scheduler, [a_request("old", 4, 10), a_request("young", 4, 9)])
        while not (young.phase == "waiting" and young.generated):
            scheduler.tick()
        assert scheduler.cancel("young")
        assert_invariants(scheduler)
        assert [r.request_id for r in run_to_end(scheduler)] == ["old"]

    def test_happens_once_and_to_exactly_that_id(self) -> None:
        scheduler = a_scheduler()
        one, ten = submitted(scheduler, [a_request("r1"), a_request("r10")])
        assert [scheduler.cancel(name) for name in ("r", "", "r1", "r1")] == [
            False,
            False,
            True,
            False,
        ]
        run_to_end(scheduler)
        assert (one.finish_reason, ten.finish_reason) == ("cancelled", "length")

    def test_after_the_end_changes_nothing(self) -> None:
        scheduler, request = a_scheduler(), a_request()
        scheduler.submit(request)
        run_to_end(scheduler)
        before = dump(scheduler)
        assert not scheduler.cancel("r")
        assert dump(scheduler) == before
        assert request.finish_reason == "length"

    def test_in_the_middle_of_a_run_leaves_the_tokens_of_the_others_as_they_are(self) -> None:
        gpu = a_gpu()
        scheduler = a_scheduler(gpu)
        crowd(scheduler)
        for victim in ("r1", "r2", "r4"):
            scheduler.tick()
            scheduler.tick()
            assert scheduler.cancel(victim)
            assert_invariants(scheduler)
        ended = run_to_end(scheduler)
        assert {r.request_id for r in ended} <= {"r0", "r3", "r5"}
        assert all(r.generated == gpu.expected_output(r) for r in ended)


class TestIds:
    def test_an_id_can_be_used_again_as_soon_as_its_request_is_done(self) -> None:
        scheduler = a_scheduler()
        scheduler.submit(a_request("r", 3, 1))
        (first,) = scheduler.tick()
        second = a_request("r", 4, 2)
        scheduler.submit(second)
        assert run_to_end(scheduler) == [second]
        assert (len(first.generated), len(second.generated)) == (1, 2)

    def test_or_cancelled(self) -> None:
        scheduler = a_scheduler()
        for length in (3, 4, 5):
            scheduler.submit(a_request("r", length))
            scheduler.tick()
            assert scheduler.cancel("r")
        assert blocks_of(scheduler) == {}

    def test_what_has_ended_is_forgotten(self) -> None:
        scheduler = a_scheduler(ConstantExecutor())
        for index in range(50):
            scheduler.submit(a_request(f"r{index}", 3, 2))
            run_to_end(scheduler)
            scheduler.cancel(f"r{index}")
        assert "r7" not in str(dump(scheduler))


class TestMaking:
    def test_an_unknown_policy_is_refused_with_those_there_are(self) -> None:
        with pytest.raises(LimitsError, match=r"'fastest' is unknown; there are: .*stall-free"):
            Scheduler(policy="fastest")

    @pytest.mark.parametrize("policy", [42, None, object(), ["stall-free"]])
    def test_what_is_not_a_policy_is_refused(self, policy: Any) -> None:
        with pytest.raises(LimitsError, match="neither a policy's name nor"):
            Scheduler(policy=policy)

    def test_a_policy_whose_way_to_admit_is_unknown_is_refused(self) -> None:
        class Hasty:
            name = "hasty"
            admission = "at_once"

        with pytest.raises(LimitsError, match="max_utilization or guaranteed_no_evict"):
            Scheduler(policy=Hasty())  # type: ignore[arg-type]

    def test_without_arguments_it_has_the_default_limits_and_a_simulated_gpu(self) -> None:
        scheduler = Scheduler()
        assert scheduler.limits == Limits()
        assert scheduler.monitor is None
        scheduler.submit(a_request(max_tokens=1))
        assert len(scheduler.tick()) == 1

    def test_a_monitor_of_ones_own_is_the_one_that_is_told(self) -> None:
        monitor = Monitor(SMALL, on_violation="record")
        scheduler = Scheduler(SMALL, executor=ConstantExecutor(), monitor=monitor)
        scheduler.submit(a_request())
        scheduler.tick()
        assert scheduler.monitor is monitor
        assert monitor.ticks == 1

    def test_the_monitor_that_it_makes_knows_how_the_policy_admits(self) -> None:
        scheduler = Scheduler(SMALL, make_policy("static", "guaranteed_no_evict"), monitor=True)
        assert scheduler.monitor is not None
        assert scheduler.monitor.admission == "guaranteed_no_evict"

    def test_the_simulated_gpu_that_it_makes_has_its_limits(self) -> None:
        assert Scheduler(SMALL).executor.limits is SMALL  # type: ignore[attr-defined]


class Timed:
    """Stall-free, but it hears how long each tick took."""

    name = "timed"
    admission = "max_utilization"

    def __init__(self) -> None:
        self.plan = make_policy("stall-free").plan
        self.heard: list[float] = []

    def completed(self, _plan: Plan, seconds: float) -> None:
        self.heard.append(seconds)

    def left(self, _user_id: str) -> None:
        pass

    def state(self) -> None:
        return None

    def restore(self, _state: None) -> None:
        pass


def test_a_policy_that_remembers_hears_how_long_each_tick_took() -> None:
    policy, executor = Timed(), ConstantExecutor()  # a tick takes a second
    executor.seconds = 60.0
    scheduler = Scheduler(SMALL, policy, executor)  # type: ignore[arg-type]
    scheduler.submit(a_request(max_tokens=3))
    run_to_end(scheduler)
    assert policy.heard == [1.0, 1.0, 1.0]
