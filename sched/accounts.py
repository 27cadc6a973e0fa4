"""What the scheduler keeps of each user with live requests, and in what order users stand.

Everything is updated where a request moves, at O(1) a change but for the two
sorted lists, which are brought up to date for the users that changed, and only
when a policy reads them. A user whose last request has ended is forgotten.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final, TypeAlias

from batchproof.sched.request import Sequence
from batchproof.sched.waiting import Line, WaitingQueue
from batchproof.sched.weights import Weight, per_weight

REQUEST_LOAD: Final = 8
"""What each live request adds to its user's load besides its blocks."""
USAGE_STEPS: Final = 4
"""Users' memory is compared in steps of the whole memory over this, or of one block."""

_NOBODY_WAITS: Final = Line()

_Key: TypeAlias = tuple[Weight, int]
"""What users are ordered by: an exact number, and one that no other user has."""


class Account:
    """One user's live requests: a `policy.UserView`."""

    __slots__ = (
        "arrival",
        "held",
        "live",
        "load",
        "outstanding",
        "residents",
        "turn",
        "user_id",
        "waiting",
        "weight",
    )

    def __init__(self, user_id: str, arrival: int, turn: int, weight: Weight) -> None:
        self.user_id = user_id
        self.weight = weight
        self.arrival = arrival
        """Its place in the order in which users became active."""
        self.turn = turn
        """How many admissions there had been at its own last one, or when it became active."""
        self.live = 0
        self.held = 0
        self.outstanding = 0
        self.load = 0
        """Blocks outstanding, and `REQUEST_LOAD` for each live request."""
        self.residents: list[Sequence] = []
        self.waiting = _NOBODY_WAITS


