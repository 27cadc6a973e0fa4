"""What a scheduler works out step by step, and could work out anew from what a snapshot keeps.

It is not in a snapshot, so a search that rebuilds the scheduler in every state
would never see it go wrong. `drift` compares the two.
"""

from collections.abc import Iterable

from batchproof.sched.request import Sequence
from batchproof.sched.roster import Roster

Books = dict[str, object]
"""What it is called -> what it says, comparable."""


def books(roster: Roster) -> Books:
    """Return all that is worked out step by step, in terms of request and user ids."""
    users, lines = roster.users, roster.waiting.by_user
    return {
        "waiting line": _ids(roster.waiting),
        "lines by user": {user: _ids(line) for user, line in lines.items()},
        "tokens that wait": [roster.waiting.tokens, *(line.tokens for line in lines.values())],
        "blocks to admit": [sequence.admission_blocks for sequence in roster.waiting],
        "requests that grow": {sequence.request_id for sequence in roster.growing},
        "steps to a boundary": [sequence.steps_left for sequence in roster.decoding],
        "accounts": [
            (one.user_id, one.live, one.held, one.outstanding, one.load, _ids(one.residents))
            for one in users.values()
        ],
        "users by load": [user.user_id for user in users.by_load],
        "users by usage": [user.user_id for user in users.waiting_by_usage],
    }


def drift(kept: Books, anew: Books) -> tuple[str, ...]:
    """Return what has gone wrong on the way: where the two differ."""
    return tuple(name for name, what in kept.items() if what != anew[name])


def _ids(sequences: Iterable[Sequence]) -> list[str]:
    return [sequence.request_id for sequence in sequences]
