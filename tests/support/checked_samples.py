"""Checks with violations, for the tests of the counterexample page."""

from functools import cache

from batchproof.sched.report.counterexample_page import Checked
from batchproof.spec.checker import check
from batchproof.spec.counterexample import Subject
from batchproof.spec.mini_batch import DONE
from batchproof.spec.property import Property
from batchproof.spec.registry import load

NOBODY_DONE = Property(
    "nobody-done",
    "no request is <ever> done",
    "false on purpose",
    "invariant",
    lambda state: all(request.status != DONE for request in state.requests),
)
NEVER_BUSY = Property(
    "never-busy",
    "the system comes to rest while one request has not been submitted",
    "false on purpose",
    "liveness",
    lambda state: False,
)


@cache
def violated_checks() -> tuple[Checked, ...]:
    """Return a check of the reference model with two false claims and a true one."""
    family = load("mini-batch")
    bound = family.bounds["C1"]
    model = family.build(bound, None)
    properties = (NOBODY_DONE, NEVER_BUSY, *family.claims(bound, None)[:2])
    return (Checked(Subject("mini-batch", "C1", None), check(model, properties), model),)
