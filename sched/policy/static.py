"""Static batching: a batch is filled once and runs until all of it is done.

What servers did before Orca (Yu et al., OSDI 2022). It is here to be measured
against: a slot that a short request leaves stays empty until the longest ends.
"""

from batchproof.sched.config import Admission
from batchproof.sched.policy.compose import chunks, decodes_first, without
from batchproof.sched.policy.protocol import Candidate, Plan, View


class Static:
    """First come, first served over all users, a whole batch at a time."""

    name = "static"

    def __init__(self, admission: Admission = "guaranteed_no_evict") -> None:
        self.admission = admission

    def plan(self, view: View) -> Plan:
        """Go on with the batch under way; admit a new one only when it is done."""
        limits = view.limits
        if not view.decoding and not view.prefilling:
            admit = self._next_batch(view)
            return Plan(admit=admit, prefill=chunks(view, admit, limits.token_budget, len(admit)))
        decode, preempt, _ = decodes_first(view)
        budget = limits.token_budget - len(decode)
        seats = limits.max_batch_size - len(decode)
        return Plan(
            preempt, decode, prefill=chunks(view, without(view.prefilling, preempt), budget, seats)
        )

    def _next_batch(self, view: View) -> list[Candidate]:
        admit: list[Candidate] = []
        free = view.free_blocks
        for candidate in view.waiting:
            free -= view.blocks_to_admit(candidate)
            if free < 0 or len(admit) == view.limits.max_batch_size:
                break
            admit.append(candidate)
        return admit
