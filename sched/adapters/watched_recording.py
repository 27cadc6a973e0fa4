"""What an engine's own scheduler did, as a recording: docs/reference/recording-format.md."""

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from batchproof import __version__
from batchproof.sched.config import Limits
from batchproof.sched.monitor_facts import TickFacts
from batchproof.sched.recorder import RecordingFile
from batchproof.sched.run_recording import (
    FORMAT,
    Cancel,
    End,
    Header,
    LimitsRecord,
    RequestRecord,
    Submit,
    Tick,
)
from batchproof.sched.text_files import whole_file


class WatchedRecording:
    """Writes a recording of another engine's run, in seconds since the recording began.

    The file appears at `path` when it `end`s. Raises `InputError` where it cannot
    be written.
    """

    def __init__(self, path: str, limits: Limits, scheduler: str, exempt: Iterable[str]) -> None:
        self._files = ExitStack()
        first = Header(
            format=FORMAT,
            producer=f"batchproof {__version__}",
            limits=LimitsRecord(**asdict(limits)),
            policy=scheduler,
            admission="max_utilization",
            exempt=sorted(exempt),
        )
        self._write = RecordingFile(self._files.enter_context(whole_file(path)), first).write
        self._started_at = time.monotonic()
        self._scheduled_at = 0.0
        self._ticks = 0

    def _now(self) -> float:
        return round(time.monotonic() - self._started_at, 6)

    def submitted(
        self, request_id: str, user_id: str, prompt: Sequence[int], max_tokens: int
    ) -> None:
        """Write down an accepted request."""
        request = RequestRecord(request_id, user_id, max_tokens, list(prompt))
        self._write(Submit(self._now(), request))

    def cancelled(self, request_id: str) -> None:
        """Write down a cancelled request."""
        self._write(Cancel(self._now(), request_id))

    def scheduled(self) -> None:
        """Note when a batch was scheduled."""
        self._scheduled_at = self._now()

    def ticked(self, facts: TickFacts) -> None:
        """Write down a completed tick."""
        parts: dict[str, Any] = facts._asdict()
        self._write(Tick(tick=self._ticks, start=self._scheduled_at, end=self._now(), **parts))
        self._ticks += 1

    def end(self, live: int) -> None:
        """Write the last line: `live` requests had not ended. The file appears."""
        self._write(End(not live, self._ticks, live))
        self._files.close()
