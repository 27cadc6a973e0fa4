"""What random runs found: ticks, restarts and a monitor that left a trace."""

import pytest
from support.builders import SMALL, FailingExecutor, a_gpu, a_request, crowd, run_to_end

from batchproof import Scheduler
from batchproof.sched.policy import POLICIES


@pytest.mark.parametrize("policy", POLICIES)
def test_a_first_tick_that_fails_leaves_no_trace(policy: str) -> None:
    scheduler = Scheduler(SMALL, policy, FailingExecutor(a_gpu(), [1]))
    scheduler.submit(a_request())
    before = scheduler.snapshot()
    with pytest.raises(RuntimeError, match="device lost"):
        scheduler.tick()
    assert scheduler.snapshot() == before


def test_a_restart_without_memory_counts_the_preemptions_in_all_and_by_user() -> None:
    scheduler = Scheduler(SMALL, executor=a_gpu())
    crowd(scheduler)
    scheduler.tick()
    again = Scheduler.restore(scheduler.snapshot(), executor=a_gpu(), memory_lost=True)
    run_to_end(again)
    stats = again.stats()
    by_user = sum(user["preemptions"] for user in stats["users"].values())
    assert stats["preemptions"] == by_user > scheduler.stats()["preemptions"]


def test_a_monitor_takes_a_tick_with_nobody_live_for_what_it_is() -> None:
    scheduler = Scheduler(SMALL, executor=a_gpu(), monitor=True)
    scheduler.submit(a_request(max_tokens=1))
    assert len(scheduler.tick()) == 1
    assert scheduler.tick() == []
