"""Running first, preempting the youngest: the scheduler of vLLM V1, policy "fcfs".

Source: `Scheduler.schedule` in vllm/v1/core/sched/scheduler.py. Running
requests are served in the order in which they were admitted, be it a decode or
a chunk, then waiting ones; the last of the running gives way when memory ends.
What differs here: no prefix is shared, and no prompt is fed past `chunk_size`.
"""

from batchproof.sched.config import Admission
from batchproof.sched.policy.compose import running_first
from batchproof.sched.policy.protocol import Plan, View


class VllmV1:
    """First come, first served over all users; prompts under way may go before decodes."""

    name = "vllm-v1"

    def __init__(self, admission: Admission = "max_utilization") -> None:
        self.admission = admission

    def plan(self, view: View) -> Plan:
        """Serve the running requests, oldest first, then admit."""
        return running_first(view)
