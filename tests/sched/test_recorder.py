"""Recordings of runs: what is written, that it is all that happened, and how files are made."""

import gzip
import json
import os
from collections import Counter

import msgspec
import pytest

from batchproof import Limits, Request
from batchproof.sched.cli import run_cli
from batchproof.sched.errors import RequestError
from batchproof.sched.prompts import PromptRing
from batchproof.sched.recorder import Recorder
from batchproof.sched.request_gen import PoissonWorkload
from batchproof.sched.run_recording import (
    Header,
    LimitsRecord,
    PromptSlice,
    RunRecording,
    Submit,
    Tick,
    encode,
)
from batchproof.sched.simulation import Setup, Simulation

TINY = Limits(max_kv_blocks=4, block_size=4, chunk_size=4, token_budget=6, max_batch_size=3)

LIFE_OF_FOUR = """\
{"event":"submit","at":0.0,"request":{"id":"a","user":"ann","max_tokens":5,"prompt":[1,2,3,4,5]}}
{"event":"submit","at":0.0,"request":{"id":"b","user":"bob","max_tokens":6,"prompt":[6,7,8]}}
{"event":"tick","tick":0,"start":0.0,"end":0.007,"free":1,"admit":[["a",[0,1]],["b",[2]]],\
"chunks":[["a",0,4,null],["b",0,2,null]]}
{"event":"tick","tick":1,"start":0.007,"end":0.014,"free":1,\
"chunks":[["a",4,1,A],["b",2,1,B]]}
{"event":"tick","tick":2,"start":0.014,"end":0.021,"free":0,"grow":[["b",3]],\
"decode":[["a",A],["b",B]]}
{"event":"submit","at":0.021,"request":{"id":"c","user":"cem","max_tokens":4,"prompt":[9]}}
{"event":"tick","tick":3,"start":0.021,"end":0.028,"free":0,"decode":[["a",A],["b",B]]}
{"event":"tick","tick":4,"start":0.028,"end":0.034,"free":1,"preempt":["b"],"grow":[["a",2]],\
"decode":[["a",A]]}
{"event":"cancel","at":0.034,"id":"c"}
{"event":"submit","at":0.034,"request":{"id":"d","user":"dot","max_tokens":1,"prompt":[10]}}
{"event":"tick","tick":5,"start":0.034,"end":0.04,"free":4,"decode":[["a",A]],\
"ended":[["a","length"]]}
{"event":"tick","tick":6,"start":0.04,"end":0.047,"free":2,"admit":[["b",[0,1]],["d",[2]]],\
"chunks":[["b",0,4,null],["d",0,1,D]],"ended":[["d","length"]]}
{"event":"tick","tick":7,"start":0.047,"end":0.053,"free":2,"chunks":[["b",4,2,B]]}
{"event":"tick","tick":8,"start":0.053,"end":0.059,"free":2,"decode":[["b",B]]}
{"event":"tick","tick":9,"start":0.059,"end":0.065,"free":4,"decode":[["b",B]],\
"ended":[["b","length"]]}
{"event":"end","complete":true,"ticks":10,"live":0}
"""


@pytest.fixture
def recorded():
    """Make a tiny scheduler that records; return it and its records."""

    def make(ring=None, limits=TINY):
        records = []
        gpu = Setup(limits=limits).gpu()
        recorder = Recorder(gpu, limits.max_kv_blocks, records.append, ring)
        return Setup(limits=limits, eos_rate=0.0).scheduler(recorder, recorder), recorder, records

    return make


def life_of_four(scheduler, requests):
    """Chunks, growth, a preemption, a cancellation, and a life of one tick."""
    a, b, c, d = requests
    scheduler.submit(a)
    scheduler.submit(b)
    for _ in range(3):
        scheduler.tick()
    scheduler.submit(c)
    scheduler.tick()
    scheduler.tick()
    assert scheduler.cancel("c")
    assert not scheduler.cancel("c")
    scheduler.submit(d)
    while scheduler.has_active():
        scheduler.tick()


def test_a_recording_says_all_that_happened_in_order():
    limits = TINY
    setup = Setup(limits=limits, policy="stall-free", eos_rate=0.0)
    gpu = setup.gpu()
    records = []
    recorder = Recorder(gpu, limits.max_kv_blocks, records.append)
    requests = [
        Request("ann", [1, 2, 3, 4, 5], 5, "a"),
        Request("bob", [6, 7, 8], 6, "b"),
        Request("cem", [9], 4, "c"),
        Request("dot", [10], 1, "d"),
    ]
    life_of_four(setup.scheduler(recorder, recorder), requests)
    recorder.end(complete=True)

    # The tokens are the simulated GPU's affair: what the request was given, in its order.
    expected = LIFE_OF_FOUR
    for request in requests:
        for token in request.generated:
            expected = expected.replace(request.request_id.upper(), str(token), 1)
    assert "".join(encode(record).decode() + "\n" for record in records) == expected


