"""Runs, graphs and models that the tests of reports share."""

import base64
import json
import re
import zlib
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from batchproof.sched.config import Limits
from batchproof.sched.prompts import PromptRing
from batchproof.sched.recorder import Recorder, RecordingFile, header
from batchproof.sched.report.graph import Edge, Graph, Node
from batchproof.sched.report.run_history import RunHistory
from batchproof.sched.report.state_graph import StateSpace, explore
from batchproof.sched.request import Request
from batchproof.sched.request_gen import Arrival
from batchproof.sched.run_recording import RunRecording
from batchproof.sched.simulation import Setup, Simulation
from batchproof.spec.registry import load

PRESSED = Limits(max_kv_blocks=24, token_budget=96, max_batch_size=8)
"""Limits under which the sample run preempts."""


def record(arrivals: list[Arrival], limits: Limits, cancel: tuple[str, ...] = ()) -> bytes:
    """Return the recording of a run; `cancel` are cancelled as soon as all have been submitted."""
    setup = Setup(limits=limits, policy="stall-free", eos_rate=0.02)
    gpu = setup.gpu()
    file = BytesIO()
    admission = setup.scheduler(gpu).policy.admission
    writer = RecordingFile(file, header(setup, admission, 0, "batchproof tests"))
    recorder = Recorder(gpu, limits.max_kv_blocks, writer.write, PromptRing(0))
    simulation = Simulation(setup.scheduler(recorder, recorder), gpu, arrivals)
    simulation.run(stop=lambda: simulation.all_arrived)
    for request_id in cancel:
        assert simulation.scheduler.cancel(request_id)
    recorder.end(complete=simulation.run())
    return file.getvalue()


@cache
def busy_recording() -> bytes:
    """Return the recording of a short run with preemptions, a cancellation, and awkward names."""
    ring = PromptRing(0)
    users = ("ann", "böb <b>", 'c"\\d')
    arrivals = [
        Arrival(
            n * 0.01,
            Request(users[n % 3], ring.prompt(n * 50, 40 + 9 * (n % 7)), 20 + n % 30, f"r{n}"),
        )
        for n in range(30)
    ]
    arrivals.append(Arrival(0.3, Request("ann", ring.prompt(9, 9_000), 5, "too-long")))
    arrivals.append(Arrival(0.31, Request("ann", ring.prompt(9, 90), 40, "to-cancel")))
    return record(arrivals, PRESSED, cancel=("to-cancel",))


def history_of(content: bytes) -> RunHistory:
    """Return what a recording of these bytes says."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "run.jsonl")
        path.write_bytes(content)
        return RunHistory(RunRecording(str(path)))


@cache
def busy_history() -> RunHistory:
    """Return what the busy recording says."""
    return history_of(busy_recording())


@cache
def small_space() -> StateSpace:
    """Return the reachable states of the smallest bound of the reference model."""
    family = load("mini-batch")
    bound = family.bounds["C1"]
    return explore(family.build(bound, None), family.claims(bound, None), 2_000, reduce=True)


def awkward_graph() -> Graph:
    """Return a graph whose every name and text has what some format takes for its own."""
    text = 'a "b" <c> & d; e|f {g} [h] (i) \\n # % `j` end'
    nodes = (Node(text, text, "state", (text,), {"fact": text}), Node("end", "end", "done"))
    edge = Edge(text, "end", text, (text,), {"fact": text}, dashed=True, marked=True)
    return Graph("awkward", text, nodes, (edge, Edge("end", "end", "loop")))


@cache
def large_history() -> RunHistory:
    """Return a run of more than 20,000 ticks and 5,000 requests, with all of the pool in use."""
    ring = PromptRing(0)
    arrivals = [
        Arrival(
            n * 0.055, Request(f"u{n % 8}", ring.prompt(n, 60 + n * 7 % 600), 16 + n % 40, f"r{n}")
        )
        for n in range(5_000)
    ]
    return history_of(record(arrivals, Limits()))


def page_data(page: str) -> Any:
    """Return the data that a page carries for its scripts."""
    packed = re.search(r'<script type="text/plain" id="page-data">(.*?)</script>', page)
    assert packed is not None
    return json.loads(zlib.decompress(base64.b64decode(packed[1])))
