"""Who is told of everything that happens in a scheduler."""

from collections.abc import Sequence as SequenceOf
from typing import Protocol

from batchproof.sched.batch import Batch
from batchproof.sched.errors import RequestError
from batchproof.sched.request import Request, Sequence


class Observer(Protocol):
    """Is told of everything that happens, after it happened. It must not call back."""

    def submitted(self, sequence: Sequence, /) -> None:
        """Hear of an accepted request."""
        ...

    def refused(self, request: Request, error: RequestError, /) -> None:
        """Hear of a refused request, and why."""
        ...

    def cancelled(self, sequence: Sequence, now: float, /) -> None:
        """Hear of a cancelled request."""
        ...

    def ticked(
        self, batch: Batch, tokens: SequenceOf[int], ended: SequenceOf[Sequence], now: float, /
    ) -> None:
        """Hear of a completed tick; `seq.scheduled` still says what each chunk was fed."""
        ...
