"""A server in a thread of this process, and raw calls to it, for tests of what it does."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from openai import OpenAI
from support.core_checks import assert_invariants

from batchproof import Limits, Request, Scheduler
from batchproof.sched.serving.app import Access
from batchproof.sched.serving.models import ServedModel, load_model
from batchproof.sched.serving.server import Outcome, Service, ServiceOptions
from batchproof.sched.serving.text import PseudoWords
from batchproof.sched.simulation import Setup

WAIT_S = 60
"""After this long, what should have happened has not."""


@dataclass
class RunningService:
    url: str
    service: Service
    outcome: list[Outcome] = field(default_factory=list)

    @property
    def scheduler(self) -> Scheduler:
        return self.service.engine.scheduler

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def client(self, api_key: str = "anybody", **options: Any) -> OpenAI:
        return OpenAI(
            base_url=f"{self.url}/v1", api_key=api_key, max_retries=0, timeout=WAIT_S, **options
        )

    @contextmanager
    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Iterator[HTTPResponse]:
        """Yield the response to a call; the connection closes when the block ends."""
        connection = HTTPConnection(*self.address, timeout=WAIT_S)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, data, headers)
            yield connection.getresponse()
        finally:
            connection.close()


@contextmanager
def running(
    limits: Limits | None = None,
    *,
    model: ServedModel | None = None,
    pace: float | None = None,
    eos_rate: float = 1 / 64,
    api_keys: tuple[str, ...] = (),
    **options: Any,
) -> Iterator[RunningService]:
    """Yield a server; when the block ends it must drain, and lose nothing."""
    setup = Setup(limits=limits or Limits(max_waiting_requests=1024), eos_rate=eos_rate)
    model = model or load_model("simulated", setup, pace)
    service = Service(model, setup, ServiceOptions(port=0, **options), Access(api_keys))
    running_service = RunningService("", service)
    listening = threading.Event()

    def started(url: str) -> None:
        running_service.url = url
        listening.set()

    def run() -> None:
        running_service.outcome.append(service.run(started))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert listening.wait(WAIT_S)
    try:
        yield running_service
    finally:
        service.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the server did not end"
    assert running_service.outcome[0].account.faults() == []
    assert_invariants(service.engine.scheduler)


def until(happened: Callable[[], bool]) -> float:
    """Wait until it happened; return how many seconds that took."""
    started_at = time.monotonic()
    while not happened():
        assert time.monotonic() - started_at < WAIT_S, "it did not happen"
        time.sleep(0.002)
    return time.monotonic() - started_at


def expected_text(service: RunningService, prompt: list[int], max_tokens: int) -> str:
    """Return what the simulated GPU answers to this prompt when every context is right."""
    gpu: Any = service.scheduler.executor
    return PseudoWords().decode(gpu.expected_output(Request("u", prompt, max_tokens, "r")))
