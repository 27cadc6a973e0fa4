"""Prefill first: waiting prompts run before any decode, as in vLLM's first versions.

Kwon et al., SOSP 2023. A batch is all prompts or all decodes; whenever a prompt
fits, every request that decodes waits for it. It is here to be measured
against: its time between tokens has no bound.
"""

from batchproof.sched.config import Admission
from batchproof.sched.policy.compose import chunks, decodes_first
from batchproof.sched.policy.protocol import Candidate, Plan, View


class PrefillFirst:
    """First come, first served over all users; prompts before decodes."""

    name = "prefill-first"

    def __init__(self, admission: Admission = "max_utilization") -> None:
        self.admission = admission

    def plan(self, view: View) -> Plan:
        """Prefill what is resident and what fits; decode only if there is nothing to prefill."""
        limits = view.limits
        admit = self._fitting(view)
        prefill = chunks(
            view, [*view.prefilling, *admit], limits.token_budget, limits.max_batch_size
        )
        if prefill:
            fed = {candidate.number for candidate, _ in prefill}
            return Plan(admit=[c for c in admit if c.number in fed], prefill=prefill)
        decode, preempt, _ = decodes_first(view)
        return Plan(preempt=preempt, decode=decode)

    def _fitting(self, view: View) -> list[Candidate]:
        fitting: list[Candidate] = []
        free = view.free_blocks
        seats = view.limits.max_batch_size - len(view.prefilling) - len(view.decoding)
        for candidate in view.waiting:
            free -= view.blocks_to_admit(candidate)
            if free < 0 or len(fitting) >= seats:
                break
            fitting.append(candidate)
        return fitting
