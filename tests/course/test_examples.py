"""The three examples of the course material, and the names that people come from it with."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.builders import a_request, run_to_end, submitted
from support.core_checks import Recorder, assert_invariants

from batchproof import Limits, Request, Scheduler, SimulatedGPU
from batchproof.sched import inference_stub
from batchproof.sched.errors import (
    ExecutorError,
    InvalidRequestError,
    LimitsError,
    MisuseError,
)
from batchproof.sched.request_gen import stream
from batchproof.sched.stall_free_scheduler import StallFreeScheduler

ROOT = Path(__file__).resolve().parents[2]


def test_single_life() -> None:
    """One request, from waiting to done."""
    scheduler, gpu = Scheduler(), SimulatedGPU()
    request = Request(user_id="u1", prompt=[1, 2, 3], max_tokens=10, request_id="r1")
    scheduler.submit(request)
    phases = [request.phase]
    ended: list[Request] = []
    while scheduler.has_active():
        ended += scheduler.tick()
        phases.append(request.phase)
    assert phases[0] == "waiting"
    assert set(phases[1:-1]) == {"decoding"}
    assert phases[-1] == "done"
    assert ended == [request]
    assert request.generated == gpu.expected_output(request)
    assert request.finish_reason in ("eos", "length")


def test_50_mixed_requests_then_metrics() -> None:
    """Fifty generated requests of several users, all served; then the four figures."""
    scheduler, gpu = Scheduler(), SimulatedGPU()
    requests = submitted(scheduler, stream(50))
    ended = run_to_end(scheduler)
    assert {id(request) for request in ended} == {id(request) for request in requests}
    assert len(ended) == 50
    assert all(request.generated == gpu.expected_output(request) for request in ended)

    metrics = scheduler.metrics()
    assert list(metrics) == [
        "throughput_tokens_per_sec",
        "avg_latency_s",
        "p99_latency_s",
        "gpu_utilization",
    ]
    assert metrics["throughput_tokens_per_sec"] > 0
    assert 0 < metrics["avg_latency_s"] <= metrics["p99_latency_s"]
    assert metrics["gpu_utilization"] == 1


def test_30_long_requests_under_256_blocks_none_dropped_or_stuck() -> None:
    """Thirty requests that need 1,200 blocks in all: memory is never over, and all end."""
    recorder, gpu = Recorder(), SimulatedGPU(eos_rate=0)
    scheduler = Scheduler(executor=gpu, observer=recorder)
    recorder.watch(scheduler)
    requests = submitted(scheduler, (a_request(f"r{i}", 400, 241, f"u{i % 5}") for i in range(30)))
    assert sum(inference_stub.kv_blocks_for(400 + 241 - 1) for _ in requests) == 1_200
    ended: list[Request] = []
    while scheduler.has_active():
        ended += scheduler.tick()
        assert_invariants(scheduler)
        assert recorder.log[-1], "never stuck"
    assert sorted(r.request_id for r in ended) == sorted(r.request_id for r in requests)
    assert all(request.generated == gpu.expected_output(request) for request in ended)
    assert scheduler.stats()["kv"]["blocks_max"] <= inference_stub.MAX_KV_BLOCKS
    assert scheduler.stats()["live"]["free_blocks"] == inference_stub.MAX_KV_BLOCKS


class TestTheNames:
    def test_of_the_stub(self) -> None:
        assert inference_stub.MAX_KV_BLOCKS == 256
        assert inference_stub.EOS_TOKEN == 0
        assert [inference_stub.kv_blocks_for(n) for n in (0, 1, 16, 17, 4096)] == [0, 1, 1, 2, 256]

    def test_forward_runs_a_batch_of_any_scheduler_with_the_default_limits(self) -> None:
        scheduler, request = Scheduler(), a_request(max_tokens=20)
        scheduler.submit(request)
        while scheduler.has_active():
            batch = scheduler.schedule()
            scheduler.complete(batch, inference_stub.forward(batch))
        assert request.generated == SimulatedGPU().expected_output(request)

    def test_stream_makes_as_many_requests_as_asked_with_ids_of_their_own(self) -> None:
        requests = list(stream(50))
        assert len(requests) == len({request.request_id for request in requests}) == 50
        assert len({request.user_id for request in requests}) > 1
        assert [r.prompt for r in stream(5)] == [r.prompt for r in stream(5)]

    def test_are_importable_from_the_folder_itself(self) -> None:
        program = (
            "from scheduler import Scheduler, Request\n"
            "from inference_stub import forward, kv_blocks_for, MAX_KV_BLOCKS, EOS_TOKEN\n"
            "from request_gen import stream\n"
            "from stall_free_scheduler import StallFreeScheduler, ScheduledSequence\n"
            "course = StallFreeScheduler(token_budget=256, max_batch_size=16)\n"
            "for request in stream(3):\n"
            "    course.add_request(request)\n"
            "while batch := course.schedule_next_batch():\n"
            "    course.complete(forward(batch))\n"
            "print(course.scheduler.stats()['requests']['finished'])\n"
        )
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=ROOT / "sched",
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.stdout, ran.stderr) == ("3\n", "")


def tokens_by_id(course: StallFreeScheduler) -> list[dict[str, int]]:
    fed = []
    while batch := course.schedule_next_batch():
        fed.append({share.request_id: len(share.tokens) for share in batch})
    return fed


class TestStallFreeScheduler:
    def test_decodes_go_first_and_chunks_fill_the_budget(self) -> None:
        course = StallFreeScheduler(token_budget=70, max_batch_size=4)
        course.add_request(a_request("short", 3, 3))
        course.add_request(a_request("long", 100, 1))
        assert tokens_by_id(course) == [
            {"short": 3, "long": 64},
            {"short": 1, "long": 36},
            {"short": 1},
        ]

    @pytest.mark.parametrize("given", ["always", "never", "at first"])
    def test_tokens_may_be_given_or_left_to_the_stub_and_are_the_same(self, given: str) -> None:
        course, gpu = StallFreeScheduler(512, 64), SimulatedGPU()
        requests = [a_request(f"r{i}", 10 + 9 * i, 20) for i in range(8)]
        for request in requests:
            course.add_request(request)
        turn = 0
        while batch := course.schedule_next_batch():
            turn += 1
            if given == "always" or (given == "at first" and turn < 6):
                course.complete(inference_stub.forward(batch))
        assert all(request.generated == gpu.expected_output(request) for request in requests)
        assert course.scheduler.metrics()["throughput_tokens_per_sec"] > 0

    def test_tokens_that_are_given_are_the_ones_taken(self) -> None:
        course, request = StallFreeScheduler(512, 64), a_request(max_tokens=3)
        course.add_request(request)
        for token in (41, 42, 43):
            course.schedule_next_batch()
            ended = course.complete([token])
        assert ended == [request]
        assert request.generated == [41, 42, 43]

    def test_more_can_be_added_at_any_time(self) -> None:
        course = StallFreeScheduler(512, 64)
        course.add_request(a_request("a", 3, 1))
        course.schedule_next_batch()
        course.add_request(a_request("b", 3, 1))
        assert [share.request_id for share in course.schedule_next_batch()] == ["b"]
        assert course.schedule_next_batch() == []
        course.add_request(a_request("c", 3, 1))
        assert tokens_by_id(course) == [{"c": 3}]

    def test_an_empty_prompt_is_refused(self) -> None:
        course = StallFreeScheduler(512, 64)
        with pytest.raises(InvalidRequestError, match="prompt is empty"):
            course.add_request(a_request(prompt=0))
        assert course.schedule_next_batch() == []

    def test_a_budget_that_decodes_eat_up_gives_no_empty_or_negative_chunk(self) -> None:
        course = StallFreeScheduler(token_budget=2, max_batch_size=8)
        for name in ("a", "b", "c"):
            course.add_request(a_request(name, 1, 4))
        assert tokens_by_id(course) == [
            {"a": 1, "b": 1},
            {"a": 1, "b": 1},
            {"a": 1, "b": 1},
            {"a": 1, "b": 1},
            {"c": 1},
            {"c": 1},
            {"c": 1},
            {"c": 1},
        ]

    def test_the_last_prompt_token_is_fed_once(self) -> None:
        course, request = StallFreeScheduler(512, 64), a_request(prompt=70, max_tokens=3)
        course.add_request(request)
        fed: list[int] = []
        while batch := course.schedule_next_batch():
            assert batch[0].position == len(fed)
            fed += batch[0].tokens
        assert fed == [*request.prompt, *request.generated[:-1]]

    @pytest.mark.parametrize("sizes", [(0, 64), (512, 0), (-1, 64), ("512", 64)])
    def test_a_budget_or_a_batch_size_that_makes_no_sense_is_refused(
        self, sizes: tuple[int, int]
    ) -> None:
        with pytest.raises(LimitsError):
            StallFreeScheduler(*sizes)

    def test_completing_what_is_not_out_is_misuse(self) -> None:
        course = StallFreeScheduler(512, 64)
        with pytest.raises(MisuseError, match="schedule_next_batch first"):
            course.complete([1])

    def test_tokens_that_do_not_fit_leave_the_batch_out_and_time_as_it_was(self) -> None:
        course, request = StallFreeScheduler(512, 64), a_request(max_tokens=1)
        course.add_request(request)
        course.schedule_next_batch()
        before = course.scheduler.executor.now()
        with pytest.raises(ExecutorError, match="returned 2 tokens"):
            course.complete([1, 2])
        assert course.scheduler.executor.now() == before
        assert course.complete([1]) == [request]

    def test_its_limits_are_the_defaults_but_for_the_two(self) -> None:
        assert StallFreeScheduler(99, 9).scheduler.limits == Limits(
            token_budget=99, max_batch_size=9
        )
