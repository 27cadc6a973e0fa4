"""What the three rings say of the package that is imported: `python -m faults.shipped_trial`.

It is run in a process of its own, on a copy of the package with a fault.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from support.core_checks import assert_invariants
from support.sizes import TURNS

import batchproof
from batchproof import Scheduler
from batchproof.sched.monitor_facts import ViolationError
from batchproof.sched.policy import POLICIES
from batchproof.sched.policy.protocol import stateful
from batchproof.sched.shipped_family import bound_of
from batchproof.sched.soak_case import Case
from batchproof.sched.soak_run import Run, SoakFailure
from batchproof.spec.checker import check
from batchproof.spec.machine import CheckError
from batchproof.spec.registry import load
from batchproof.spec.search import Limits

SEED, CASES = 4, 42
"""The runs of rings two and three: the same on every fault."""
BROKEN_WITHOUT_A_FAULT = {
    "prefill-first": (
        "bounded-time-between-tokens",
        "can-preempt",
        "can-fill-pool",
        "can-recompute",
    )
}
"""Policy -> what does not hold of it at the bound `turns` as it ships."""
MAX_STATES = 3_000
"""A fault may make states without end; what it breaks is broken long before that."""


def ring_one(policy: str, bound: str) -> str | None:
    """Return the first property that the shipped scheduler, checked exhaustively, violates."""
    family = load("scheduler")
    size = bound_of(bound, TURNS) if bound == "turns" else family.bounds[bound]
    known = BROKEN_WITHOUT_A_FAULT.get(policy, ())
    try:
        report = check(
            family.build(size, policy),
            [claim for claim in family.claims(size, policy) if claim.name not in known],
            recover=family.recoverable,
            limits=Limits(max_states=MAX_STATES),
        )
    except CheckError as error:
        cause = error.__cause__
        return f"raises {type(cause or error).__name__}"
    broken = [v for v in report.verdicts if v.outcome == "violated"]
    # A state that cannot be rebuilt has no next one either: that is not what is wrong with it.
    broken.sort(key=lambda v: (v.depth, v.prop.name == "no-deadlock"))
    return broken[0].prop.name if broken else None


def ring_two() -> str | None:
    """Return what the judge or the core checks say of a few random runs."""

    def found(run: Run) -> str | None:
        try:
            run.to_the_end()
        except SoakFailure as failure:
            return f"judge: {failure.what}"
        except AssertionError as error:
            return f"core checks: {_assertion_of(error)}"
        except Exception as error:
            return f"raises {type(error).__name__}"
        return None

    return _first(lambda case: found(Run(case, monitor=False, check=_hold)))


def ring_three() -> str | None:
    """Return the first property that the monitor finds violated in the same runs."""

    def found(run: Run) -> str | None:
        try:
            run.to_the_end()
        except ViolationError as error:
            return error.violation.property
        except Exception:
            return None  # the scheduler itself gave up: not the monitor's doing
        return None

    return _first(lambda case: found(Run(case, monitor=True, judge=False)))


def _first(found: Callable[[Case], str | None]) -> str | None:
    cases = (Case.draw(SEED, number) for number in range(CASES))
    policies = tuple(POLICIES)
    return next(
        (
            what
            for number, case in enumerate(cases)
            if (what := found(replace(case, policy=policies[number % len(policies)])))
        ),
        None,
    )


def _hold(scheduler: Scheduler) -> None:
    assert_invariants(scheduler)
    if scheduler.policy.name == "vtc":
        counters_are_lifted(scheduler)


def counters_are_lifted(scheduler: Scheduler) -> None:
    """Assert that no waiting user's counter is below the floor: idleness earns nothing."""
    policy = stateful(scheduler.policy)
    assert policy is not None
    state: Any = policy.state()
    assert all(above_floor >= 0 for _, above_floor, waits in state if waits)


def _assertion_of(error: AssertionError) -> str:
    """Return the name of the check that an assertion is in."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return "" if traceback is None else traceback.tb_frame.f_code.co_name.strip("_")


if __name__ == "__main__":
    rings = {"1": lambda: ring_one(*sys.argv[2:]), "2": ring_two, "3": ring_three}
    said = {ring: rings[ring]() for ring in sys.argv[1]}
    print(json.dumps({"package": batchproof.__file__, **said}))
