"""Whose turn it is: first come, first served (rule 5), and what policies promise beyond it."""

from typing import Final

from batchproof.invariants.claim import FIRST_COME_FIRST_SERVED, STEADY, Claim
from batchproof.spec.actions import Event, Submit, Tick
from batchproof.spec.state import State, System


def order_is_of_submission(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether those who stay keep their order, and who is submitted comes last."""
    remain = {live.request for live in after.live}
    expected = [live.request for live in before.live if live.request in remain]
    if isinstance(event, Submit):
        expected.append(event.request)
    return [live.request for live in after.live] == expected


def nobody_passed_within_user(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether nobody is admitted while an older request of the same user waits."""
    return not any(
        system.requests[older].user == system.requests[younger].user
        for older, younger in _passed(before, event)
    )


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
        "order-is-of-submission",
        "the order of the live requests is that of first submission, through preemptions too",
        "rule 5",
        "step",
        order_is_of_submission,
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
        promised_by=STEADY,
    ),
)
