"""Tests for schedulers, ours or yours: `pip install 'batchproof[testing]'`.

- `SchedulerContract`: a stateful test to derive from, for a scheduler behind a
  `SchedulerAdapter` whose `step` returns a `StepReport`.
- `assert_conforms`: a recording of a run, or a behavior, follows the specification.
- `limits`, `submissions`, `workloads`: Hypothesis strategies.
"""

from batchproof.sched.contract.adapter import NextToken, SchedulerAdapter, StepReport
from batchproof.sched.contract.conforms import Behavior, assert_conforms
from batchproof.sched.contract.machine import SchedulerContract
from batchproof.sched.contract.strategies import Submission, limits, submissions, workloads

__all__ = [
    "Behavior",
    "NextToken",
    "SchedulerAdapter",
    "SchedulerContract",
    "StepReport",
    "Submission",
    "assert_conforms",
    "limits",
    "submissions",
    "workloads",
]
