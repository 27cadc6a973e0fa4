"""Stall-free by example: prompts under way go on, whoever gives way."""

from support.builders import ConstantExecutor, a_request, submitted
from support.core_checks import Recorder, preemptions_of

from batchproof import Limits, Scheduler

LIMITS = Limits(max_kv_blocks=7, block_size=4, chunk_size=4, token_budget=16, max_batch_size=4)


def test_an_older_prompt_under_way_goes_on_while_the_youngest_gives_way_to_a_decode() -> None:
    recorder = Recorder()
    scheduler = Scheduler(LIMITS, "stall-free", ConstantExecutor(), observer=recorder)
    # 1, 5 and 1 blocks: all there are, and the second token of the oldest needs one more.
    submitted(scheduler, [a_request("old", 3, 9), a_request("long", 16, 2), a_request("new", 3, 9)])
    scheduler.tick()
    scheduler.tick()
    assert preemptions_of(scheduler) == {"old": 0, "long": 0, "new": 1}
    assert recorder.log == [{"old": 3, "long": 4, "new": 3}, {"old": 1, "long": 4}]
