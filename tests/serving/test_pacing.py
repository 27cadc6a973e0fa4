"""The simulated GPU at the speed of a real one."""

import pytest
from support.builders import SMALL, a_gpu, a_request, run_to_end, submitted

from batchproof import Scheduler
from batchproof.sched.errors import LimitsError
from batchproof.sched.serving.pacing import PacedGPU


class Watch:
    """A clock that moves when somebody sleeps, half as far as asked the first time."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.seconds += seconds / 2 if len(self.slept) == 1 else seconds


def test_a_batch_takes_the_time_that_the_latency_model_says_at_the_pace() -> None:
    watch = Watch()
    gpu = PacedGPU(a_gpu(latency="linear"), 2.0, clock=watch.now, sleep=watch.sleep)
    scheduler = Scheduler(SMALL, executor=gpu)
    submitted(scheduler, [a_request(max_tokens=4)])
    run_to_end(scheduler)
    # Four ticks of 5 + 1 ms of its time, two of its seconds to one of ours.
    assert watch.seconds - 100 == pytest.approx(4 * 0.006 / 2)
    assert gpu.now() == pytest.approx(4 * 0.006)
    assert scheduler.metrics()["avg_latency_s"] == pytest.approx(4 * 0.006)


def test_time_passes_while_nothing_runs() -> None:
    watch = Watch()
    gpu = PacedGPU(a_gpu(), 1.0, clock=watch.now, sleep=watch.sleep)
    scheduler = Scheduler(SMALL, executor=gpu)
    watch.seconds += 5
    submitted(scheduler, [a_request(max_tokens=1)])
    run_to_end(scheduler)
    assert gpu.now() == pytest.approx(5.006)
    assert scheduler.metrics()["avg_latency_s"] == pytest.approx(0.006)


def test_tokens_do_not_depend_on_the_pace() -> None:
    request = a_request(max_tokens=5)
    scheduler = Scheduler(SMALL, executor=PacedGPU(a_gpu(), 1e6))
    submitted(scheduler, [request])
    run_to_end(scheduler)
    assert request.generated == a_gpu().expected_output(request)


@pytest.mark.parametrize("pace", [0, -1, float("nan"), float("inf")])
def test_a_pace_that_makes_no_sense_is_refused(pace: float) -> None:
    with pytest.raises(LimitsError, match="not a positive number"):
        PacedGPU(a_gpu(), pace)
