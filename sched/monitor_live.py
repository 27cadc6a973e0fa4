"""A monitor of a live scheduler: what the scheduler does, told in the monitor's terms."""

from collections.abc import Sequence

from batchproof.sched.batch import Batch
from batchproof.sched.config import Admission
from batchproof.sched.errors import (
    DuplicateRequestError,
    InfeasibleRequestError,
    QueueFullError,
    RequestError,
)
from batchproof.sched.monitor import Monitor
from batchproof.sched.monitor_facts import Account, TickFacts, Times
from batchproof.sched.observer import SilentObserver
from batchproof.sched.request import Request
from batchproof.sched.request import Sequence as LiveRequest
from batchproof.sched.roster import Roster
from batchproof.spec.lifecycle import INITIAL

_REFUSALS = {
    DuplicateRequestError: "duplicate",
    InfeasibleRequestError: "infeasible",
    QueueFullError: "queue_full",
}


class LiveMonitor(SilentObserver):
    """An observer of a scheduler that tells a monitor."""

    def __init__(self, roster: Roster, admission: Admission, monitor: bool | Monitor) -> None:
        self.monitor = (
            monitor if isinstance(monitor, Monitor) else Monitor(roster.limits, admission)
        )
        self._pool = roster.pool
        self._grow: list[tuple[str, int]] = []
        self._admit: list[tuple[str, list[int]]] = []
        for sequence in roster.live.values():
            self._resume(sequence)

    def _resume(self, sequence: LiveRequest) -> None:
        """Take up a request that was live before the monitor began."""
        account = Account(
            sequence.user_id,
            sequence.prompt_len,
            sequence.max_tokens,
            sequence.number,
            _times(sequence),
        )
        account.phase = sequence.request.phase or INITIAL
        account.prefilled = sequence.prefilled
        account.generated = len(sequence.generated)
        account.blocks = list(sequence.blocks)
        account.priority = sequence.priority
        most = self.monitor.limits.max_passes
        account.passed = most if sequence.was_admitted else sequence.passed
        self.monitor.resume(sequence.request_id, account)

    def submitted(self, sequence: LiveRequest) -> None:
        """Tell of an accepted request."""
        self.monitor.submitted(
            sequence.request_id,
            sequence.user_id,
            sequence.prompt_len,
            sequence.max_tokens,
            _times(sequence),
            sequence.priority,
            sequence.passes,
        )

    def refused(self, request: Request, error: RequestError) -> None:
        """Tell of a refused request, unless it makes no sense by itself."""
        kind = _REFUSALS.get(type(error))
        if kind is not None:
            self.monitor.refused(
                request.request_id, kind, len(request.prompt), request.max_tokens, request.user_id
            )

    def cancelled(self, sequence: LiveRequest, now: float) -> None:
        """Tell of a cancelled request."""
        self.monitor.cancelled(sequence.request_id)

    def expired(self, sequence: LiveRequest, now: float) -> None:
        """Tell of a request that has expired."""
        self.monitor.expired(sequence.request_id, now)

    def scheduled(self, batch: Batch) -> None:
        """Note the blocks that a batch takes: those who end in it have none afterwards."""
        self._grow = [(seq.request_id, seq.blocks[-1]) for seq in batch.grown]
        self._admit = [(seq.request_id, list(seq.blocks)) for seq in batch.admitted]

    def ticked(
        self, batch: Batch, tokens: Sequence[int], ended: Sequence[LiveRequest], now: float
    ) -> None:
        """Tell of a completed tick."""
        count = batch.chunks_from
        decodes = [seq.request_id for seq in batch[:count]]
        facts = TickFacts(
            preempt=[seq.request_id for seq in batch.preempted],
            grow=self._grow,
            admit=self._admit,
            decode=list(zip(decodes, tokens[:count], strict=True)),
            chunks=[
                (
                    seq.request_id,
                    seq.prefilled - seq.scheduled,
                    seq.scheduled,
                    None if seq.prefill_left else token,
                )
                for seq, token in zip(batch[count:], tokens[count:], strict=True)
            ],
            ended=[(seq.request_id, str(seq.request.finish_reason)) for seq in ended],
            free=self._pool.free,
        )
        self._grow, self._admit = [], []  # a tick with nobody live is not preceded by `scheduled`
        self.monitor.ticked(facts)


def _times(sequence: LiveRequest) -> Times:
    """Return by when it must be done, and by when admitted if it never was."""
    patience = sequence.max_queue_time_s
    admit_by_s = None if patience is None else sequence.submitted_at + patience
    return sequence.deadline_s, None if sequence.was_admitted else admit_by_s
