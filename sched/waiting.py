"""The waiting requests, in order of place, in all and by user.

Places are taken in the order of first submission. Priorities choose among the
places of one user that were never admitted from, and nothing else (rule 5).
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import merge

from batchproof.sched.request import Sequence


def _number(sequence: Sequence) -> int:
    return sequence.number


class Line:
    """Requests in order of place; every operation but a put-back is O(1).

    Those that were preempted are older than those that were never admitted, for
    admission is first come, first served within a user. So the line is two
    parts: `_returned`, short and sorted, then `_fresh`, in order of arrival.
    """

    __slots__ = ("_fresh", "_returned", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        """Prompt tokens of its requests: of those that were preempted, the whole known context."""
        self._returned: list[Sequence] = []
        self._fresh: OrderedDict[int, Sequence] = OrderedDict()

    def __len__(self) -> int:
        return len(self._returned) + len(self._fresh)

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._returned
        yield from self._fresh.values()

    def append(self, sequence: Sequence) -> None:
        """Add a request that was just submitted."""
        self._fresh[sequence.number] = sequence
        self.tokens += sequence.context_len

    def put_back(self, sequence: Sequence) -> None:
        """Add a request that was preempted, in its old place."""
        insort(self._returned, sequence, key=_number)
        self.tokens += sequence.context_len

    def remove(self, sequence: Sequence) -> None:
        """Remove a request, wherever it stands."""
        if self._fresh.pop(sequence.number, None) is None:
            self._returned.remove(sequence)
        self.tokens -= sequence.context_len


class WaitingQueue(Line):
    """All waiting requests, and for each user the line of that user's own."""

    __slots__ = ("by_user",)

    def __init__(self) -> None:
        super().__init__()
        self.by_user: dict[str, Line] = {}

    def __iter__(self) -> Iterator[Sequence]:
        fresh = next(iter(self._fresh), None)
        if not self._returned or fresh is None or self._returned[-1].number < fresh:
            return super().__iter__()
        # Of two users, one's request that was put back may be younger than one's that is fresh.
        return merge(self._returned, self._fresh.values(), key=_number)

    def append(self, sequence: Sequence) -> None:
        """Add a request that was just submitted."""
        super().append(sequence)
        line = self.by_user.get(sequence.user_id)
        if line is None:
            line = self.by_user[sequence.user_id] = Line()
        line.append(sequence)

    def put_back(self, sequence: Sequence) -> None:
        """Add a request that was preempted, in its old place."""
        super().put_back(sequence)
        self.by_user.setdefault(sequence.user_id, Line()).put_back(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Remove a request, wherever it stands; a user with none left is forgotten."""
        super().remove(sequence)
        line = self.by_user[sequence.user_id]
        line.remove(sequence)
        if not line:
            del self.by_user[sequence.user_id]

    def advance(self, sequence: Sequence, max_passes: int) -> None:
        """Let a request that was just submitted pass those of its user that it may (rule 5).

        From the end of the line forward it takes the place of each that is less urgent,
        was passed fewer than `max_passes` times, and is not about to be admitted by a
        batch that is out. Those move back by one place. As nobody is passed more
        often, the cost is O(`max_passes`) a request, amortised.
        """
        line = self.by_user[sequence.user_id]._fresh
        urgency = sequence.priority
        ahead = reversed(line.values())
        next(ahead)  # itself
        passable: list[Sequence] = []
        for other in ahead:
            if not (other.priority < urgency and other.passed < max_passes and not other.blocks):
                break
            passable.append(other)
        for other in passable:
            sequence.number, other.number = other.number, sequence.number
            other.passed += 1
            sequence.passes += 1
            line[other.number] = self._fresh[other.number] = other
        line[sequence.number] = self._fresh[sequence.number] = sequence

    def expect(self, user_ids: Iterable[str]) -> None:
        """Order the users that are about to join: they become active in this order."""
        for user_id in user_ids:
            self.by_user[user_id] = Line()