@pytest.mark.parametrize(
    ("request_", "kind", "kept"),
    [
        (Request("bob", [1] * 20, 6, "big"), "infeasible", True),
        (Request("bob", [1], 6, "a"), "duplicate", True),
        (Request("bob", [], 6, "none"), "invalid", False),
        (Request("bob", [object()], 6, "odd"), "invalid", False),
    ],
    ids=["infeasible", "duplicate", "empty-prompt", "no-tokens"],
)
def test_a_refusal_is_recorded_with_its_reason(recorded, request_, kind, kept):
    scheduler, _, records = recorded()
    scheduler.submit(Request("ann", [1], 2, "a"))
    with pytest.raises(RequestError) as refused:
        scheduler.submit(request_)
    record = records[-1]
    assert (record.kind, record.reason) == (kind, str(refused.value))
    assert (record.request is not None) == kept
    json.loads(encode(record))


def test_a_tick_that_fails_is_not_recorded(recorded):
    scheduler, recorder, records = recorded()
    scheduler.submit(Request("ann", [1, 2, 3, 4, 5], 3, "a"))
    forward = recorder._executor.forward

    def out_of_order(batch):
        raise RuntimeError("the GPU is gone")

    recorder._executor.forward = out_of_order
    with pytest.raises(RuntimeError, match="the GPU is gone"):
        scheduler.tick()
    recorder._executor.forward = forward
    while scheduler.has_active():
        scheduler.tick()
    ticks = [record for record in records if isinstance(record, Tick)]
    assert [tick.tick for tick in ticks] == [0, 1, 2, 3]
    assert [tick.admit for tick in ticks] == [[("a", [0, 1])], [], [], []]
    assert ticks[-1].free == 4


def test_a_tick_without_work_is_recorded_as_that(recorded):
    scheduler, _, records = recorded()
    scheduler.tick()
    assert records == [Tick(0, 0.0, 0.0, 4)]
    scheduler.submit(Request("ann", [1], 1, "a"))
    scheduler.tick()
    scheduler.tick()
    assert records[2].admit == [("a", [0])]
    assert records[3] == Tick(2, 0.006, 0.006, 4)


def test_generated_prompts_are_recorded_as_slices_and_ones_own_in_full(recorded):
    ring = PromptRing(3)
    scheduler, _, records = recorded(ring)
    scheduler.submit(Request("ann", ring.prompt(31_997, 5), 2, "made"))
    scheduler.submit(Request("ann", (*ring.prompt(5, 4), 0), 2, "own"))
    assert records[0].request.prompt == PromptSlice(31_997, 5)
    assert records[1].request.prompt == [*ring.prompt(5, 4), 0]


class Ledger:
    """Reads nothing but a recording, and says what it says of blocks and tokens."""

    def __init__(self, header):
        self.size = header.limits.max_kv_blocks
        self.block_size = header.limits.block_size
        self.owner = {}
        self.tokens = {}
        self.context = {}
        self.prompts = {}

    def hold(self, request_id, blocks):
        for block in blocks:
            assert 0 <= block < self.size
            assert block not in self.owner, f"block {block} has two owners"
            self.owner[block] = request_id

    def release(self, request_id):
        blocks = [block for block, owner in self.owner.items() if owner == request_id]
        for block in blocks:
            del self.owner[block]
        self.context[request_id] = 0
        return len(blocks)

    def submit(self, record):
        request = record.request
        self.tokens[request.id] = []
        self.prompts[request.id] = (
            request.prompt.length
            if isinstance(request.prompt, PromptSlice)
            else len(request.prompt)
        )

    def tick(self, tick):
        for request_id in tick.preempt:
            assert self.release(request_id)
        for request_id, block in tick.grow:
            self.hold(request_id, [block])
        for request_id, blocks in tick.admit:
            self.hold(request_id, blocks)
        for request_id, token in tick.decode:
            self.context[request_id] += 1
            self.tokens[request_id].append(token)
        for request_id, position, fed, token in tick.chunks:
            assert position == self.context.get(request_id, 0)
            self.context[request_id] = position + fed
            if token is not None:
                known = self.prompts[request_id] + len(self.tokens[request_id])
                assert self.context[request_id] == known
                self.tokens[request_id].append(token)
        held = Counter(self.owner.values())
        for request_id in (*dict(tick.decode), *(chunk[0] for chunk in tick.chunks)):
            assert held[request_id] * self.block_size >= self.context[request_id]
        for request_id, _ in tick.ended:
            assert self.release(request_id)
        assert tick.free == self.size - len(self.owner)


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_recording_accounts_for_every_block_and_token(tmp_path, capsys, name):
    path = tmp_path / name
    assert run_cli(["run", "--requests", "400", "--rate", "20", "--record", str(path)]) == 0
    recording = RunRecording(str(path))
    ledger = Ledger(recording.header)
    preempted = 0
    for _, record in recording:
        if isinstance(record, Submit):
            ledger.submit(record)
        elif isinstance(record, Tick):
            ledger.tick(record)
            preempted += len(record.preempt)
    assert preempted > 0
    assert ledger.owner == {}

    setup, workload = Setup(), list(PoissonWorkload(requests=400, rate=20.0))
    gpu = setup.gpu()
    assert Simulation(setup.scheduler(gpu), gpu, workload).run()
    assert ledger.tokens == {request.request_id: request.generated for _, request in workload}


