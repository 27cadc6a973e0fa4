"""A load generator: many clients at once, some of which hang up, all of which check their answer.

It speaks HTTP on plain sockets, so that it costs less than the server and can
go away at any moment. What each client does depends on its number alone.
"""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlsplit

from support.builders import prompt_of

from batchproof import Request, SimulatedGPU
from batchproof.sched.serving.text import PseudoWords

HANG_UP_EVERY = 5
"""Every so many clients one hangs up: a fifth."""
CLIENT_S_MAX = 120
"""Longer than this, no client waits."""


@dataclass(frozen=True)
class Plan:
    """What one client does."""

    number: int
    body: dict[str, Any]
    expected: str
    hangs_up_after_s: float | None
    """Seconds after it asked; None: it stays."""


@dataclass
class Result:
    """What came of all clients."""

    ends: Counter[str] = field(default_factory=Counter)
    """How clients ended: `answered`, `hung_up`, or what was wrong."""

    @property
    def wrong(self) -> dict[str, int]:
        return {end: n for end, n in self.ends.items() if end not in ("answered", "hung_up")}


def plan_of(number: int, gpu: SimulatedGPU) -> Plan:
    draw = Random(number)
    prompt = prompt_of(f"client {number}", draw.randint(1, 200))
    max_tokens = draw.randint(1, 60)
    expected = gpu.expected_output(Request("u", prompt, max_tokens, "r"))
    body = {
        "model": "simulated",
        "prompt": prompt,
        "max_tokens": max_tokens,
        "stream": draw.random() < 0.5,
        "user": f"user {number % 7}",
    }
    # From while the request is still being read to about when it is answered.
    hangs_up = draw.choice((0, 0.001, 0.01, 0.05, 0.2)) if number % HANG_UP_EVERY == 0 else None
    return Plan(number, body, PseudoWords().decode(expected), hangs_up)


async def load(url: str, clients: int, at_once: int) -> Result:
    """Run that many clients, at most `at_once` at a time, and return what came of them."""
    result, gpu = Result(), SimulatedGPU()
    numbers = iter(range(clients))

    async def one_after_another() -> None:
        for number in numbers:
            plan = plan_of(number, gpu)
            try:
                end = await asyncio.wait_for(_client(url, plan), CLIENT_S_MAX)
            except TimeoutError:
                end = "timeout"
            result.ends[end] += 1

    await asyncio.gather(*(one_after_another() for _ in range(at_once)))
    return result


async def _client(url: str, plan: Plan) -> str:
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        data = json.dumps(plan.body).encode()
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: here\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        writer.write(head.encode() + data)
        await writer.drain()
        if plan.hangs_up_after_s is not None:
            await asyncio.sleep(plan.hangs_up_after_s)
            return "hung_up"
        response = await reader.read()
    finally:
        writer.close()
    return judged(plan, response)


def judged(plan: Plan, response: bytes) -> str:
    """Return `answered` if it is the whole right answer, else what is wrong with it."""
    head, _, body = response.partition(b"\r\n\r\n")
    status = (*head.split(b" ", 2), b"", b"")[1].decode()
    if status != "200":
        return f"status {status}"
    if plan.body["stream"]:
        events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
        if events.pop() != b"[DONE]":
            return "stream without an end"
        choices = [json.loads(event)["choices"][0] for event in events]
    else:
        choices = json.loads(body)["choices"]
    if choices[-1]["finish_reason"] not in ("stop", "length"):
        return "no finish reason"
    return "answered" if "".join(c["text"] for c in choices) == plan.expected else "wrong text"
