"""vLLM V1 by examples: running requests first in order, the youngest gives way."""

from support.builders import ConstantExecutor, a_request, submitted
from support.core_checks import Recorder

from batchproof import Limits, Scheduler
from batchproof.sched.fairness import MODELS, SCENARIOS, run, two_users


def test_a_prompt_under_way_goes_before_a_younger_decode() -> None:
    limits = Limits(max_kv_blocks=64, block_size=4, chunk_size=8, token_budget=9, max_batch_size=4)
    recorder = Recorder()
    scheduler = Scheduler(limits, "vllm-v1", ConstantExecutor(), observer=recorder)
    submitted(scheduler, [a_request("long", 24, 2), a_request("short", 1, 3)])
    for _ in range(3):
        scheduler.tick()
    assert recorder.log == [{"long": 8, "short": 1}] * 3


def test_in_order_of_arrival_it_serves_a_whole_workload_as_stall_free_does() -> None:
    """A younger decode never finds the budget gone: the chunk it shares with only gets smaller."""
    workload = two_users(SCENARIOS[0], MODELS[0], seed=1)
    assert run(workload, "vllm-v1") == run(workload, "stall-free")


def test_the_youngest_gives_way_and_comes_back_first() -> None:
    limits = Limits(max_kv_blocks=4, block_size=4, chunk_size=8, token_budget=16, max_batch_size=4)
    recorder = Recorder()
    scheduler = Scheduler(limits, "vllm-v1", ConstantExecutor(), observer=recorder)
    recorder.watch(scheduler)
    submitted(scheduler, [a_request("a", 6, 8), a_request("b", 6, 8), a_request("c", 2, 2)])
    while scheduler.has_active():
        scheduler.tick()
    happened = [(name, event) for _, name, event in recorder.events if event != "grow"]
    assert happened.index(("b", "preempt")) > happened.index(("b", "admit"))
    assert ("a", "preempt") not in happened
    assert happened.index(("c", "admit")) > happened.index(("b", "preempt"))
