"""The waiting requests, as the monitor accounts for them: by user, oldest first."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from batchproof.sched.config import Limits
from batchproof.sched.monitor_facts import Account


class WaitingAccounts:
    """The accounts of the waiting requests of each user, in order of place; and their sums."""

    def __init__(self, limits: Limits) -> None:
        self._bounds = limits.queue_bounds
        self._max_passes = limits.max_passes
        self._lines: dict[str, list[Account]] = {}
        self._tokens: dict[str, int] = {}
        """User -> known context of its waiting requests, in tokens."""
        self._all_requests = self._all_tokens = 0

    def add(self, account: Account) -> None:
        """Take a request that waits, in its place."""
        insort(self._lines.setdefault(account.user, []), account, key=_number)
        self._count(account, 1)

    def remove(self, account: Account) -> None:
        """Forget a request that no longer waits, if it is known to."""
        line = self._lines.get(account.user, [])
        index = bisect_left(line, account.number, key=_number)
        if index == len(line) or line[index].number != account.number:
            return
        del line[index]
        self._count(account, -1)
        if not line:
            del self._lines[account.user], self._tokens[account.user]

    def is_first(self, account: Account) -> bool:
        """Say whether nobody of the account's user has waited for longer."""
        line = self._lines.get(account.user)
        return not line or line[0].number >= account.number

    def advance(self, account: Account, passes: int) -> Iterator[tuple[Account, str | None]]:
        """Take a request just submitted ahead of the last `passes` of its user.

        Yield a new account of each that is passed, for others may hold the old one, and
        what is wrong with passing it, None if nothing is. That it could have passed more
        is not held against it: they may be about to be admitted.
        """
        line = self._lines[account.user]
        if passes >= len(line):
            yield account, f"passes {passes} of its user, {len(line) - 1} wait"
            return
        for place in range(len(line) - 2, len(line) - 2 - passes, -1):
            other = line[place].copy()
            wrong = None
            if other.priority >= account.priority:
                wrong = f"passes one of priority {other.priority}, its own is {account.priority}"
            elif other.passed >= self._max_passes:
                wrong = (
                    f"passes one that was passed {other.passed} times, {self._max_passes} may be"
                )
            other.number, account.number = account.number, other.number
            other.passed += 1
            line[place : place + 2] = account, other
            yield other, wrong

    def has_room(self, user: str, prompt: int) -> bool:
        """Say whether no bound of the queue keeps one more request out."""
        would_be = {
            "max_waiting_requests": self._all_requests + 1,
            "max_waiting_tokens": self._all_tokens + prompt,
            "max_waiting_requests_per_user": len(self._lines.get(user, ())) + 1,
            "max_waiting_tokens_per_user": self._tokens.get(user, 0) + prompt,
        }
        return all(would_be[name] <= most for name, most in self._bounds.items())

    def _count(self, account: Account, sign: int) -> None:
        tokens = sign * (account.prompt + account.generated)
        self._tokens[account.user] = self._tokens.get(account.user, 0) + tokens
        self._all_tokens += tokens
        self._all_requests += sign


def _number(account: Account) -> int:
    return account.number
