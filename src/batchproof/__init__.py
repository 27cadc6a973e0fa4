"""A continuous-batching scheduler for LLM inference that is verified.

>>> from batchproof import Request, Scheduler
>>> sched = Scheduler()
>>> sched.submit(Request(user_id="u1", prompt=[1, 2, 3], max_tokens=2, request_id="r1"))
>>> while sched.has_active():
...     for request in sched.tick():
...         print(request.request_id, len(request.generated), request.finish_reason)
r1 2 length
"""

from batchproof.sched.config import Limits
from batchproof.sched.errors import BatchproofError, QueueFullError
from batchproof.sched.inference_stub import SimulatedGPU
from batchproof.sched.request import Request
from batchproof.sched.scheduler import Scheduler

__version__ = "0.1.0"
__all__ = ["BatchproofError", "Limits", "QueueFullError", "Request", "Scheduler", "SimulatedGPU"]
