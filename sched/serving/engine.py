"""The engine: one task that owns the scheduler, and what clients hold of their requests.

Ownership: the scheduler belongs to the event loop's thread, and nothing else
calls it. A batch is scheduled and completed there; only `executor.forward` runs
in a thread of its own, and it only reads the batch. While a batch is out,
requests are submitted, which the scheduler allows at any time, and
cancellations are kept until the batch is back. What the scheduler does is so
decided by the order of submissions, cancellations and ticks, and by nothing else.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Self

from batchproof.sched.errors import (
    BatchproofError,
    InvalidRequestError,
    QueueFullError,
    RequestError,
)
from batchproof.sched.monitor_facts import ViolationError
from batchproof.sched.request import Request
from batchproof.sched.scheduler import Scheduler
from batchproof.sched.serving.account import Account
from batchproof.sched.serving.metrics import ServingMetrics
from batchproof.spec.lifecycle import FinishReason

TICK_TRIES: Final = 3
"""How often a tick is tried before the engine gives up: a failed one changed nothing."""


class StoppedError(BatchproofError, RuntimeError):
    """The engine has stopped, or stops before the request could be finished."""


class Piece(NamedTuple):
    """What is new of one of a ticket's requests."""

    place: int
    """Which of them: its place in the ticket."""
    tokens: Sequence[int]
    finish_reason: FinishReason | None
    """None: more is to come."""


class Ticket:
    """The requests of one call, as whoever waits for them sees them.

    What was generated stays in the requests until it is asked for, so a slow
    reader costs no more than their `max_tokens`.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self._live = len(requests)
        self._news = asyncio.Event()
        self._ended = asyncio.Event()

    def tell(self) -> None:
        """Wake who waits: there may be tokens."""
        self._news.set()

    def tell_end(self) -> None:
        """Wake who waits: one of the requests is done."""
        self._live -= 1
        self._news.set()
        if not self._live:
            self._ended.set()

    async def ended(self) -> None:
        """Wait until all its requests are done."""
        await self._ended.wait()

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield what is generated, as it comes, until all its requests are done."""
        sent = dict.fromkeys(range(len(self.requests)), 0)
        while sent:
            self._news.clear()
            for place in tuple(sent):
                request = self.requests[place]
                tokens, reason = request.generated[sent[place] :], request.finish_reason
                sent[place] += len(tokens)
                if reason is not None:
                    del sent[place]
                if tokens or reason is not None:
                    yield Piece(place, tokens, reason)
            if sent:
                await self._news.wait()


class Engine:
    """Runs a scheduler's ticks for as long as it is entered: `async with engine`.

    `metrics` is the scheduler's observer. How much may wait, its limits say.
    """

    def __init__(self, scheduler: Scheduler, metrics: ServingMetrics) -> None:
        self.scheduler = scheduler
        self.metrics = metrics
        self.failure: Exception | None = None
        """Why it gave up; None while it works."""
        self._tickets: dict[str, Ticket] = {}  # live request id -> whose it is
        self._batch_is_out = False
        self._to_cancel: list[str] = []
        self._work = asyncio.Event()
        self._stopping = False
        self._delivered = self._cancelled = 0

    async def __aenter__(self) -> Self:
        self._forward_thread = ThreadPoolExecutor(1, thread_name_prefix="batchproof-forward")
        self._task = asyncio.create_task(self._run(), name="batchproof-engine")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await self._task
        self._forward_thread.shutdown()

    @property
    def alive(self) -> bool:
        """Whether it takes requests and works on them."""
        return not self._stopping and not self._task.done()

    def submit(self, requests: Sequence[Request]) -> Ticket:
        """Submit the requests of one call, all or none.

        Raises `QueueFullError`, `StoppedError`, or the `RequestError` of the first
        that the scheduler refuses.
        """
        if self._stopping:
            raise StoppedError(f"the server has stopped: {self.failure or 'it was asked to'}")
        try:
            self.scheduler.check_room(requests)
        except QueueFullError as full:
            if full.is_for_ever:
                raise InvalidRequestError(str(full)) from None
            self.metrics.queue_was_full(len(requests))
            raise
        ticket = Ticket(requests)
        try:
            for request in requests:
                self.scheduler.submit(request)
                self._tickets[request.request_id] = ticket
        except RequestError:
            self.cancel(requests)
            raise
        self._work.set()
        return ticket

    def cancel(self, requests: Iterable[Request]) -> None:
        """Cancel those of the requests that are live: now, or as soon as the batch is back."""
        for request in requests:
            if request.request_id in self._tickets:
                self._to_cancel.append(request.request_id)
        if not self._batch_is_out:
            self._cancel_kept()

    def stop(self) -> None:
        """Accept nothing more, and cancel what is live."""
        self._stopping = True
        self.cut()
        self._work.set()

    def cut(self) -> None:
        """Cancel all that is live: whoever waits for it is told."""
        for ticket in dict.fromkeys(self._tickets.values()):
            self.cancel(ticket.requests)

    def account(self) -> Account:
        """Return what became of all requests; call it when nothing is live."""
        return Account.of(self.scheduler, delivered=self._delivered, cancelled=self._cancelled)

    async def _run(self) -> None:
        failures = 0
        while self.scheduler.has_active() or not self._stopping:
            if not self.scheduler.has_active():
                self._work.clear()
                await self._work.wait()
                continue
            try:
                await self._tick()
                failures = 0
                self._stop_if_violated()
            except Exception as error:
                failures += 1
                self.metrics.tick_failed()
                if failures == TICK_TRIES:
                    self.failure = error
                    self.stop()

    def _stop_if_violated(self) -> None:
        """Give up at the first violation of a property, if the scheduler has a monitor."""
        monitor = self.scheduler.monitor
        if monitor is not None and monitor.violations:
            self.failure = ViolationError(monitor.violations[0], monitor.report())
            self.stop()

    async def _tick(self) -> None:
        scheduler, loop = self.scheduler, asyncio.get_running_loop()
        batch = scheduler.schedule()
        self._batch_is_out = True
        try:
            forward = scheduler.executor.forward
            tokens = await loop.run_in_executor(self._forward_thread, forward, batch)
            ended = scheduler.complete(batch, tokens)
        except BaseException:
            scheduler.abandon(batch)
            raise
        else:
            for sequence in batch:
                self._tickets[sequence.request_id].tell()
            for request in ended:
                self._delivered += 1
                self._tickets.pop(request.request_id).tell_end()
        finally:
            self._batch_is_out = False
            self._cancel_kept()

    def _cancel_kept(self) -> None:
        """Cancel what was asked to be, and has not ended meanwhile."""
        for request_id in self._to_cancel:
            if self.scheduler.cancel(request_id):
                self._cancelled += 1
                self._tickets.pop(request_id).tell_end()
        self._to_cancel.clear()