def test_the_header_says_what_the_run_depended_on(tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    options = ("--seed", "7", "--latency", "a100-llama3-8b", "--policy", "static")
    assert run_cli(["run", "--requests", "3", *options, "--record", str(path)]) == 0
    header = RunRecording(str(path)).header
    assert (header.format, header.policy, header.admission) == (1, "static", "guaranteed_no_evict")
    assert header.limits == LimitsRecord(256, 16, 64, 512, 64, 0)
    assert (header.gpu.seed, header.gpu.latency.name, header.prompt_seed) == (7, options[3], 7)
    assert header.producer.startswith("batchproof ")


def test_recording_changes_no_result(tmp_path, capsys):
    run_cli(["run", "--requests", "200", "--rate", "20"])
    without = capsys.readouterr()
    run_cli(["run", "--requests", "200", "--rate", "20", "--record", str(tmp_path / "r")])
    assert capsys.readouterr() == without


def test_the_same_run_is_the_same_bytes_compressed_or_not(tmp_path, capsys):
    paths = [tmp_path / name for name in ("one.jsonl.gz", "two.jsonl.gz", "plain.jsonl")]
    for path in paths:
        assert run_cli(["run", "--requests", "100", "--record", str(path)]) == 0
    one, two, plain = (path.read_bytes() for path in paths)
    assert one == two
    assert one[4:8] == bytes(4)  # no time of writing
    assert gzip.decompress(one) == plain
    assert len(one) < len(plain) / 4


def test_a_recording_replaces_an_older_one_and_follows_a_link(tmp_path, capsys):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("older")
    link.symlink_to(target)
    assert run_cli(["run", "--requests", "3", "--record", str(link)]) == 0
    assert link.is_symlink()
    assert isinstance(RunRecording(str(target)).header, Header)
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_a_run_that_fails_leaves_no_recording_and_keeps_the_older(tmp_path, capsys):
    trace, recording = tmp_path / "trace.csv", tmp_path / "run.jsonl"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,5,5\nrubbish\n")
    recording.write_text("older")
    assert run_cli(["run", str(trace), "--record", str(recording)]) == 2
    assert recording.read_text() == "older"
    assert sorted(tmp_path.iterdir()) == [recording, trace]


def test_what_is_printed_to_is_never_replaced(tmp_path, capfd):
    assert run_cli(["run", "--requests", "3", "--record", "/dev/stdout"]) == 2
    assert "is not a regular file" in capfd.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full to run out of space on")
def test_running_out_of_space_is_one_line(tmp_path, capsys, monkeypatch):
    real = open

    def full(path, mode="r", *args, **kwargs):
        return real("/dev/full" if "partial" in str(path) else path, mode, *args, **kwargs)

    monkeypatch.setattr("builtins.open", full)
    path = tmp_path / "run.jsonl"
    assert run_cli(["run", "--requests", "3", "--record", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"batchproof: {path}: cannot be written (No space left on device)\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_every_record_reads_back_as_it_was(recorded):
    scheduler, recorder, records = recorded()
    life_of_four(
        scheduler,
        [
            Request("ann", [1, 2, 3, 4, 5], 5, "a"),
            Request("bob", [6, 7, 8], 6, "b"),
            Request("cem", [9], 4, "c"),
            Request("dot", [10], 1, "d"),
        ],
    )
    recorder.end(complete=False)
    for record in records:
        assert msgspec.json.decode(encode(record), type=type(record)) == record
