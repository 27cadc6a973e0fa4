"""Requests, executors and runs in one line each, for tests of the scheduler."""

from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

from batchproof import Limits, Request, Scheduler, SimulatedGPU

SMALL = Limits(max_kv_blocks=8, block_size=4, chunk_size=8, token_budget=16, max_batch_size=4)
"""A machine at which memory, budget and seats all run short within a few ticks."""


def prompt_of(request_id: str, length: int) -> list[int]:
    """Return a prompt that no other id has, so that a mix-up changes tokens."""
    seed = crc32(request_id.encode())
    return [1 + (seed + 7919 * index) % 30_000 for index in range(length)]


def a_request(
    request_id: str = "r", prompt: int = 3, max_tokens: int = 4, user: str = "u"
) -> Request:
    """Return a request with a prompt of `prompt` tokens."""
    return Request(user, prompt_of(request_id, prompt), max_tokens, request_id)


def submitted(scheduler: Scheduler, requests: Iterable[Request]) -> list[Request]:
    """Submit them in order, and return them."""
    accepted = list(requests)
    for request in accepted:
        scheduler.submit(request)
    return accepted


def run_to_end(scheduler: Scheduler, ticks_max: int = 10_000) -> list[Request]:
    """Tick until nothing is live; return the requests in the order in which they ended."""
    ended: list[Request] = []
    for _ in range(ticks_max):
        if not scheduler.has_active():
            return ended
        ended += scheduler.tick()
    raise AssertionError(f"still active after {ticks_max} ticks: {scheduler.stats()['live']}")


def a_gpu(limits: Limits = SMALL, **options: Any) -> SimulatedGPU:
    """Return a simulated GPU on which EOS comes only when asked for."""
    return SimulatedGPU(limits, **{"eos_rate": 0, **options})


class ConstantExecutor:
    """Yields the same token for ever; each batch takes one second."""

    def __init__(self, token: int = 7) -> None:
        self.token = token
        self.seconds = 0.0

    def forward(self, batch: Sequence[object]) -> list[int]:
        self.seconds += 1.0
        return [self.token] * len(batch)

    def now(self) -> float:
        return self.seconds


class AnsweringExecutor(ConstantExecutor):
    """Gives the prepared answers one after another, then behaves; raises those that are errors."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers = list(answers)

    def forward(self, batch: Sequence[object]) -> Any:
        if not self.answers:
            return super().forward(batch)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer(len(batch)) if callable(answer) else answer


class FailingExecutor:
    """Passes batches on to another executor, but raises on the given calls (the first is 1)."""

    def __init__(self, inner: Any, failing_calls: Iterable[int]) -> None:
        self.inner = inner
        self.failing_calls = frozenset(failing_calls)
        self.calls = 0

    def forward(self, batch: Sequence[object]) -> Any:
        self.calls += 1
        if self.calls in self.failing_calls:
            raise RuntimeError(f"device lost on call {self.calls}")
        return self.inner.forward(batch)

    def now(self) -> float:
        return float(self.inner.now())


def crowd(scheduler: Scheduler) -> None:
    """Submit more than the machine can hold, of all sizes."""
    sizes = [(7, 14), (7, 14), (20, 5), (1, 1), (9, 9), (2, 20)]
    submitted(
        scheduler, [a_request(f"r{i}", prompt, most) for i, (prompt, most) in enumerate(sizes)]
    )


def a_scheduler(executor: Any = None, limits: Limits = SMALL) -> Scheduler:
    return Scheduler(limits, executor=executor or a_gpu(limits))
