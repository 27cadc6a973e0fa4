"""Credit that users spend and that comes back slowly, in integers, without a list of users.

Refilling is O(1) for any number of users: what came back so far is one number,
and each user's entry says how much of it that user has seen.
"""

from collections.abc import Hashable
from typing import Any


class Credit:
    """Each user's credit, at most `cap`, handed out at first use from a purse of `purse`.

    A user that leaves gives back what it has. So going and coming back, under
    the same name or another, makes no credit: all there is comes from `refill`.
    """

    __slots__ = ("_entries", "_lent", "_refilled", "cap", "purse")

    def __init__(self, cap: int = 0, purse: int = 0) -> None:
        self.cap = cap
        self.purse = purse
        self._lent = 0
        """How far the purse is from full."""
        self._refilled = 0
        self._entries: dict[str, tuple[int, int]] = {}
        """Each user that has spent -> its credit, and `_refilled`, when it last spent."""

    def of(self, user: str) -> int:
        """Return what a user may spend now."""
        entry = self._entries.get(user)
        if entry is None:
            return min(self.cap, self.purse - self._lent)
        return min(self.cap, entry[0] + self._refilled - entry[1])

    def spend(self, user: str, amount: int) -> None:
        """Take `amount` from a user, or all that it has if that is less."""
        credit = self.of(user)
        if user not in self._entries:
            self._lent += credit
        self._entries[user] = (max(credit - amount, 0), self._refilled)

    def refill(self, each: int, purse: int) -> None:
        """Give `each` to every user that has spent, and `purse` to the purse."""
        self._refilled += each
        self._lent = max(self._lent - purse, 0)

    def left(self, user: str) -> None:
        """Forget a user; what it had goes back to the purse."""
        if user in self._entries:
            self._lent = max(self._lent - self.of(user), 0)
            del self._entries[user]

    def state(self) -> Hashable:
        """Return the limits, how far from full the purse is, and what users have.

        Planning sets the limits, and a plan may come to nothing: until somebody
        has spent they decide nothing, and are left out.
        """
        entries = tuple((user, self.of(user)) for user in sorted(self._entries))
        limits = (self.cap, self.purse) if entries else (0, 0)
        return *limits, self._lent, entries

    def restore(self, state: Any) -> None:
        """Become as a `Credit` was whose `state` returned this."""
        self.cap, self.purse, self._lent, entries = state
        self._refilled = 0
        self._entries = {user: (credit, 0) for user, credit in entries}
