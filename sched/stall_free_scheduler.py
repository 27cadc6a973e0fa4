"""Stall-free batching by the names of the course material, over `Scheduler(policy="stall-free")`.

How the names map, and where the course's sketch goes wrong:
docs/how-to/from-the-course.md.
"""

from collections.abc import Sequence
from typing import Final

from batchproof.sched.batch import Batch, checked_tokens
from batchproof.sched.config import Limits
from batchproof.sched.errors import MisuseError
from batchproof.sched.executor import ScheduledSequence
from batchproof.sched.inference_stub import SimulatedGPU
from batchproof.sched.request import Request
from batchproof.sched.scheduler import Scheduler

__all__ = ["ScheduledSequence", "StallFreeScheduler"]

_DEFAULTS: Final = Limits()


class StallFreeScheduler:
    """Hands out one iteration's batch after another; decodes first, then chunks of prompts.

    A batch that was handed out is completed with the tokens given to `complete`
    or, when none were, by the simulated GPU. That runs every batch, for its
    memory and its clock; tokens that are given take the place of its own.
    Raises `LimitsError` for a budget or a batch size below 1.
    """

    def __init__(
        self,
        token_budget: int = _DEFAULTS.token_budget,
        max_batch_size: int = _DEFAULTS.max_batch_size,
    ) -> None:
        limits = Limits(token_budget=token_budget, max_batch_size=max_batch_size)
        self._gpu = SimulatedGPU(limits)
        self.scheduler: Final = Scheduler(limits, "stall-free", self._gpu)
        """What does the work: for metrics, cancelling, and all else that the course leaves out."""
        self._out: Batch | None = None

    def add_request(self, request: Request) -> None:
        """Accept a request, or refuse it and stay as before; raises what `submit` does."""
        self.scheduler.submit(request)

    def schedule_next_batch(self) -> list[ScheduledSequence]:
        """Return the next iteration's batch, the previous one completed; empty if all are done."""
        if self._out is not None:
            self.complete()
        if not self.scheduler.has_active():
            return []
        self._out = self.scheduler.schedule()
        return list[ScheduledSequence](self._out)

    def complete(self, tokens: Sequence[int] | None = None) -> list[Request]:
        """Take one token for each sequence of the batch handed out last; return who ended.

        Without tokens, the simulated GPU's. Raises `MisuseError` when no batch is
        out, and `ExecutorError` for tokens that do not fit it: it is then still out.
        """
        if self._out is None:
            raise MisuseError("complete: no batch is out; call schedule_next_batch first")
        given = None if tokens is None else checked_tokens(self._out, tokens)
        made = self._gpu.forward(self._out)
        ended = self.scheduler.complete(self._out, made if given is None else given)
        self._out = None
        return ended
