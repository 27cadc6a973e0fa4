"""Expiry: a request ends when its deadline has come, or the time it may wait for admission is over.

It ends between two ticks, at once, as if it had been cancelled then (rule 9).
"""

from heapq import heapify, heappop, heappush
from math import isfinite
from typing import Final

from batchproof.sched.errors import InvalidRequestError
from batchproof.sched.request import Request, Sequence

_SLACK: Final = 16
"""Entries of ended requests that are kept before it is worth looking for them."""


class Expiry:
    """The live requests that may expire, by time: false where there are none.

    A heap of entries (time, place of entry, request), one for each; entries of
    requests that have ended are left in it until they come up, or outnumber the
    others.
    """

    __slots__ = ("_entered", "_heap", "_timed")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Sequence]] = []
        self._timed: dict[Sequence, None] = {}
        self._entered = 0

    def __bool__(self) -> bool:
        return bool(self._timed)

    def enter(self, sequence: Sequence) -> None:
        """Take a request, if there is a time at which it expires."""
        if sequence.deadline_s is None and sequence.max_queue_time_s is None:
            return
        time = expires_at(sequence)
        if time is not None:
            self._timed[sequence] = None
            heappush(self._heap, (time, self._entered, sequence))
            self._entered += 1

    def forget(self, sequence: Sequence) -> None:
        """Forget a request that has ended."""
        self._timed.pop(sequence, None)
        if len(self._heap) > 2 * len(self._timed) + _SLACK:
            self._heap = [entry for entry in self._heap if entry[2] in self._timed]
            heapify(self._heap)

    def next_due(self, now: float) -> Sequence | None:
        """Return a request that has expired by `now`, to be ended; None if there is none left."""
        heap, timed = self._heap, self._timed
        while heap and heap[0][0] <= now:
            _, place, sequence = heappop(heap)
            if sequence not in timed:
                continue
            time = expires_at(sequence)
            if time is None:  # it was admitted in time, and has no deadline
                del timed[sequence]
            elif time > now:
                heappush(heap, (time, place, sequence))
            else:
                return sequence
        return None


def expires_at(sequence: Sequence) -> float | None:
    """Return when a live request expires, on the executor's clock; None: never."""
    deadline, patience = sequence.deadline_s, sequence.max_queue_time_s
    if patience is None or sequence.was_admitted:
        return deadline
    patience_ends = sequence.submitted_at + patience
    return patience_ends if deadline is None else min(deadline, patience_ends)


def check_times(request: Request, now: float) -> None:
    """Raise `InvalidRequestError` unless a request's deadline is to come and its patience is one.

    Both are numbers of seconds, or None.
    """
    for name in ("deadline_s", "max_queue_time_s"):
        value = getattr(request, name)
        if value is not None and not _is_number(value):
            raise InvalidRequestError(
                f"request {request.request_id!r}: {name} is {value!r}, "
                "not a finite number of seconds; leave it out for none"
            )
    if request.deadline_s is not None and request.deadline_s <= now:
        raise InvalidRequestError(
            f"request {request.request_id!r}: deadline_s is {request.deadline_s!r} and the "
            f"executor's clock is at {now!r}: it is over already; give a later one"
        )
    if request.max_queue_time_s is not None and request.max_queue_time_s <= 0:
        raise InvalidRequestError(
            f"request {request.request_id!r}: max_queue_time_s is {request.max_queue_time_s!r}, "
            "not above 0"
        )


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    except OverflowError:
        return False
