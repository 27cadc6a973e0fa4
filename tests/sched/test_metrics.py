"""The figures: defined before anything happens, each request counted once, bounded for ever."""

import itertools
import json
from math import isnan, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import (
    SMALL,
    ConstantExecutor,
    FailingExecutor,
    a_gpu,
    a_request,
    crowd,
    run_to_end,
    submitted,
)
from support.core_checks import live_sequences
from support.state_dump import dump

from batchproof import Limits, Scheduler
from batchproof.sched.config import Admission
from batchproof.sched.errors import RequestError
from batchproof.sched.metrics import (
    EXACT_SAMPLES_MAX,
    OTHERS,
    SKETCH_RELATIVE_ERROR,
    USERS_MAX,
    Metrics,
    Quantiles,
)
from batchproof.sched.policy import Plan, View, make_policy
from batchproof.sched.request import Sequence

HEADLINE = ("throughput_tokens_per_sec", "avg_latency_s", "p99_latency_s", "gpu_utilization")


def by_the_second(limits: Limits = SMALL) -> Scheduler:
    """Return a scheduler each of whose busy ticks takes one second."""
    return Scheduler(limits, executor=ConstantExecutor())


def flat(figures: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(figures, dict):
        return {path: figures}
    return {k: v for name, part in figures.items() for k, v in flat(part, f"{path}/{name}").items()}


class TestBeforeAnything:
    def test_the_four_figures_are_defined(self) -> None:
        metrics = Scheduler().metrics()
        assert tuple(metrics) == HEADLINE
        assert metrics["throughput_tokens_per_sec"] == metrics["gpu_utilization"] == 0
        assert isnan(metrics["avg_latency_s"])
        assert isnan(metrics["p99_latency_s"])

    @pytest.mark.parametrize("happened", ["nothing", "an idle tick", "a refusal", "a cancel"])
    def test_every_figure_is_a_number_zero_or_nan(self, happened: str) -> None:
        scheduler = by_the_second()
        if happened == "an idle tick":
            scheduler.tick()
        elif happened == "a refusal":
            with pytest.raises(RequestError):
                scheduler.submit(a_request(prompt=999))
        elif happened == "a cancel":
            scheduler.submit(a_request())
            scheduler.cancel("r")
        figures = flat(scheduler.stats())
        assert all(isinstance(value, int | float) for value in figures.values())
        assert not any(isnan(v) for name, v in figures.items() if "_s/" not in name
                       and "mean" not in name and "latency" not in name)  # fmt: skip
        assert isnan(scheduler.stats()["ttft_s"]["p50"])
        assert json.dumps(scheduler.stats())


class TestTimes:
    def test_ttft_and_latency_run_from_submission(self) -> None:
        scheduler = by_the_second()
        scheduler.submit(a_request(prompt=20, max_tokens=3))  # 3 ticks of prefill, 2 of decode
        run_to_end(scheduler)
        stats = scheduler.stats()
        assert stats["ttft_s"]["mean"] == 3
        assert stats["latency_s"]["mean"] == 5
        assert stats["queue_time_s"]["mean"] == 0
        assert stats["metrics"]["throughput_tokens_per_sec"] == 3 / 5

    def test_or_from_when_it_reached_the_system(self) -> None:
        scheduler = by_the_second()
        scheduler.executor.seconds = 10.0  # type: ignore[attr-defined]
        scheduler.submit(a_request(max_tokens=1), submitted_at=4.0)
        scheduler.tick()
        assert scheduler.stats()["ttft_s"]["max"] == 7
        assert scheduler.stats()["elapsed_s"] == 7

    def test_time_in_the_queue_counts(self) -> None:
        limits = Limits(max_batch_size=1)
        scheduler = by_the_second(limits)
        submitted(scheduler, [a_request("a", 3, 5), a_request("b", 3, 1)])
        run_to_end(scheduler)
        stats = scheduler.stats()
        assert stats["ttft_s"]["max"] == 6
        assert stats["queue_time_s"]["max"] == 5

    def test_ttft_runs_through_preemptions(self) -> None:
        limits = Limits(max_kv_blocks=6, block_size=4, chunk_size=4, token_budget=8)
        scheduler = by_the_second(limits)
        old, young = submitted(scheduler, [a_request("old", 3, 12), a_request("young", 18, 2)])
        while young.phase != "prefilling":
            scheduler.tick()
        while young.phase != "waiting":
            scheduler.tick()
        assert young.generated == [], "preempted before its first token"
        run_to_end(scheduler)
        stats = scheduler.stats()
        assert stats["ttft_s"]["max"] > stats["latency_s"]["p50"] == 12
        assert stats["requests"]["finished"] == stats["finish_reasons"]["length"] == 2
        assert old.finish_reason == young.finish_reason == "length"

    def test_queue_time_adds_up_over_preemptions(self) -> None:
        limits = Limits(max_kv_blocks=4, block_size=4)
        scheduler = by_the_second(limits)
        _, young = submitted(scheduler, [a_request("old", 4, 10), a_request("young", 4, 9)])
        scheduler.executor.seconds += 5.0  # type: ignore[attr-defined]
        waited = 5
        while young.phase != "done":
            scheduler.tick()
            waited += young.phase == "waiting"
        assert waited > 5
        assert scheduler.stats()["queue_time_s"]["max"] == waited

    def test_each_request_has_one_gap_less_than_tokens_preempted_or_not(self) -> None:
        scheduler = by_the_second()
        crowd(scheduler)
        ended = run_to_end(scheduler)
        assert scheduler.stats()["preemptions"] > 0
        gaps = scheduler._metrics.tbt
        assert gaps.count == sum(len(request.generated) - 1 for request in ended)
        assert scheduler._metrics.ttft.count == len(ended)

    def test_a_gap_is_the_time_between_two_tokens(self) -> None:
        limits = Limits(max_kv_blocks=4, block_size=4)
        scheduler = by_the_second(limits)
        _, young = submitted(scheduler, [a_request("old", 4, 10), a_request("young", 4, 9)])
        ticks_of_tokens = []
        for tick in range(100):
            if young.phase == "done":
                break
            before = len(young.generated)
            scheduler.tick()
            ticks_of_tokens += [tick] * (len(young.generated) - before)
        longest = max(b - a for a, b in itertools.pairwise(ticks_of_tokens))
        assert longest > 1
        assert scheduler.stats()["tbt_s"]["max"] == longest
        assert scheduler.stats()["tbt_s"]["p50"] == 1

    def test_where_decodes_take_turns_each_gap_is_counted_once_and_in_full(self) -> None:
        limits = Limits(token_budget=2, block_size=64, chunk_size=2)
        executor = ConstantExecutor()
        scheduler = Scheduler(limits, "prefill-first", executor)
        requests = submitted(scheduler, (a_request(name, 1, 5) for name in "abcd"))
        times: dict[str, list[float]] = {request.request_id: [] for request in requests}
        while scheduler.has_active():
            before = {request.request_id: len(request.generated) for request in requests}
            scheduler.tick()
            for request in requests:
                if len(request.generated) > before[request.request_id]:
                    times[request.request_id].append(executor.now())
        gaps = [b - a for line in times.values() for a, b in itertools.pairwise(line)]
        counted = scheduler.snapshot()["metrics"]["quantiles"]["tbt"]
        assert max(gaps) > 1, "some wait for their turn"
        assert (counted["count"], counted["total"], counted["max"]) == (16, sum(gaps), max(gaps))

    def test_of_a_single_token_there_is_no_gap(self) -> None:
        scheduler = by_the_second()
        scheduler.submit(a_request(max_tokens=1))
        run_to_end(scheduler)
        assert isnan(scheduler.stats()["tbt_s"]["mean"])


class TestCounting:
    def test_each_request_counts_once_and_they_add_up(self) -> None:
        scheduler = by_the_second()
        crowd(scheduler)
        with pytest.raises(RequestError):
            scheduler.submit(a_request("never", prompt=999))
        scheduler.tick()
        scheduler.cancel("r1")
        scheduler.cancel("r1")
        for live in (5, None):
            if live is None:
                run_to_end(scheduler)
            counts = scheduler.stats()["requests"]
            assert counts["submitted"] == 7
            assert counts["refused"] == counts["cancelled"] == 1
            assert counts["finished"] + counts["live"] == 5
            assert sum(counts.values()) == 2 * counts["submitted"]
        assert counts["live"] == 0

    def test_a_cancelled_request_enters_no_latency_but_its_tokens_were_delivered(self) -> None:
        scheduler = by_the_second()
        submitted(scheduler, [a_request("a", 3, 9), a_request("b", 3, 2)])
        scheduler.tick()
        scheduler.tick()
        scheduler.cancel("a")
        stats = scheduler.stats()
        assert scheduler._metrics.latency.count == scheduler._metrics.ttft.count == 1
        assert stats["latency_s"]["max"] == 2
        assert stats["tokens"]["output"] == 4
        assert stats["users"]["u"]["output_tokens"] == 4
        assert stats["finish_reasons"] == {"eos": 0, "length": 1, "cancelled": 1, "expired": 0}

    def test_recomputation_is_counted_and_is_not_throughput(self) -> None:
        scheduler = by_the_second()
        crowd(scheduler)
        ended = run_to_end(scheduler)
        tokens = scheduler.stats()["tokens"]
        needed = sum(len(r.prompt) + len(r.generated) - 1 for r in ended)
        assert tokens["output"] == sum(len(r.generated) for r in ended)
        assert tokens["recomputed"] > 0
        assert tokens["fed"] == needed + tokens["recomputed"]

    def test_what_is_fed_again_after_two_preemptions_is_counted_each_time(self) -> None:
        class InTicks3And5:
            """Stall-free, but the youngest is preempted in ticks 3 and 5."""

            name = "in-ticks-3-and-5"
            admission: Admission = "max_utilization"
            tick = 0

            def plan(self, view: View) -> Plan:
                self.tick += 1
                if self.tick in (3, 5):
                    return Plan(preempt=view.prefilling, decode=view.decoding)
                return make_policy("stall-free").plan(view)

        limits = Limits(chunk_size=4)
        scheduler = Scheduler(limits, InTicks3And5(), ConstantExecutor())
        submitted(scheduler, [a_request("old", 1, 30), a_request("young", 12, 1)])
        run_to_end(scheduler)
        # Young is fed 4, 4, preempted; 4 again, preempted; 4 and 4 again, and 4 for the first time.
        assert scheduler.stats()["tokens"]["recomputed"] == 4 + 8
        assert scheduler.stats()["tokens"]["fed"] == 30 + 12 + (4 + 8)

    def test_a_tick_that_failed_is_not_counted(self) -> None:
        smooth, bumpy = by_the_second(), by_the_second()
        bumpy.executor = FailingExecutor(bumpy.executor, [1, 3, 4])
        for scheduler in (smooth, bumpy):
            crowd(scheduler)
            while scheduler.has_active():
                try:
                    scheduler.tick()
                except RuntimeError:
                    continue
        assert repr(bumpy.stats()) == repr(smooth.stats())

    def test_utilisation_is_the_fraction_of_ticks_that_were_not_empty(self) -> None:
        scheduler = by_the_second()
        scheduler.tick()
        scheduler.submit(a_request(max_tokens=2))
        for _ in range(3):
            scheduler.tick()
        assert scheduler.metrics()["gpu_utilization"] == 2 / 4

    def test_memory_and_batches_are_those_during_the_tick(self) -> None:
        scheduler = by_the_second()
        submitted(scheduler, [a_request("a", 7, 1), a_request("b", 3, 2)])
        run_to_end(scheduler)
        stats = scheduler.stats()
        assert stats["batch"] == {"sequences_mean": 3 / 2, "sequences_max": 2}
        assert stats["kv"] == {"blocks": 8, "blocks_mean": 2.0, "blocks_max": 3}

    def test_what_is_live_is_read_fresh(self) -> None:
        scheduler = by_the_second()
        crowd(scheduler)
        scheduler.tick()
        for sequence in live_sequences(scheduler):
            scheduler.cancel(sequence.request_id)
        assert scheduler.stats()["live"] == {
            "waiting": 0,
            "prefilling": 0,
            "decoding": 0,
            "free_blocks": 8,
        }

    def test_a_refusal_counts_for_the_user_who_was_refused(self) -> None:
        scheduler = by_the_second()
        for bad in (a_request("a", 0, 2, "ann"), "no request at all"):
            with pytest.raises(RequestError):
                scheduler.submit(bad)  # type: ignore[arg-type]
        assert {name: user["refused"] for name, user in scheduler.stats()["users"].items()} == {
            "ann": 1,
            OTHERS: 1,
        }

    def test_users_are_told_apart(self) -> None:
        scheduler = by_the_second()
        submitted(
            scheduler,
            [a_request("a", 3, 2, "ann"), a_request("b", 3, 4, "bob"), a_request("c", 3, 4, "bob")],
        )
        run_to_end(scheduler)
        users = scheduler.stats()["users"]
        assert list(users) == ["ann", "bob"]
        assert [users[name]["finished"] for name in users] == [1, 2]
        assert [users[name]["output_tokens"] for name in users] == [2, 8]
        assert [users[name]["latency_s"]["max"] for name in users] == [2, 4]


class TestQuantiles:
    @given(
        st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 5)), min_size=1, max_size=60),
        st.sampled_from([0.5, 0.9, 0.99]),
    )
    def test_are_exact_while_the_run_is_short(
        self, samples: list[tuple[float, int]], q: float
    ) -> None:
        quantiles = Quantiles()
        for value, weight in samples:
            quantiles.add(value, weight)
        ordered = sorted(value for value, weight in samples for _ in range(weight))
        at_or_below = next(v for i, v in enumerate(ordered, start=1) if i >= q * len(ordered))
        assert quantiles.quantile(q) == at_or_below
        assert quantiles.max == ordered[-1]
        assert quantiles.mean == pytest.approx(sum(ordered) / len(ordered))

    @given(
        st.lists(st.floats(1e-6, 1e6), min_size=21, max_size=300),
        st.sampled_from([0.5, 0.9, 0.99]),
    )
    def test_are_within_the_stated_error_from_there_on(self, values: list[float], q: float) -> None:
        quantiles = Quantiles(exact_max=20)
        for value in values:
            quantiles.add(value)
        ordered, rank = sorted(values), q * (len(values) - 1)
        near = ordered[int(rank)], ordered[min(int(rank) + 1, len(values) - 1)]
        got = quantiles.quantile(q)
        assert near[0] * (1 - SKETCH_RELATIVE_ERROR) <= got * (1 + 1e-9)
        assert got <= near[1] * (1 + SKETCH_RELATIVE_ERROR) * (1 + 1e-9)
        assert quantiles.max == ordered[-1], "the maximum stays exact"
        assert quantiles.mean == pytest.approx(sum(values) / len(values)), "and so does the mean"

    def test_the_change_to_a_sketch_shows_in_nothing_but_the_error(self) -> None:
        quantiles = Quantiles()
        for index in range(EXACT_SAMPLES_MAX):
            quantiles.add(float(index % 1000))
        exact = quantiles.summary()
        quantiles.add(0.0)
        sketched = quantiles.summary()
        assert sketched == pytest.approx(exact, rel=2 * SKETCH_RELATIVE_ERROR)
        assert sketched != exact

    @pytest.mark.parametrize(
        "lengths", [(0, 0), (0, 3), (3, 0), (3, 3), (15, 15), (30, 3), (3, 30), (30, 30)]
    )
    def test_two_merged_are_as_one_that_saw_all(self, lengths: tuple[int, int]) -> None:
        one, other, both = (Quantiles(exact_max=20) for _ in range(3))
        for quantiles, length in zip((one, other), lengths, strict=True):
            for index in range(length):
                quantiles.add(1.0 + index)
                both.add(1.0 + index)
        one.merge(other)
        assert one.count == both.count
        assert repr(one.summary()) == repr(both.summary())

    @pytest.mark.parametrize("length", [0, 3, 30], ids=["nothing", "exact", "sketched"])
    def test_restored_are_as_those_that_the_state_was_taken_of(self, length: int) -> None:
        taken, restored = Quantiles(exact_max=20), Quantiles(exact_max=20)
        for index in range(length):
            taken.add(index / 4)  # the first is 0, which a sketch counts apart
        state = json.loads(json.dumps(taken.state()))
        restored.restore(state)
        assert repr(restored.summary()) == repr(taken.summary())
        assert restored.state() == taken.state()
        for quantiles in (taken, restored):
            quantiles.add(99.0)
        assert repr(restored.summary()) == repr(taken.summary())

    def test_of_nothing_are_nan(self) -> None:
        assert all(isnan(value) for value in Quantiles().summary().values())
        assert repr(Quantiles().max) == repr(nan)