class Accounts(Mapping[str, Account]):
    """The accounts of all active users, in order of arrival: the `users` of a `policy.View`."""

    def __init__(self, waiting: WaitingQueue, max_kv_blocks: int) -> None:
        self._waiting = waiting
        self._accounts: dict[str, Account] = {}
        self.weights: dict[str, Weight] = {}
        """The weights that were set, of active users and others; 1 is not kept."""
        self.weight_sum: Weight = 0
        """Of the active users."""
        self.weights_differ = False
        """Whether active users have more than one weight."""
        self._active_weights: Counter[Weight] = Counter()
        self._arrivals = count()
        self._admissions = 0
        self._step = max(max_kv_blocks // USAGE_STEPS, 1)
        # Whose places in the two orders are out of date: dicts as ordered sets.
        self._stale_usage: dict[Account, None] = {}
        self._stale_load: dict[Account, None] = {}
        self._by_usage = _Order(self._usage)
        self._by_load = _Order(_load)

    def __getitem__(self, user_id: str) -> Account:
        return self._accounts[user_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._accounts)

    def __len__(self) -> int:
        return len(self._accounts)

    @property
    def waiting_by_usage(self) -> Iterator[Account]:
        """Users with a waiting request: least memory held first, then the oldest waiting.

        Memory is compared in steps, each a quarter of all.
        """
        return _refresh(self._by_usage, self._stale_usage).ascending()

    @property
    def by_load(self) -> Iterator[Account]:
        """All active users, lightest per weight first, then in order of arrival."""
        return _refresh(self._by_load, self._stale_load).ascending()

    @property
    def heaviest(self) -> Weight:
        """The largest load per weight of any active user; 0 while there is none."""
        return _refresh(self._by_load, self._stale_load).largest()

    def arrive(self, user_id: str) -> Account:
        """Open the account of a user who becomes active."""
        weight = self.weights.get(user_id, 1)
        account = Account(user_id, next(self._arrivals), self._admissions, weight)
        self._accounts[user_id] = account
        self._count_weight(weight, 1)
        return account

    def set_weight(self, user_id: str, weight: Weight) -> None:
        """Give a user a weight, active or not, for good; 1 forgets it."""
        if weight == 1:
            self.weights.pop(user_id, None)
        else:
            self.weights[user_id] = weight
        account = self._accounts.get(user_id)
        if account is not None:
            self._count_weight(account.weight, -1)
            self._count_weight(weight, 1)
            account.weight = weight
            self._stale_load[account] = None

    def state(self) -> dict[str, Any]:
        """Return what does not follow from the live requests: orders, as plain data."""
        turns = [[user_id, account.turn] for user_id, account in self._accounts.items()]
        return {"admissions": self._admissions, "turns": turns}

    def restore_turns(self, state: Mapping[str, Any]) -> None:
        """Put the orders back, once the users have arrived in theirs and their requests are in."""
        self._admissions = state["admissions"]
        for user_id, turn in state["turns"]:
            self._accounts[user_id].turn = turn

    def submitted(self, sequence: Sequence) -> None:
        """Count a request that has just joined the waiting ones."""
        user_id = sequence.user_id
        account = self._accounts.get(user_id) or self.arrive(user_id)
        account.live += 1
        account.outstanding += sequence.admission_blocks
        account.load += sequence.admission_blocks + REQUEST_LOAD
        account.waiting = self._waiting.by_user[user_id]
        self._touch(account)

    def admitted(self, sequence: Sequence) -> None:
        """Count the blocks of a request that has just left the waiting ones."""
        account = self._accounts[sequence.user_id]
        blocks = len(sequence.blocks)
        account.held += blocks
        account.outstanding += blocks - sequence.admission_blocks
        account.load += blocks - sequence.admission_blocks
        self._admissions += 1
        account.turn = self._admissions
        insort(account.residents, sequence, key=_number)
        self._touch(account)

    def grown(self, sequence: Sequence) -> None:
        """Count the one block that a decode has just taken."""
        account = self._accounts[sequence.user_id]
        account.held += 1
        account.outstanding += 1
        account.load += 1
        self._stale_load[account] = None
        if account.held % self._step == 0:
            self._stale_usage[account] = None

    def preempted(self, sequence: Sequence, blocks: int) -> None:
        """Count a request that gave up `blocks` and is back among the waiting ones."""
        account = self._accounts[sequence.user_id]
        account.held -= blocks
        account.outstanding += sequence.admission_blocks - blocks
        account.load += sequence.admission_blocks - blocks
        account.waiting = self._waiting.by_user[sequence.user_id]
        _remove(account.residents, sequence)
        self._touch(account)

    def ended(self, sequence: Sequence) -> bool:
        """Count a request that ends, its blocks still its own; tell whether its user has left."""
        account = self._accounts[sequence.user_id]
        blocks = len(sequence.blocks)
        if blocks:
            account.held -= blocks
            _remove(account.residents, sequence)
        else:
            blocks = sequence.admission_blocks
        account.live -= 1
        account.outstanding -= blocks
        account.load -= blocks + REQUEST_LOAD
        self._touch(account)
        if account.live:
            return False
        del self._accounts[sequence.user_id]
        del self._stale_usage[account], self._stale_load[account]
        self._by_usage.place(account, gone=True)
        self._by_load.place(account, gone=True)
        self._count_weight(account.weight, -1)
        return True

    def _usage(self, account: Account) -> _Key | None:
        oldest = next(iter(account.waiting), None)
        return None if oldest is None else (account.held // self._step, oldest.number)

    def _count_weight(self, weight: Weight, users: int) -> None:
        self.weight_sum += users * weight
        self._active_weights[weight] += users
        if not self._active_weights[weight]:
            del self._active_weights[weight]
        self.weights_differ = len(self._active_weights) > 1

    def _touch(self, account: Account) -> None:
        self._stale_usage[account] = self._stale_load[account] = None


def _refresh(order: "_Order", stale: dict[Account, None]) -> "_Order":
    """Bring an order up to date for those that are out of place."""
    if stale:
        for account in stale:
            order.place(account)
        stale.clear()
    return order


class _Order:
    """Accounts in ascending order of a key that no other account has."""

    __slots__ = ("_key", "_keys", "_sorted")

    def __init__(self, key: Callable[[Account], _Key | None]) -> None:
        self._key = key
        self._keys: dict[Account, _Key] = {}
        self._sorted: list[tuple[Any, ...]] = []
        """Keys, each followed by its account."""

    def place(self, account: Account, *, gone: bool = False) -> None:
        """Put an account where its key belongs now, or nowhere if it has none or is gone."""
        key = None if gone else self._key(account)
        old = self._keys.get(account)
        if key == old:
            return
        if old is not None:
            del self._sorted[bisect_left(self._sorted, old)]
            del self._keys[account]
        if key is not None:
            insort(self._sorted, (*key, account))
            self._keys[account] = key

    def ascending(self) -> Iterator[Account]:
        """Yield the accounts, the smallest key first."""
        return (entry[-1] for entry in self._sorted)

    def largest(self) -> Weight:
        """Return the first number of the largest key, or 0."""
        largest: Weight = self._sorted[-1][0] if self._sorted else 0
        return largest


def _load(account: Account) -> _Key:
    weight = account.weight  # mostly 1, and this is done for each user whose load changes
    load = account.load if weight == 1 else per_weight(account.load, weight)
    return load, account.arrival


def _number(sequence: Sequence) -> int:
    return sequence.number


def _remove(residents: list[Sequence], sequence: Sequence) -> None:
    del residents[bisect_left(residents, sequence.number, key=_number)]
