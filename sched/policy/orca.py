"""Orca: iteration-level scheduling with reserved memory (Yu et al., OSDI 2022, Algorithm 1).

Requests join and leave the batch between any two iterations, in order of
arrival, and each holds the memory of its longest possible output from the
start. What differs here: prompts are fed in chunks, as rule 6 has it, where
Orca feeds them whole.
"""

from batchproof.sched.config import Admission
from batchproof.sched.policy.compose import running_first
from batchproof.sched.policy.protocol import Plan, View


class Orca:
    """First come, first served over all users; the peak is reserved, nobody is preempted."""

    name = "orca"

    def __init__(self, admission: Admission = "guaranteed_no_evict") -> None:
        self.admission = admission

    def plan(self, view: View) -> Plan:
        """Select in order of arrival, whatever phase a request is in."""
        return running_first(view)
