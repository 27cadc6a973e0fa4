"""Who was served least: counts of service over users' weights, in integers."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

from batchproof.sched.policy.protocol import Candidate, View

UNIT: Final = 720_720
"""One token or block, as service is counted: whole weights up to 16 divide it without a rest."""

Counts: TypeAlias = tuple[tuple[str, int], ...]
"""User -> count, as a policy's note holds it."""


class Debts:
    """What users were served beyond the least served of those who waited, at most `debt_max`.

    So a user that waits is served before those who had more. One that comes, or
    comes back, begins with the least of those who wait, so that coming back gains
    nothing on them. Where nobody waits, what is served is taken from nobody, and is
    not counted.
    """

    __slots__ = ("_debts", "debt_max")

    def __init__(self, debt_max: int = 0) -> None:
        self.debt_max = debt_max
        self._debts: dict[str, int] = {}

    def of_waiting(self, view: View) -> dict[str, int]:
        """Return the debts of those who wait."""
        debts = self._debts
        known = [debts[user] for user in view.waiting_by_user if user in debts]
        least = min(known, default=0)
        return {user: debts.get(user, least) for user in view.waiting_by_user}

    def add(self, waiting: Counts, charges: Counts) -> None:
        """Add what a tick served users; `waiting` are the debts of those who waited then."""
        if not waiting:
            return
        least = min(debt for _, debt in waiting)
        debts = {user: max(debt - least, 0) for user, debt in (*self._debts.items(), *waiting)}
        for user, charge in charges:
            debts[user] = debts.get(user, 0) + charge
        self._debts = {user: min(debt, self.debt_max) for user, debt in debts.items()}

    def left(self, user_id: str) -> None:
        """Forget a user."""
        self._debts.pop(user_id, None)

    def clear(self) -> None:
        """Forget everybody."""
        self._debts.clear()

    def state(self) -> Hashable:
        """Return the debts of those who are known."""
        return tuple(sorted(self._debts.items()))

    def restore(self, state: Any) -> None:
        """Become as a `Debts` was whose `state` returned this."""
        self._debts = dict(state)


def least_served(
    view: View, counts: Mapping[str, int], charge: Callable[[Candidate], int]
) -> Iterator[Candidate]:
    """Yield waiting requests: each time the oldest of the user with the smallest count.

    `charge` is what an admission adds to it. Of equal counts, which are common,
    the user that holds less memory is next.
    """
    heap: list[tuple[int, int, int, Candidate, Iterator[Candidate]]] = []

    def push(count: int, held: int, line: Iterator[Candidate]) -> None:
        oldest = next(line, None)
        if oldest is not None:
            heappush(heap, (count, held, oldest.number, oldest, line))

    for user, waiting in view.waiting_by_user.items():
        push(counts[user], view.users[user].held, iter(waiting))
    while heap:
        count, held, _, candidate, line = heappop(heap)
        yield candidate
        push(count + charge(candidate), held + view.blocks_to_admit(candidate), line)


def summed(charges: Iterable[tuple[str, int]]) -> Counts:
    """Return what each user is charged in all."""
    sums: dict[str, int] = {}
    for user, charge in charges:
        sums[user] = sums.get(user, 0) + charge
    return tuple(sums.items())
