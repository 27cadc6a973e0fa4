"""Whose turn it is: first come, first served (rule 5), and what policies promise beyond it."""

from typing import Final

from batchproof.invariants.claim import FIRST_COME_FIRST_SERVED, Claim
from batchproof.spec.actions import Event, Submit, Tick
from batchproof.spec.state import State, System


def order_is_of_places(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether those who stay keep their order, and a place more is behind all others.

    That place is the submitted request's user's; in which of the user's places it
    stands, the next two claims say.
    """
    remain = {live.request for live in after.live}
    expected = [live.request for live in before.live if live.request in remain]
    found = [live.request for live in after.live]
    if not isinstance(event, Submit):
        return found == expected
    owners = [system.requests[request].user for request in (*expected, event.request)]
    if [system.requests[request].user for request in found] != owners:
        return False
    others = [request for request in found if request != event.request]
    return all(_own(system, others, user) == _own(system, expected, user) for user in set(owners))


def _own(system: System, requests: list[int], user: int) -> list[int]:
    return [request for request in requests if system.requests[request].user == user]


def passed_for_cause(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether who is passed is less urgent, was never admitted, and may be passed once more.

    Whom nobody passes was passed as often as before; an admission ends it for good.
    """
    counts = {live.request: live.passed for live in before.live}
    behind = _behind(system, event, after)
    admitted = event.work.admit if isinstance(event, Tick) else ()
    for live in after.live:
        was = counts.get(live.request, 0)
        if live.request in behind:
            assert isinstance(event, Submit)
            if not _is_passable(system, event.request, live.request, was):
                return False
            was += 1
        elif live.request in admitted:
            was = system.max_passes
        if live.passed != was:
            return False
    return True


def urgent_pass(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether who is submitted stands right behind one of its user's that it may not pass."""
    if not isinstance(event, Submit):
        return True
    ahead = [live for live in after.live if live.request in _before(system, event, after)]
    return not ahead or not _is_passable(system, event.request, ahead[-1].request, ahead[-1].passed)


def _is_passable(system: System, request: int, other: int, passed: int) -> bool:
    urgency = system.requests[request].priority - system.requests[other].priority
    return urgency > 0 and passed < system.max_passes


def _before(system: System, event: Submit, after: State) -> list[int]:
    """Return those of the submitted request's user who stand before it, oldest first."""
    line = [live.request for live in after.live if _same_user(system, live.request, event.request)]
    return line[: line.index(event.request)] if event.request in line else []


def _behind(system: System, event: Event, after: State) -> list[int]:
    """Return those of its user who stand behind a request that was just submitted."""
    if not isinstance(event, Submit):
        return []
    line = [live.request for live in after.live if _same_user(system, live.request, event.request)]
    return line[line.index(event.request) + 1 :] if event.request in line else []


def _same_user(system: System, one: int, other: int) -> bool:
    return system.requests[one].user == system.requests[other].user


def nobody_passed_within_user(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether nobody is admitted while an older request of the same user waits."""
    return not any(_same_user(system, *pair) for pair in _passed(before, event))


def nobody_passed(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether nobody is admitted while an older request waits."""
    return not _passed(before, event)


def _passed(before: State, event: Event) -> list[tuple[int, int]]:
    """Return the pairs of an older request left waiting, and a younger one that a tick admits."""
    if not isinstance(event, Tick) or not event.work.admit:
        return []
    admit, preempt = event.work.admit, event.work.preempt
    pairs: list[tuple[int, int]] = []
    left_waiting: list[int] = []
    for live in before.live:
        if live.request in admit:
            pairs += [(older, live.request) for older in left_waiting]
        elif live.phase == "waiting" or live.request in preempt:
            left_waiting.append(live.request)
    return pairs


def least_recent_first(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether the decodes that are fed are those scheduled least recently."""
    if not isinstance(event, Tick) or before.history is None:
        return True
    fed = dict(event.work.feed)
    chosen = [i in fed for i in before.history.decoding if i not in event.work.preempt]
    return chosen == sorted(chosen, reverse=True)


CLAIMS: Final = (
    Claim(
        "order-is-of-places",
        "live requests keep their order, through preemptions too; each submission is one place "
        "more at the end, of its user, who has all others in their order",
        "rule 5",
        "step",
        order_is_of_places,
    ),
    Claim(
        "passed-for-cause",
        "nobody is passed by an equal or a less urgent request, more than max_passes times, "
        "or once admitted; each time is counted",
        "rule 5",
        "step",
        passed_for_cause,
    ),
    Claim(
        "urgent-pass",
        "a request passes those of its user's that it may pass",
        "rule 5",
        "step",
        urgent_pass,
    ),
    Claim(
        "fcfs-within-user",
        "within a user, no request is admitted while an older one waits",
        "rule 5",
        "step",
        nobody_passed_within_user,
    ),
    Claim(
        "fcfs-over-all",
        "no request is admitted while an older one waits, whoever's it is",
        "rule 5: between users, the policy decides",
        "step",
        nobody_passed,
        promised_by=FIRST_COME_FIRST_SERVED,
    ),
    Claim(
        "least-recent-first",
        "when not all decodes are scheduled, those scheduled least recently are",
        "rule 6",
        "step",
        least_recent_first,
        promised_by=FIRST_COME_FIRST_SERVED,
    ),
)
