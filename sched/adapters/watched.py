"""An engine's own scheduler, watched: what is the same for every engine.

A `Watch` is told, in batchproof's words, what the scheduler of an engine does. It
holds each tick against the rules while the engine runs and, if it is asked to,
writes the run down in the documented format, for `batchproof replay`.
"""

import atexit
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from batchproof.sched.adapters.engine import STOPPED
from batchproof.sched.config import Limits
from batchproof.sched.monitor import Monitor
from batchproof.sched.monitor_facts import TickFacts, Violation
from batchproof.spec.lifecycle import FinishReason


class Scheduled(NamedTuple):
    """What an engine's scheduler decided for one batch."""

    preempt: Collection[str] = ()
    """Requests that gave up their blocks."""
    grow: Sequence[tuple[str, int]] = ()
    """Request of the batch, and the block that it took."""
    admit: Sequence[tuple[str, Sequence[int]]] = ()
    """Request of the batch, and the blocks that it took, in the order of scheduling."""
    fed: Sequence[tuple[str, int, int]] = ()
    """Request, first position and number of its tokens in the batch."""

    def without(self, request_id: str) -> "Scheduled":
        """Return the same without the share of one request."""
        return self._replace(
            grow=[took for took in self.grow if took[0] != request_id],
            admit=[took for took in self.admit if took[0] != request_id],
            fed=[share for share in self.fed if share[0] != request_id],
        )


class Watch:
    """Tells a monitor, and a recording if there is one, of each tick of an engine's scheduler.

    `scheduler` is its name and version; `exempt` are the properties that it does
    not set out to have, which are not checked. The recording appears at the path
    `record` when the watch ends, at the latest when the process does. Raises
    `InputError` where it cannot be written, `LimitsError` for an exemption from a
    property that there is not.
    """

    def __init__(
        self, limits: Limits, scheduler: str, exempt: Collection[str], record: str | None = None
    ) -> None:
        self.monitor = Monitor(limits, on_violation="record", exempt=exempt)
        self.preemptions = 0
        self.tokens_fed = 0
        self._recording = None
        if record is not None:
            from batchproof.sched.adapters.watched_recording import WatchedRecording

            self._recording = WatchedRecording(record, limits, scheduler, exempt)
            atexit.register(self.end)
        self._preempted: list[str] = []  # since the last batch, to be told with the next
        self._decoding: set[str] = set()
        self._out: Scheduled | None = None

    @property
    def violations(self) -> list[Violation]:
        """What was violated of the properties that the scheduler sets out to have, in order."""
        return self.monitor.violations

    def submitted(
        self, request_id: str, user_id: str, prompt: Sequence[int], max_tokens: int
    ) -> None:
        """Hear of an accepted request."""
        self.monitor.submitted(request_id, user_id, len(prompt), max_tokens)
        if self._recording is not None:
            self._recording.submitted(request_id, user_id, prompt, max_tokens)

    def cancelled(self, request_id: str) -> None:
        """Hear of a cancelled request.

        While a batch is out, its share of that batch is as if it had never been:
        nobody is told what came of it, and its blocks are free at once. A batch
        of which nothing is left is not told as a tick.
        """
        if self._out is not None and self._out.fed:
            rest = self._out.without(request_id)
            self._out = rest if rest.fed else None
        if request_id in self._preempted:
            self._preempted.remove(request_id)
        self._decoding.discard(request_id)
        self.monitor.cancelled(request_id)
        if self._recording is not None:
            self._recording.cancelled(request_id)

    def preempted(self, request_id: str) -> None:
        """Hear of a preempted request; its blocks are taken before the next batch is told."""
        self._preempted.append(request_id)
        self._decoding.discard(request_id)
        self.preemptions += 1

    def scheduled(self, batch: Scheduled) -> None:
        """Hear of a batch, before the model runs it."""
        for request_id in batch.preempt:
            self.preempted(request_id)
        self._out = batch
        self.tokens_fed += sum(tokens for _, _, tokens in batch.fed)
        if self._recording is not None:
            self._recording.scheduled()

    def ran(
        self, tokens: Mapping[str, int], ended: Mapping[str, FinishReason], free_blocks: int
    ) -> None:
        """Hear what the batch yielded, what ended with it, and how many blocks are free then."""
        batch, self._out = self._out, None
        if batch is None:
            return
        preempt, self._preempted = self._preempted, []
        decode, chunks = [], []
        for request_id, position, fed in batch.fed:
            token = tokens.get(request_id)
            if token is not None and ended.get(request_id) == "eos":
                token = STOPPED
            if request_id in self._decoding and fed == 1 and token is not None:
                decode.append((request_id, token))
            else:
                chunks.append((request_id, position, fed, token))
            if token is not None:
                self._decoding.add(request_id)
        self._decoding.difference_update(ended)
        facts = TickFacts(
            preempt, batch.grow, batch.admit, decode, chunks, list(ended.items()), free_blocks
        )
        self.monitor.ticked(facts)
        if self._recording is not None:
            self._recording.ticked(facts)

    def end(self) -> None:
        """Complete the recording, if there is one; whatever is heard of later is not in it."""
        if self._recording is not None:
            atexit.unregister(self.end)
            self._recording.end(self.monitor.live)
            self._recording = None
