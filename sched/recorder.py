"""The recorder: an observer that writes down a run while it happens."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import BinaryIO, Final

from batchproof.sched.batch import Batch
from batchproof.sched.errors import InvalidRequestError, RequestError
from batchproof.sched.executor import Executor, ScheduledSequence
from batchproof.sched.observer import SilentObserver
from batchproof.sched.prompts import PromptRing
from batchproof.sched.request import Request
from batchproof.sched.request import Sequence as LiveRequest
from batchproof.sched.run_recording import (
    FORMAT,
    Cancel,
    End,
    Expire,
    Gpu,
    Header,
    Latency,
    LimitsRecord,
    PromptSlice,
    Record,
    Refuse,
    RequestRecord,
    Submit,
    Tick,
    Weight,
    encode,
)
from batchproof.sched.simulation import REFUSALS, Setup

_BUFFER_LINES: Final = 256


class Recorder(SilentObserver):
    """Tells `write` of everything that happens in a scheduler, as records.

    It is the scheduler's observer and its executor at once, in front of the
    executor that runs the batches: blocks that a request takes and gives back
    in the same tick are seen only while the batch is out.
    `ring` recognises generated prompts; others are recorded token by token.
    """

    def __init__(
        self,
        executor: Executor,
        max_kv_blocks: int,
        write: Callable[[Record], None],
        ring: PromptRing | None = None,
    ) -> None:
        self.now = executor.now
        self.ticks = 0
        self._executor = executor
        self._write = write
        self._ring = ring
        self._free = max_kv_blocks
        self._live: dict[str, int] = {}  # request id -> blocks held
        self._grown: list[tuple[str, int]] = []
        self._admitted: list[tuple[str, list[int]]] = []

    def forward(self, batch: Sequence[ScheduledSequence]) -> Sequence[int]:
        """Note the blocks that the batch took, and pass it on."""
        if isinstance(batch, Batch):
            self._grown = [(request.request_id, request.blocks[-1]) for request in batch.grown]
            self._admitted = [
                (request.request_id, list(request.blocks)) for request in batch.admitted
            ]
        return self._executor.forward(batch)

    def submitted(self, sequence: LiveRequest) -> None:
        """Record an accepted request."""
        self._live[sequence.request_id] = 0
        request = self._request(sequence.request, sequence.prompt)
        self._write(Submit(sequence.submitted_at, request, sequence.passes))

    def refused(self, request: Request, error: RequestError) -> None:
        """Record a refused request."""
        kept = None
        if not isinstance(error, InvalidRequestError):
            kept = self._request(request, request.prompt)
        self._write(Refuse(self.now(), REFUSALS[type(error)], str(error), kept))

    def cancelled(self, sequence: LiveRequest, now: float) -> None:
        """Record a cancelled request."""
        self._free += self._live.pop(sequence.request_id)
        self._write(Cancel(now, sequence.request_id))

    def expired(self, sequence: LiveRequest, now: float) -> None:
        """Record a request that has expired."""
        self._free += self._live.pop(sequence.request_id)
        self._write(Expire(now, sequence.request_id))

    def weighted(self, user_id: str, weight: float) -> None:
        """Record a user's weight."""
        self._write(Weight(user_id, weight))

    def ticked(
        self, batch: Batch, tokens: Sequence[int], ended: Sequence[LiveRequest], now: float
    ) -> None:
        """Record a completed tick."""
        self._count_blocks(batch, ended)
        decodes = batch.chunks_from
        self._write(
            Tick(
                self.ticks,
                batch.scheduled_at,
                now,
                self._free,
                [sequence.request_id for sequence in batch.preempted],
                self._grown,
                self._admitted,
                [(batch[i].request_id, tokens[i]) for i in range(decodes)],
                [_chunk(batch[i], tokens[i]) for i in range(decodes, len(batch))],
                [(sequence.request_id, str(sequence.request.finish_reason)) for sequence in ended],
            )
        )
        self.ticks += 1
        self._grown, self._admitted = [], []

    def end(self, *, complete: bool) -> None:
        """Record that the run is over."""
        self._write(End(complete, self.ticks, len(self._live)))

    def _count_blocks(self, batch: Batch, ended: Sequence[LiveRequest]) -> None:
        live = self._live
        for sequence in batch.preempted:
            self._free += live[sequence.request_id]
            live[sequence.request_id] = 0
        for request_id, _ in self._grown:
            live[request_id] += 1
        for request_id, blocks in self._admitted:
            live[request_id] += len(blocks)
            self._free -= len(blocks)
        self._free -= len(self._grown)
        for sequence in ended:
            self._free += live.pop(sequence.request_id)

    def _request(self, request: Request, prompt: Sequence[int]) -> RequestRecord:
        start = None if self._ring is None else self._ring.find(prompt)
        return RequestRecord(
            request.request_id,
            request.user_id,
            request.max_tokens,
            list(prompt) if start is None else PromptSlice(start, len(prompt)),
            request.priority,
            request.deadline_s,
            request.max_queue_time_s,
        )


def _chunk(sequence: LiveRequest, token: int) -> tuple[str, int, int, int | None]:
    position = sequence.prefilled - sequence.scheduled
    yielded = None if sequence.prefill_left else token
    return sequence.request_id, position, sequence.scheduled, yielded


def header(setup: Setup, admission: str, prompt_seed: int, producer: str) -> Header:
    """Return the header of a recording of a run on the simulated GPU."""
    return Header(
        format=FORMAT,
        producer=producer,
        limits=LimitsRecord(**asdict(setup.limits)),
        policy=setup.policy,
        admission=admission,
        gpu=Gpu(Latency(**asdict(setup.latency)), setup.seed, setup.eos_rate),
        prompt_seed=prompt_seed,
        weights=dict(setup.weights),
    )


class RecordingFile:
    """Writes a header and records to an open file, a line each."""

    def __init__(self, file: BinaryIO, first: Header) -> None:
        self._file = file
        self._lines = [encode(first)]

    def write(self, record: Record) -> None:
        """Write one record; the last, an `End`, brings everything into the file."""
        self._lines.append(encode(record))
        if len(self._lines) >= _BUFFER_LINES or isinstance(record, End):
            self._lines.append(b"")
            self._file.write(b"\n".join(self._lines))
            self._lines.clear()
