"""What the claims about whose turn it is allow, and what they object to."""

from invariants.examples import decoding, says, state, tick, told, waiting

from batchproof.spec.actions import Cancel, Submit
from batchproof.spec.state import History

LINE = state(waiting(0), waiting(1), waiting(2))
"""The first two are of one user."""
RUNNING = state(decoding(0, 1, 2), decoding(1, 1, 1), history=History(decoding=(1, 0)))
"""It is the turn of the younger one."""


def admits(*admit: int, preempt: tuple[int, ...] = ()):
    return tick(admit=admit, preempt=preempt)


HOLDS = {
    "order-is-of-submission": {
        "who is submitted comes last": (
            state(waiting(1)),
            Submit(0),
            state(waiting(1), waiting(0)),
        ),
        "who goes leaves the others in order": (LINE, Cancel(1), state(waiting(0), waiting(2))),
        "a preempted request keeps its place": (
            state(decoding(0, 1, 2), waiting(1)),
            tick(preempt=(0,)),
            state(waiting(0, 1), waiting(1)),
        ),
    },
    "fcfs-within-user": {
        "no tick": (LINE, Cancel(0), LINE),
        "the oldest": (LINE, admits(0), LINE),
        "the oldest two": (LINE, admits(0, 1), LINE),
        "another user's oldest": (LINE, admits(2), LINE),
        "nobody": (LINE, tick(), LINE),
        "younger than a resident": (
            state(decoding(0, 1, 2), waiting(1)),
            admits(1),
            state(decoding(0, 1, 2), waiting(1)),
        ),
    },
    "fcfs-over-all": {
        "all, in order": (LINE, admits(0, 1, 2), LINE),
        "the oldest": (LINE, admits(0), LINE),
        "younger than a resident": (
            state(decoding(0, 1, 2), waiting(2)),
            admits(2),
            state(decoding(0, 1, 2), waiting(2)),
        ),
    },
    "least-recent-first": {
        "no policy, no turns": (state(decoding(0, 1, 2)), tick(), state()),
        "no tick": (RUNNING, Cancel(0), state()),
        "whose turn it is": (RUNNING, tick({1: 1}), RUNNING),
        "both": (RUNNING, tick({0: 1, 1: 1}), RUNNING),
        "neither": (RUNNING, tick(), RUNNING),
        "the other one, for the first is preempted": (RUNNING, tick({0: 1}, preempt=(1,)), RUNNING),
    },
}
BROKEN = {
    "order-is-of-submission": {
        "who is submitted comes first": (
            state(waiting(1)),
            Submit(0),
            state(waiting(0), waiting(1)),
        ),
        "two change places": (LINE, tick(), state(waiting(1), waiting(0), waiting(2))),
        "a cancelled request's follower moves back": (
            LINE,
            Cancel(0),
            state(waiting(2), waiting(1)),
        ),
    },
    "fcfs-within-user": {
        "the younger of a user": (LINE, admits(1), LINE),
        "and then another user's": (LINE, admits(1, 2), LINE),
        "younger than one that is preempted": (
            state(decoding(0, 1, 2), waiting(1)),
            admits(1, preempt=(0,)),
            state(waiting(0, 1), waiting(1)),
        ),
        "not the first that is admitted": (
            state(waiting(2), waiting(0), waiting(1)),
            admits(2, 1),
            LINE,
        ),
    },
    "fcfs-over-all": {
        "another user's, before an older one": (LINE, admits(2), LINE),
        "the younger of a user": (LINE, admits(1), LINE),
        "younger than one that is preempted": (
            state(decoding(0, 1, 2), waiting(2)),
            admits(2, preempt=(0,)),
            state(waiting(0, 1), waiting(2)),
        ),
    },
    "least-recent-first": {"out of turn": (RUNNING, tick({0: 1}), RUNNING)},
}


@told(HOLDS, BROKEN)
def test_what_is_said_of(claim, case, expected) -> None:
    assert says(claim, *case) is expected
