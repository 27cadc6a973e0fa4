"""Stall-free batching: Sarathi-Serve's Algorithm 3 with chunks (Agrawal et al., OSDI 2024).

Decodes first, so that none ever waits for a prompt; then the prefills under
way; then admissions, first come first served, each with its first chunk.
"""

from batchproof.sched.config import Admission
from batchproof.sched.policy.compose import admissions, chunks, decodes_first, without
from batchproof.sched.policy.protocol import Plan, View


class StallFree:
    """First come, first served over all users; the youngest is preempted."""

    name = "stall-free"

    def __init__(self, admission: Admission = "max_utilization") -> None:
        self.admission = admission

    def plan(self, view: View) -> Plan:
        """Fill the batch with decodes, then chunks under way, then admissions."""
        limits = view.limits
        decode, preempt, free = decodes_first(view)
        budget = limits.token_budget - len(decode)
        seats = limits.max_batch_size - len(decode)
        prefill = chunks(view, without(view.prefilling, preempt), budget, seats)
        if preempt:
            # Those just preempted are next in order, and no longer fit: nobody may pass them.
            return Plan(preempt=preempt, decode=decode, prefill=prefill)

        budget -= sum(tokens for _, tokens in prefill)
        seats -= len(prefill)
        admit, first_chunks = admissions(view, view.waiting, free, budget, seats)
        return Plan(decode=decode, admit=admit, prefill=prefill + first_chunks)
