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

    def expired(self, sequence: Sequence, now: float, /) -> None:
        """Hear of a request that has expired, whatever becomes of the tick that is next."""
        ...

    def weighted(self, user_id: str, weight: float, /) -> None:
        """Hear of the weight that a user has from now on."""
        ...

    def scheduled(self, batch: Batch, /) -> None:
        """Hear of a batch that goes out, its memory taken; it may yet be abandoned."""
        ...

    def ticked(
        self, batch: Batch, tokens: SequenceOf[int], ended: SequenceOf[Sequence], now: float, /
    ) -> None:
        """Hear of a completed tick; `seq.scheduled` still says what each chunk was fed.

        Those that ended no longer have their blocks.
        """
        ...


class SilentObserver:
    """Takes no note of anything: to be derived from by who wants to hear of some things."""

    def submitted(self, sequence: Sequence, /) -> None:
        """Take no note."""

    def refused(self, request: Request, error: RequestError, /) -> None:
        """Take no note."""

    def cancelled(self, sequence: Sequence, now: float, /) -> None:
        """Take no note."""

    def expired(self, sequence: Sequence, now: float, /) -> None:
        """Take no note."""

    def weighted(self, user_id: str, weight: float, /) -> None:
        """Take no note."""

    def scheduled(self, batch: Batch, /) -> None:
        """Take no note."""

    def ticked(
        self, batch: Batch, tokens: SequenceOf[int], ended: SequenceOf[Sequence], now: float, /
    ) -> None:
        """Take no note."""


class Observers:
    """Several observers, told in turn."""

    def __init__(self, observers: SequenceOf[Observer]) -> None:
        self._observers = observers

    def submitted(self, sequence: Sequence, /) -> None:
        """Tell all of an accepted request."""
        for observer in self._observers:
            observer.submitted(sequence)

    def refused(self, request: Request, error: RequestError, /) -> None:
        """Tell all of a refused request."""
        for observer in self._observers:
            observer.refused(request, error)

    def cancelled(self, sequence: Sequence, now: float, /) -> None:
        """Tell all of a cancelled request."""
        for observer in self._observers:
            observer.cancelled(sequence, now)

    def expired(self, sequence: Sequence, now: float, /) -> None:
        """Tell all of a request that has expired."""
        for observer in self._observers:
            observer.expired(sequence, now)

    def weighted(self, user_id: str, weight: float, /) -> None:
        """Tell all of a user's weight."""
        for observer in self._observers:
            observer.weighted(user_id, weight)

    def scheduled(self, batch: Batch, /) -> None:
        """Tell all of a batch that goes out."""
        for observer in self._observers:
            observer.scheduled(batch)

    def ticked(
        self, batch: Batch, tokens: SequenceOf[int], ended: SequenceOf[Sequence], now: float, /
    ) -> None:
        """Tell all of a completed tick."""
        for observer in self._observers:
            observer.ticked(batch, tokens, ended, now)
