"""What a tick and a whole life cost, in thread CPU time, with an executor that costs nothing."""

import gc
from collections.abc import Callable, Sequence
from itertools import count, islice
from random import Random
from time import thread_time
from typing import Any

from batchproof.sched import lifecycle
from batchproof.sched.config import Limits
from batchproof.sched.request import Request
from batchproof.sched.scheduler import Scheduler
from batchproof.spec.lifecycle import INITIAL

RUNNING = (16, 64, 256, 1024, 4096)
"""Numbers of decoding requests at which a tick is measured."""
OUTPUT_TOKENS = 20
LIVES = 2_000
"""Lives in each measurement."""
REPEATS = 5
"""Each measurement is made this often; the fastest counts, being the least disturbed."""


class FreeExecutor:
    """Answers every sequence with the same token, in no time."""

    def __init__(self) -> None:
        self._ticks = 0

    def forward(self, batch: Sequence[object]) -> list[int]:
        """Return one token each, never EOS."""
        return [7] * len(batch)

    def now(self) -> float:
        """Return a time that goes on with each reading."""
        self._ticks += 1
        return float(self._ticks)


def measure(policy: str = "stall-free") -> dict[str, Any]:
    """Return all measurements of this file as one JSON-ready object.

    Stall-free, so that it is the coordinator that is measured; `policies` measures the others.
    """
    lives = {
        "queued_1k": _lives_per_s(policy, queued=1_000, blocks=4096, batch=256),
        "queued_10k": _lives_per_s(policy, queued=10_000, blocks=4096, batch=256),
        "256_blocks_64_running": _lives_per_s(policy, queued=1_000, blocks=256, batch=64),
    }
    return {
        "policy": policy,
        "tick_us": {str(running): _tick_us(policy, running) for running in RUNNING},
        "lives_per_s": lives,
        "queue_ratio_10k_to_1k": lives["queued_10k"] / lives["queued_1k"],
        "triggers_us_per_life": _triggers_us(),
    }


def _tick_us(policy: str, running: int) -> dict[str, float]:
    """Measure the steady state: every request decodes, blocks are taken at each boundary."""
    ticks = max(64, 65_536 // running)
    limits = Limits(
        max_kv_blocks=running * (ticks // 16 + 8),
        token_budget=running,
        max_batch_size=running,
    )
    sched = Scheduler(limits, policy, FreeExecutor())
    rng = Random(0)
    for index in range(running):
        prompt = [1] * rng.randint(1, 16)
        sched.submit(Request("u", prompt, max_tokens=ticks * 2, request_id=str(index)))
    while sched.stats()["live"]["decoding"] < running:
        sched.tick()

    def some_ticks() -> None:
        for _ in range(ticks // REPEATS):
            batch = sched.schedule()
            sched.complete(batch, [7] * len(batch))

    best = min(_cpu_s(some_ticks) for _ in range(REPEATS)) / (ticks // REPEATS) * 1e6
    return {"per_tick": best, "per_running_request": best / running}


def _lives_per_s(policy: str, queued: int, blocks: int, batch: int) -> float:
    """Measure whole lives per second, submission included, `queued` requests always waiting.

    Prompts of 80 to 120 tokens, 20 output tokens, ten users.
    """
    limits = Limits(max_kv_blocks=blocks, token_budget=2048, max_batch_size=batch)
    sched = Scheduler(limits, policy, FreeExecutor())
    rng = Random(0)
    prompts = [[1] * rng.randint(80, 120) for _ in range(1_000)]
    ids = count()

    def submit(requests: int) -> None:
        for index in islice(ids, requests):
            request = Request(f"u{index % 10}", prompts[index % 1_000], OUTPUT_TOKENS, str(index))
            sched.submit(request)

    def some_lives() -> None:
        ended = 0
        while ended < LIVES:
            done = len(sched.tick())
            submit(done)
            ended += done

    submit(queued + batch)
    return LIVES / min(_cpu_s(some_lives) for _ in range(REPEATS))


def _triggers_us() -> float:
    """Measure the three triggers of an undisturbed life."""
    lives = 20_000
    requests = [Request("u", (1,), 1, "r") for _ in range(lives)]

    def all_triggers() -> None:
        for request in requests:
            request.phase = INITIAL
            lifecycle.admit(request)
            lifecycle.first_token(request)
            lifecycle.finish(request)

    return min(_cpu_s(all_triggers) for _ in range(REPEATS)) / lives * 1e6


def _cpu_s(work: Callable[[], None]) -> float:
    """Return the thread CPU seconds that `work` takes, the garbage of others apart."""
    gc.collect()
    started = thread_time()
    work()
    return thread_time() - started