class TestBoundedMemory:
    def test_what_is_kept_after_100_000_requests_is_what_was_kept_after_50_000(self) -> None:
        metrics = Metrics(256)
        sizes = []
        for number in range(100_000):
            request = a_request(f"r{number}", 1, 1, f"user-{number % 3000}")
            sequence = Sequence(request, (1,), number, float(number))
            metrics.submitted(sequence)
            sequence.first_token_at = number + 1.0 + number % 7
            request.finish_reason = "eos"
            metrics.ended(sequence, number + 9.0 + number % 11)
            if number + 1 in (50_000, 100_000):
                metrics.summary()
                sizes.append(len(str(dump(metrics))))
        assert len(metrics.users) <= USERS_MAX + 1
        assert sizes[1] < 1.1 * sizes[0]
        counts = metrics.summary()["requests"]
        assert (counts["submitted"], counts["finished"], counts["live"]) == (100_000, 100_000, 0)

    def test_users_beyond_the_bound_are_added_up_and_none_of_their_figures_is_lost(self) -> None:
        scheduler = by_the_second()
        for number in range(USERS_MAX + 50):
            scheduler.submit(a_request("r", 1, 1, f"user-{number:05}"))
            scheduler.tick()
        stats = scheduler.stats()
        assert len(stats["users"]) <= USERS_MAX + 1
        assert stats["users"][OTHERS]["finished"] >= 49
        assert f"user-{USERS_MAX + 49:05}" in stats["users"]
        for figure in ("submitted", "finished", "output_tokens"):
            assert sum(user[figure] for user in stats["users"].values()) == USERS_MAX + 50

    def test_a_user_with_live_requests_is_not_added_up(self) -> None:
        metrics = Metrics(8)
        metrics.submitted(Sequence(a_request("first", user="loyal"), (1,), 0, 0.0))
        for number in range(USERS_MAX + 50):
            metrics.refused(f"user-{number}")
        assert metrics.users["loyal"].live == 1

    def test_no_user_is_added_up_while_all_have_live_requests(self) -> None:
        metrics = Metrics(8)
        for number in range(USERS_MAX + 2):
            metrics.submitted(Sequence(a_request("r", user=f"u{number}"), (1,), number, 0.0))
        assert len(metrics.users) == USERS_MAX + 2
        assert OTHERS not in metrics.users

    def test_refusals_alone_keep_nothing_that_grows(self) -> None:
        scheduler = Scheduler(SMALL, executor=a_gpu())
        for number in range(5 * USERS_MAX):
            with pytest.raises(RequestError):
                scheduler.submit(a_request(f"r{number}", 0, user=f"user-{number}"))
        assert len(scheduler.stats()["users"]) <= USERS_MAX + 1
        assert scheduler.stats()["requests"]["refused"] == 5 * USERS_MAX
