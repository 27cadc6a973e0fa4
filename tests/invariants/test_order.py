"""What the claims about whose turn it is allow, and what they object to."""

from dataclasses import replace
from typing import Any

import pytest
from invariants.examples import SYSTEM, decoding, prefilling, says, state, tick, told, waiting

from batchproof.spec.actions import Cancel, Submit
from batchproof.spec.state import History, Live

LINE = state(waiting(0), waiting(1), waiting(2))
"""The first two are of one user."""
RUNNING = state(decoding(0, 1, 2), decoding(1, 1, 1), history=History(decoding=(1, 0)))
"""It is the turn of the younger one."""


def admits(*admit: int, preempt: tuple[int, ...] = ()):
    return tick(admit=admit, preempt=preempt)


HOLDS = {
    "order-is-of-places": {
        "who is submitted comes last": (
            state(waiting(1)),
            Submit(0),
            state(waiting(1), waiting(0)),
        ),
        "who is submitted takes its user's first place, another user's stays": (
            state(waiting(1), waiting(2)),
            Submit(0),
            state(waiting(0), waiting(2), waiting(1)),
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
    "order-is-of-places": {
        "another user's place is taken": (
            state(waiting(2)),
            Submit(0),
            state(waiting(0), waiting(2)),
        ),
        "two of its user change places": (
            state(waiting(0), waiting(1)),
            Submit(2),
            state(waiting(1), waiting(0), waiting(2)),
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


URGENT = replace(
    SYSTEM,
    requests=(
        *SYSTEM.requests[:2],
        SYSTEM.requests[2],
        SYSTEM.requests[0]._replace(priority=1),
        SYSTEM.requests[0]._replace(priority=1),
    ),
    max_passes=2,
)
"""User 0's requests 3 and 4 are more urgent than its 0 and 1."""


def passed(live: Live, times: int) -> Live:
    return live._replace(passed=times)


PRIORITIES: dict[str, tuple[str, Any, Any, Any, bool]] = {
    "a less urgent one": (
        "passed-for-cause",
        state(waiting(0)),
        Submit(3),
        state(waiting(3), passed(waiting(0), 1)),
        True,
    ),
    "once too often": (
        "passed-for-cause",
        state(passed(waiting(0), 2)),
        Submit(3),
        state(waiting(3), passed(waiting(0), 3)),
        False,
    ),
    "an equal": (
        "passed-for-cause",
        state(waiting(3)),
        Submit(4),
        state(waiting(4), passed(waiting(3), 1)),
        False,
    ),
    "one without priorities": (
        "passed-for-cause",
        state(waiting(1)),
        Submit(0),
        state(waiting(0), passed(waiting(1), 1)),
        False,
    ),
    "without a mark": (
        "passed-for-cause",
        state(waiting(0)),
        Submit(3),
        state(waiting(3), waiting(0)),
        False,
    ),
    "a mark without a pass": (
        "passed-for-cause",
        state(waiting(2)),
        Submit(3),
        state(passed(waiting(2), 1), waiting(3)),
        False,
    ),
    "an admission ends it": (
        "passed-for-cause",
        state(waiting(0)),
        tick({0: 1}, admit=(0,)),
        state(passed(prefilling(0, 1, 2), 2)),
        True,
    ),
    "an admission leaves it open": (
        "passed-for-cause",
        state(waiting(0)),
        tick({0: 1}, admit=(0,)),
        state(prefilling(0, 1, 2)),
        False,
    ),
    "a preempted one": (
        "passed-for-cause",
        state(passed(waiting(0, 1), 2)),
        Submit(3),
        state(waiting(3), passed(waiting(0, 1), 3)),
        False,
    ),
    "behind one that may be passed": (
        "urgent-pass",
        state(waiting(0)),
        Submit(3),
        state(waiting(0), waiting(3)),
        False,
    ),
    "behind one that was passed enough": (
        "urgent-pass",
        state(waiting(1), passed(waiting(0), 2)),
        Submit(3),
        state(waiting(1), passed(waiting(0), 2), waiting(3)),
        True,
    ),
    "behind another user's": (
        "urgent-pass",
        state(waiting(2)),
        Submit(3),
        state(waiting(2), waiting(3)),
        True,
    ),
    "once more": (
        "passed-for-cause",
        state(passed(waiting(0), 1)),
        Submit(3),
        state(waiting(3), passed(waiting(0), 2)),
        True,
    ),
    "another user's stays between": (
        "passed-for-cause",
        state(waiting(2), waiting(0)),
        Submit(3),
        state(waiting(2), waiting(3), passed(waiting(0), 1)),
        True,
    ),
    "another user's is behind, and not passed": (
        "passed-for-cause",
        state(waiting(0), waiting(2)),
        Submit(3),
        state(waiting(3), waiting(2), passed(waiting(0), 1)),
        True,
    ),
    "behind one that it may not pass, ahead of one that it may": (
        "passed-for-cause",
        state(passed(waiting(1), 2), waiting(0)),
        Submit(3),
        state(passed(waiting(1), 2), waiting(3), passed(waiting(0), 1)),
        True,
    ),
    "who is passed keeps the mark": (
        "passed-for-cause",
        state(passed(waiting(0), 1), waiting(2)),
        Cancel(2),
        state(passed(waiting(0), 1)),
        True,
    ),
    "who is submitted is not there: another claim's business": (
        "passed-for-cause",
        state(waiting(0)),
        Submit(3),
        state(waiting(0)),
        True,
    ),
    "nor whom it passes": ("urgent-pass", state(waiting(0)), Submit(3), state(waiting(0)), True),
    "two of one user change places": (
        "order-is-of-places",
        state(waiting(0), waiting(1)),
        Submit(3),
        state(waiting(1), waiting(0), waiting(3)),
        False,
    ),
    "no submission": ("urgent-pass", state(waiting(0)), Cancel(0), state(), True),
}


@pytest.mark.parametrize(
    ("claim", "before", "event", "after", "expected"), PRIORITIES.values(), ids=PRIORITIES
)
def test_whom_a_submission_passes(claim, before, event, after, expected) -> None:
    assert says(claim, before, event, after, system=URGENT) is expected
