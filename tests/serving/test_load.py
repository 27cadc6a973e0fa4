"""Nothing is lost when many clients come and a fifth of them hang up."""

import asyncio
import re
import signal
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving.load_generator import HANG_UP_EVERY, Plan, judged, load
from serving.serve_process import serve_process

AT_ONCE = 96
"""Clients at a time: more than a batch holds, and more than the memory does."""


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("no /proc here to read a process's memory from")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status.read_text())[0]) / 1024


def figure(url: str, name: str) -> float:
    with urlopen(f"{url}/metrics", timeout=10) as response:
        families = text_string_to_metric_families(response.read().decode())
        return sum(s.value for family in families for s in family.samples if s.name == name)


def under_load(clients: int) -> tuple[float, float]:
    """Load a server, check that nothing was lost; return its memory early on and at the end."""
    with serve_process("--monitor") as served:
        before = asyncio.run(load(served.url, clients // 10, AT_ONCE))
        memory_then = resident_mb(served.process.pid)
        result = asyncio.run(load(served.url, clients, AT_ONCE))
        memory_now = resident_mb(served.process.pid)
        preemptions = figure(served.url, "batchproof_num_preemptions_total")
        ended = served.end(signal.SIGTERM)
    assert preemptions > 0, "the memory was never short"
    hung_up = result.ends["hung_up"] + before.ends["hung_up"]
    answered = result.ends["answered"] + before.ends["answered"]
    assert result.wrong == before.wrong == {}
    assert result.ends["hung_up"] == clients // HANG_UP_EVERY
    assert answered + hung_up == clients + clients // 10

    account = ended.account
    assert (ended.code, account["faults"], account["violations"]) == (0, [], 0)
    assert account["submitted"] == account["finished"] + account["cancelled"]
    # Who hung up may have been too quick to be read, or too late to be cancelled.
    assert answered <= account["finished"] <= answered + hung_up
    assert 0 < account["cancelled"] <= hung_up
    print(f"\n{account}, {preemptions:.0f} preemptions; {memory_then:.0f}, {memory_now:.0f} MB")
    return memory_then, memory_now


GOOD = b'data: {"choices":[{"text":" a","finish_reason":null}]}'
LAST = b'data: {"choices":[{"text":" b","finish_reason":"length"}]}'
DONE = b"data: [DONE]"


@pytest.mark.parametrize(
    ("status", "events", "verdict"),
    [
        (b"200", (GOOD, LAST, DONE), "answered"),
        (b"200", (LAST, DONE), "wrong text"),
        (b"200", (GOOD, LAST, LAST, DONE), "wrong text"),
        (b"200", (GOOD, LAST), "stream without an end"),
        (b"200", (GOOD, DONE), "no finish reason"),
        (b"503", (GOOD, LAST, DONE), "status 503"),
    ],
)
def test_the_load_generator_sees_what_is_wrong(
    status: bytes, events: tuple[bytes, ...], verdict: str
) -> None:
    plan = Plan(1, {"stream": True}, " a b", None)
    response = b"HTTP/1.1 " + status + b" X\r\nA: b\r\n\r\n" + b"\n\n".join(events)
    assert judged(plan, response) == verdict


def test_500_clients_lose_nothing() -> None:
    under_load(500)


@pytest.mark.deep
def test_10_000_clients_lose_nothing_and_leave_nothing() -> None:
    then, now = under_load(10_000)
    # Samples of exact quantiles: 24 bytes for each request and each gap, bounded at 10,000 each.
    assert now - then < 16
