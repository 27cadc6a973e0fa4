"""The simulated GPU at the speed of a real one."""

import time
from collections.abc import Callable, Sequence
from math import isfinite

from batchproof.sched.errors import LimitsError
from batchproof.sched.executor import ScheduledSequence
from batchproof.sched.inference_stub import SimulatedGPU


class PacedGPU:
    """An executor whose clock is the wall clock, `pace` of its seconds to one of ours.

    A batch takes as long as the latency model says. `clock` and `sleep` are of
    our seconds. Raises `LimitsError` for a pace that is not a positive number.
    """

    def __init__(
        self,
        gpu: SimulatedGPU,
        pace: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not (isfinite(pace) and pace > 0):
            raise LimitsError(
                f"pace is {pace!r}, not a positive number of virtual seconds to a real one"
            )
        self._gpu = gpu
        self._pace = pace
        self._clock = clock
        self._sleep = sleep
        self._started_at = clock()

    def now(self) -> float:
        """Return the seconds since it was made, at its pace."""
        return (self._clock() - self._started_at) * self._pace

    def forward(self, batch: Sequence[ScheduledSequence]) -> list[int]:
        """Run the batch, and return when it would be done; errors are the simulated GPU's."""
        self._gpu.wait_until(self.now())
        tokens = self._gpu.forward(batch)
        while (early := self._gpu.now() - self.now()) > 0:
            self._sleep(early / self._pace)
        return tokens
