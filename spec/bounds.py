"""The sizes at which the specification is checked, and how many states each has.

They live apart from the rules. TLC on ContinuousBatching.tla, with the `.cfg`
of the same name, must find as many states as `states` says; it has none for
`priority`, for the module has no priorities.
"""

from dataclasses import dataclass
from typing import Final

from batchproof.spec.state import Limits, Request, System


@dataclass(frozen=True)
class Size:
    """One size of the specification."""

    about: str
    system: System
    states: int
    """Distinct states, counted one by one."""
    folded_states: int
    """Distinct states up to renaming interchangeable users and requests."""

    @property
    def watched(self) -> tuple[int, ...]:
        """One feasible request of each kind, for properties that name a request."""
        kinds: dict[tuple[int, ...], int] = {}
        for i, request in enumerate(self.system.requests):
            if self.system.is_feasible(i):
                kinds.setdefault(self._kind(request), i)
        return tuple(kinds.values())

    def _kind(self, request: Request) -> tuple[int, ...]:
        """Return what tells a request from others: its sizes, and those of its user's requests."""
        mine = sorted(r[1:] for r in self.system.requests if r.user == request.user)
        return (*request[1:], *(number for sizes in mine for number in sizes))


_PAIR: Final = System(
    Limits(max_kv_blocks=5, block_size=2, chunk_size=2, token_budget=4, max_batch_size=2),
    (Request(0, prompt=3, max_tokens=4), Request(0, 3, 4), Request(0, prompt=3, max_tokens=9)),
)
_GROWTH: Final = System(
    Limits(max_kv_blocks=5, block_size=2, chunk_size=2, token_budget=4, max_batch_size=3),
    (Request(0, prompt=3, max_tokens=4), Request(0, 3, 4), Request(1, 3, 4)),
)
_NO_CANCEL: Final = System(
    Limits(max_kv_blocks=4, block_size=2, chunk_size=2, token_budget=4, max_batch_size=3),
    (Request(0, prompt=3, max_tokens=4), Request(0, 3, 4), Request(1, 1, 3)),
    cancels=False,
)
_USERS: Final = System(
    Limits(max_kv_blocks=3, block_size=2, chunk_size=2, token_budget=3, max_batch_size=2),
    (Request(0, prompt=1, max_tokens=3), Request(0, 1, 3), Request(1, 1, 3), Request(1, 1, 3)),
)
_BUDGET: Final = System(
    Limits(max_kv_blocks=4, block_size=2, chunk_size=2, token_budget=2, max_batch_size=3),
    (Request(0, prompt=1, max_tokens=3), Request(0, 1, 3), Request(1, prompt=3, max_tokens=3)),
)
_RESERVE: Final = System(
    Limits(max_kv_blocks=6, block_size=2, chunk_size=2, token_budget=4, max_batch_size=4),
    (Request(0, prompt=3, max_tokens=3), Request(0, 3, 3), Request(1, 2, 2), Request(1, 2, 2)),
    "guaranteed_no_evict",
)
_PRIORITY: Final = System(
    Limits(max_kv_blocks=3, block_size=2, chunk_size=2, token_budget=3, max_batch_size=2),
    (
        Request(0, prompt=1, max_tokens=3, priority=0),
        Request(0, 1, 3, priority=1),
        Request(0, 1, 3, priority=1),
    ),
    max_passes=2,
)

SIZES: Final = {
    "pair": Size("2 requests of one user that grow, and one that is infeasible", _PAIR, 569, 285),
    "growth": Size(
        "3 requests of 2 users that grow, in memory for less than 2", _GROWTH, 16_342, 8_184
    ),
    "no-cancel": Size(
        "3 requests of 2 users in 4 blocks, and users do not cancel", _NO_CANCEL, 4_886, 2_449
    ),
    "users": Size("2 users alike, 2 requests each, 2 seats in a batch", _USERS, 50_349, 6_337),
    "budget": Size(
        "3 requests that decode at a time, with a budget of 2 tokens", _BUDGET, 4_642, 2_330
    ),
    "reserve": Size("4 requests under guaranteed_no_evict", _RESERVE, 2_545, 663),
    "priority": Size(
        "3 requests of one user, 2 of them more urgent, 2 seats in a batch", _PRIORITY, 2_294, 1_154
    ),
}
"""Name of the bound -> its size."""
