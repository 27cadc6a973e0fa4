"""What makes a request acceptable, in the order in which it is asked (rule 4)."""

from array import array

from batchproof.sched.backpressure import Backpressure
from batchproof.sched.errors import DuplicateRequestError, InvalidRequestError
from batchproof.sched.expiry import check_times
from batchproof.sched.request import Request, checked_prompt
from batchproof.sched.roster import Roster
from batchproof.spec.lifecycle import DONE


def accepted_prompt(
    request: Request, roster: Roster, backpressure: Backpressure, now: float
) -> "array[int]":
    """Return the prompt of a request that may be accepted now.

    Raises `InvalidRequestError`, `InfeasibleRequestError`, `DuplicateRequestError`
    or `QueueFullError`.
    """
    if not isinstance(request, Request):
        raise InvalidRequestError(f"submit: {request!r:.100} is not a batchproof.Request")
    prompt = checked_prompt(request, roster.limits)
    if request.deadline_s is not None or request.max_queue_time_s is not None:
        check_times(request, now)
    if request.request_id in roster.live:
        raise DuplicateRequestError(
            f"request {request.request_id!r}: a live request has this id; "
            "choose another, or wait until that one is done"
        )
    if request.phase not in (None, DONE):
        raise DuplicateRequestError(
            f"request {request.request_id!r}: this object is live in another scheduler "
            f"(phase {request.phase!r}); submit a new Request"
        )
    if backpressure:
        backpressure.check((request,), len(prompt))
    return prompt
