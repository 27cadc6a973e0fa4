"""Orca by examples: iterations, order of arrival, memory reserved to the end."""

from support.builders import ConstantExecutor, a_request, submitted
from support.core_checks import Recorder, preemptions_of

from batchproof import Limits, Scheduler

LIMITS = Limits(max_kv_blocks=8, block_size=4, chunk_size=8, token_budget=10, max_batch_size=4)


def test_a_request_joins_and_leaves_between_iterations_and_nobody_is_preempted() -> None:
    recorder = Recorder()
    scheduler = Scheduler(LIMITS, "orca", ConstantExecutor(), observer=recorder)
    # 4 + 12 - 1 tokens at the peak: four blocks each, so two fit and the third waits.
    submitted(scheduler, [a_request(name, 4, 12) for name in "abc"])
    for _ in range(12):
        scheduler.tick()
        assert not any(preemptions_of(scheduler).values())
    assert recorder.log[:2] == [{"a": 4, "b": 4}, {"a": 1, "b": 1}]
    scheduler.tick()
    assert recorder.log[-1] == {"c": 4}


def test_the_older_request_is_served_first_even_if_it_is_a_prompt() -> None:
    limits = Limits(max_kv_blocks=64, block_size=4, chunk_size=8, token_budget=8, max_batch_size=4)
    recorder = Recorder()
    scheduler = Scheduler(limits, "orca", ConstantExecutor(), observer=recorder)
    submitted(scheduler, [a_request("long", 24, 2), a_request("short", 2, 2)])
    for _ in range(4):
        scheduler.tick()
    assert recorder.log == [{"long": 8}, {"long": 8}, {"long": 8}, {"long": 1, "short": 2}]
