"""Backpressure: what may wait is bounded, and a request beyond a bound is refused (rule 4).

A preempted request waits too and is counted, but nothing is ever dropped: it is
at submission, and only there, that the bounds are held.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from batchproof.sched.config import Limits
from batchproof.sched.errors import QueueFullError
from batchproof.sched.request import Request
from batchproof.sched.waiting import Line, WaitingQueue


class _Kind(NamedTuple):
    """What a bound is of."""

    unit: Literal["requests", "prompt tokens"]
    of_user: bool


_KINDS: Final = {
    "max_waiting_requests": _Kind("requests", of_user=False),
    "max_waiting_tokens": _Kind("prompt tokens", of_user=False),
    "max_waiting_requests_per_user": _Kind("requests", of_user=True),
    "max_waiting_tokens_per_user": _Kind("prompt tokens", of_user=True),
}
_NOBODY: Final = Line()


class Backpressure:
    """The bounds that are set, held against a queue: false where there are none."""

    __slots__ = ("_bounds", "_queue")

    def __init__(self, limits: Limits, queue: WaitingQueue) -> None:
        self._queue = queue
        self._bounds = limits.queue_bounds

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def check(self, requests: Sequence[Request], tokens: int) -> None:
        """Raise `QueueFullError` unless there is room for requests of one user, all or none.

        They have `tokens` prompt tokens together.
        """
        user_id = requests[0].user_id
        for name, most in self._bounds.items():
            unit, of_user = _KINDS[name]
            line = self._queue.by_user.get(user_id, _NOBODY) if of_user else self._queue
            if unit == "requests":
                waiting, more = len(line), len(requests)
            else:
                waiting, more = line.tokens, tokens
            if waiting + more <= most:
                continue
            one = len(requests) == 1
            whom = f"request {requests[0].request_id!r}" if one else f"{len(requests)} requests"
            whose = f" of user {user_id!r}" if of_user else ""
            advice = "try again when fewer wait, or raise the limit"
            if more > most:
                advice = "not even an empty queue has room: submit less, or raise the limit"
            raise QueueFullError(
                f"{whom}: {waiting} {unit}{whose} wait, it would be {waiting + more}, "
                f"{name} is {most}; {advice}",
                limit=name,
                most=most,
                waiting=waiting,
                would_be=waiting + more,
            )
