"""What a tick costs under each policy, with few users and many, in thread CPU time."""

import gc
from collections.abc import Sequence
from itertools import count
from random import Random
from time import thread_time
from typing import Any, Final

from batchproof.sched.bench.scheduler import FreeExecutor
from batchproof.sched.config import Limits
from batchproof.sched.policy.registry import POLICIES
from batchproof.sched.request import Request
from batchproof.sched.scheduler import Scheduler

USERS: Final = (1, 10, 1_000)
"""Numbers of active users."""
QUEUED: Final = 1_000
"""Requests that wait all the time, or as many as there are users."""
TICKS: Final = 400
"""Ticks in each measurement; the fastest of REPEATS counts, being the least disturbed."""
TICKS_AT_ONCE: Final = 16
"""Ticks between two looks at the clock, which costs too; requests are submitted then."""
REPEATS: Final = 5
BASE: Final = "stall-free"
_LENGTHS: Final = {"even": (80, 120), "mixed": (16, 512)}
"""Prompts of one length, and of many: with the latter users differ in load."""


def measure(policies: Sequence[str] = tuple(POLICIES)) -> dict[str, Any]:
    """Return the microseconds of a tick, and over stall-free's, as one JSON-ready object.

    The memory is full, about 1,000 requests wait, and for each that ends its
    user submits another. Submission is not part of the time.
    """
    results: dict[str, Any] = {}
    for users in USERS:
        for name, lengths in _LENGTHS.items():
            ticks_us = {policy: _tick_us(policy, users, lengths) for policy in policies}
            base = ticks_us.get(BASE)
            results[f"{users}_users_{name}"] = {
                policy: {"tick_us": us, **({"ratio": us / base} if base else {})}
                for policy, us in ticks_us.items()
            }
    return results


def _tick_us(policy: str, users: int, prompts: tuple[int, int]) -> float:
    sched = Scheduler(Limits(), policy, FreeExecutor())
    rng = Random(0)
    ids = count()

    def submit(user: int) -> None:
        prompt = [1] * rng.randint(*prompts)
        sched.submit(Request(f"u{user}", prompt, rng.randint(32, 128), str(next(ids))))

    def some_ticks() -> float:
        spent = 0.0
        for _ in range(TICKS // TICKS_AT_ONCE):
            ended: list[Request] = []
            started = thread_time()
            for _ in range(TICKS_AT_ONCE):
                ended += sched.tick()
            spent += thread_time() - started
            for request in ended:
                submit(int(request.user_id[1:]))
        return spent

    for index in range(max(QUEUED, users)):
        submit(index % users)
    some_ticks()
    gc.collect()
    return min(some_ticks() for _ in range(REPEATS)) / TICKS * 1e6
