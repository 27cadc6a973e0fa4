"""`batchproof replay`: legal and the same run, or the first line that is not, or what is wrong."""

import json
import signal

import pytest

from batchproof import Limits, Request
from batchproof.sched.cli import run_cli
from batchproof.sched.errors import RequestError
from batchproof.sched.prompts import PromptRing
from batchproof.sched.recorder import Recorder, header
from batchproof.sched.replay import Replay
from batchproof.sched.request_gen import PoissonWorkload
from batchproof.sched.run_recording import RunRecording, encode
from batchproof.sched.simulation import Setup


@pytest.fixture
def batchproof(capsys):
    def call(*argv):
        code = run_cli([str(word) for word in argv])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def recording(tmp_path, batchproof):
    """A recording of 60 requests under memory pressure."""
    path = tmp_path / "run.jsonl"
    code, _, err = batchproof(
        "run", "--requests", 60, "--rate", 40, "--policy", "stall-free", "--record", path
    )
    assert (code, err) == (0, "")
    return path


def edit(path, event, number, change):
    """Change the `number`-th line of an event; return its line number."""
    lines = path.read_text().splitlines()
    places = [i for i, line in enumerate(lines) if f'"event":"{event}"' in line]
    place = places[number]
    record = json.loads(lines[place])
    change(record)
    lines[place] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")
    return place + 1


def test_a_recorded_run_is_the_same_again(batchproof, recording):
    lines = recording.read_text().splitlines()
    ticks = sum('"event":"tick"' in line for line in lines)
    assert ticks > 300
    assert batchproof("replay", recording) == (
        0,
        f"legal, and the same run: {len(lines) - 1:,} lines, {ticks:,} ticks\n",
        "",
    )
    code, out, _ = batchproof("replay", recording, "--json")
    assert code == 0
    assert json.loads(out) == {
        "legal": True,
        "violation": None,
        "repeated": True,
        "same": True,
        "complete": True,
        "lines": len(lines) - 1,
        "ticks": ticks,
        "exempt": [],
        "difference": None,
    }


@pytest.mark.parametrize(
    "options",
    [
        ("--policy", "static", "--latency", "h100-llama2-7b"),
        ("--admission", "guaranteed_no_evict", "--seed", "3"),
        ("--max-kv-blocks", "100", "--chunk-size", "16", "--eos-token", "9"),
        ("--eos-rate", "0"),
    ],
    ids=" ".join,
)
def test_any_set_up_is_the_same_again(batchproof, tmp_path, options):
    path = tmp_path / "run.jsonl.gz"
    assert batchproof("run", "--requests", 60, "--rate", 40, *options, "--record", path)[0] == 0
    assert batchproof("replay", path)[0] == 0


def test_a_run_of_a_trace_with_refusals_is_the_same_again(batchproof, tmp_path):
    trace, path = tmp_path / "trace.csv", tmp_path / "run.jsonl"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:00:00,70,30\n2023-11-16 18:00:00.003,9000,1\n2023-11-16 18:05:00,70,30\n"
    )
    assert batchproof("run", trace, "--record", path)[0] == 0
    assert '"kind":"infeasible"' in path.read_text()
    assert batchproof("replay", path)[0] == 0


def test_a_run_of_ones_own_is_the_same_again(tmp_path, batchproof):
    """Own prompts, cancellations in each phase, refusals of each kind, idle ticks."""
    setup = Setup(limits=Limits(max_kv_blocks=4, block_size=4, chunk_size=4, token_budget=6))
    path = tmp_path / "run.jsonl"
    records = [header(setup, "max_utilization", 0, "a test")]
    gpu = setup.gpu()
    recorder = Recorder(gpu, 4, records.append, PromptRing(0))
    scheduler = setup.scheduler(recorder, recorder)
    scheduler.tick()
    for name in ("a", "b", "c"):
        scheduler.submit(Request(f"user of {name}", [5, 6, 7, 8, 9], 4, name))
    for bad in (
        Request("u", [1] * 99, 9, "big"),
        Request("u", [1], 1, "a"),
        Request("", [], 0, ""),
    ):
        with pytest.raises(RequestError):
            scheduler.submit(bad)
    scheduler.cancel("c")
    scheduler.tick()
    scheduler.cancel("b")
    gpu.wait_until(7.5)
    scheduler.tick()
    gpu.wait_until(9.5)
    scheduler.cancel("a")
    scheduler.submit(Request("u", [1, 2], 3, "a"))
    while scheduler.has_active():
        scheduler.tick()
    recorder.end(complete=True)
    path.write_bytes(b"".join(encode(record) + b"\n" for record in records))
    assert batchproof("replay", path)[0] == 0


def set_item(name, value):
    return lambda record: record.__setitem__(name, value)


def change_a_token(record):
    record["decode"][0][1] += 1


def change_a_block(record):
    record["admit"][0][1].reverse()


def change_a_length(record):
    record["request"]["prompt"]["length"] += 1


DIFFERENCES = {
    "token": ("tick", 300, change_a_token, "decode"),
    "end-time": ("tick", 300, lambda record: record.update(end=record["end"] + 1), "end"),
    "blocks": ("tick", 0, change_a_block, "admit"),
    "arrival": ("submit", 9, set_item("at", 0), None),  # it changes times only
    "prompt": ("submit", 0, change_a_length, None),  # it shows in the ticks
}


@pytest.mark.parametrize(
    ("event", "number", "change", "field"), DIFFERENCES.values(), ids=DIFFERENCES
)
def test_the_first_line_that_differs_is_shown(batchproof, recording, event, number, change, field):
    line = edit(recording, event, number, change)
    if event == "submit":
        code = batchproof("replay", recording)[0]
        assert code == (1 if change is change_a_length else 0)
        return
    code, out, err = batchproof("replay", recording)
    assert (code, err) == (1, "")
    assert out.startswith(f"line {line} differs in {field}:\n  recorded {field}=")
    assert f"\n  replayed {field}=" in out
    code, out, _ = batchproof("replay", recording, "--json")
    difference = json.loads(out)["difference"]
    assert code == 1
    assert (difference["line"], difference["fields"]) == (line, [field])
    assert difference["recorded"][field] != difference["replayed"].get(field)


def test_another_event_is_a_difference(batchproof, recording):
    lines = recording.read_text().splitlines()
    lines[3:3] = [lines[1].replace('"r1"', '"r1b"').replace('"submit"', '"refuse"')]
    refusal = json.loads(lines[3])
    lines[3] = json.dumps({**refusal, "kind": "invalid", "reason": "a whim"})
    recording.write_text("\n".join(lines))
    code, out, _ = batchproof("replay", recording)
    assert code == 1
    assert out.startswith('line 4 differs in another event:\n  recorded {"event":"refuse"')
    assert '\n  replayed {"event":"submit"' in out


BROKEN = {
    "free-blocks": (
        *("tick", 300, lambda record: record.update(free=record["free"] + 1)),
        "blocks-conserved",
    ),
    "an-end-more": ("tick", 5, set_item("ended", [["r1", "eos"]]), "eos-ends-at-once"),
    "an-end-less": ("tick", -1, set_item("ended", []), "eos-ends-at-once"),
    "preempted-and-decodes": ("tick", 5, set_item("preempt", ["r1"]), "only-live-are-scheduled"),
    "a-block-twice": (
        *("tick", 0, lambda record: record["admit"][0][1].__setitem__(1, record["admit"][0][1][0])),
        "blocks-conserved",
    ),
    "never-submitted": ("tick", 5, set_item("preempt", ["nobody"]), "only-live-are-scheduled"),
    "nobody-cancelled": (
        *("tick", 5, lambda record: (record.clear(), record.update(event="cancel", at=0, id="x"))),
        "ended-once",
    ),
    "accepted-too-long": (
        *("submit", 3, lambda record: record["request"].update(max_tokens=99_999)),
        "feasible-or-refused",
    ),
}


@pytest.mark.parametrize(("event", "number", "change", "rule"), BROKEN.values(), ids=BROKEN)
def test_the_first_line_that_breaks_a_rule_is_named(
    batchproof, recording, event, number, change, rule
):
    line = edit(recording, event, number, change)
    code, out, err = batchproof("replay", recording)
    assert (code, err) == (1, "")
    assert out.startswith(f"line {line}, tick ")
    assert f", breaks {rule}: " in out
    code, out, _ = batchproof("replay", recording, "--json")
    facts = json.loads(out)
    assert (code, facts["legal"], facts["violation"]["line"]) == (1, False, line)
    assert facts["violation"]["property"] == rule


def test_the_run_of_another_engine_is_held_against_the_rules(batchproof, recording):
    text = recording.read_text()
    cut = slice(text.index('"gpu"'), text.index('"prompt_seed"'))
    recording.write_text(text.replace(text[cut], "", 1).replace('"stall-free"', '"theirs"'))
    code, out, err = batchproof("replay", recording)
    assert (code, err) == (0, "")
    assert out.startswith("legal; not run again: ")
    line = edit(recording, "tick", 300, lambda record: record.update(free=-1))
    code, out, _ = batchproof("replay", recording)
    assert code == 1
    assert out.startswith(f"line {line}, tick 300, breaks blocks-conserved")


def edit_header(recording, **fields):
    first, _, rest = recording.read_text().partition("\n")
    recording.write_text(json.dumps({**json.loads(first), **fields}) + "\n" + rest)


def test_what_the_header_exempts_from_is_not_checked_and_is_said(batchproof, recording):
    edit(recording, "tick", 300, lambda record: record.update(free=-1))
    edit_header(recording, gpu=None, exempt=["tick-feeds", "blocks-conserved"])
    code, out, err = batchproof("replay", recording)
    assert (code, err) == (0, "")
    assert out.endswith("; exempt, by its header, from blocks-conserved, tick-feeds\n")
    _, out, _ = batchproof("replay", recording, "--json")
    assert json.loads(out)["exempt"] == ["blocks-conserved", "tick-feeds"]


def test_an_exemption_from_a_property_that_there_is_not_is_refused(batchproof, recording):
    edit_header(recording, gpu=None, exempt=["blocks-conserved", "manners"])
    code, _, err = batchproof("replay", recording)
    assert code == 2
    assert "monitor: exempt from manners, which there is not; there are: batch-bounded" in err


def replaced(old, new):
    return lambda text: text.replace(old, new, 1)


def without_lines(start, end=None):
    def change(text):
        lines = text.splitlines(keepends=True)
        del lines[slice(start, end)]
        return "".join(lines)

    return change


MALFORMED = {
    "empty": (lambda _: "", "the file is empty"),
    "no-header": (without_lines(0, 1), 'line 1 is \'{"event":"submit"'),
    "not-json": (replaced("{", ""), "not the header of a recording of a run"),
    "a-trace": (
        lambda _: "TIMESTAMP,ContextTokens,GeneratedTokens\n",
        "not the header of a recording of a run; `batchproof run --record FILE` makes one",
    ),
    "newer-format": (
        replaced('"format":1', '"format":2,"more":[]'),
        "is of format 2, this version reads format 1",
    ),
    "no-limits": (replaced('"limits"', '"limit"'), "line 1: "),
    "header-cut": (lambda text: text[:200], "not the header of a recording of a run"),
    "cut-between-lines": (without_lines(-1), "has no `end` line: the file was cut"),
    "cut-within-a-line": (lambda text: text[:-20], ": Input data was truncated: "),
    "header-only": (without_lines(1), "has no `end` line: the file was cut"),
    "after-the-end": (
        lambda text: text + '{"event":"end","complete":true,"ticks":1,"live":0}\n',
        "comes after the end of the run",
    ),
    "unknown-event": (replaced('"event":"tick"', '"event":"tock"'), "Invalid value 'tock'"),
    "unknown-field": (replaced('"free":', '"fee":0,"free":'), "unknown field `fee`"),
    "missing-field": (replaced('"start":0', '"ended":[],"x":0'), "line 3: Object "),
    "wrong-type": (replaced('"free":', '"free":"many","y":'), "Expected `int`, got `str`"),
    "bad-limits": (replaced('"chunk_size":64', '"chunk_size":0'), "limits: chunk_size=0 is not"),
    "unknown-policy": (replaced('"stall-free"', '"magic"'), "policy 'magic' is unknown"),
    "unknown-admission": (replaced('"max_utilization"', '"all"'), "admission 'all' is unknown"),
    "bad-rate": (replaced('"eos_rate":0.015625', '"eos_rate":2'), "eos_rate is 2.0, not a"),
    "tick-missing": (without_lines(-9, -8), "ticks are missing or out of order"),
    "wrong-sum": (replaced('"live":0', '"live":1'), "1 live requests at the end, where"),
    "no-ring": (replaced(',"prompt_seed":0', ""), "a prompt is a slice, but the header has no"),
    "off-the-ring": (
        replaced('"prompt":{"start":', '"prompt":{"start":99999'),
        "not in 0..31998",
    ),
}


@pytest.mark.parametrize(("change", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_recording_is_one_line(batchproof, recording, change, message):
    recording.write_text(change(recording.read_text()))
    code, out, err = batchproof("replay", recording)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("batchproof: ")
    assert err.count("\n") == 1


def test_a_missing_recording_is_one_line(batchproof, tmp_path):
    path = tmp_path / "none"
    assert batchproof("replay", path) == (2, "", f"batchproof: {path}: there is no such file\n")


def test_an_interrupted_run_is_recorded_as_far_as_it_went(batchproof, tmp_path, monkeypatch):
    arrive = PoissonWorkload.__iter__

    def arrivals(self):
        for count, arrival in enumerate(arrive(self), start=1):
            if count == 30:
                signal.raise_signal(signal.SIGINT)
            yield arrival

    monkeypatch.setattr(PoissonWorkload, "__iter__", arrivals)
    path = tmp_path / "run.jsonl"
    assert batchproof("run", "--requests", 60, "--rate", 40, "--record", path)[0] == 3
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["event"] == "end"
    assert not last["complete"]
    assert last["live"] > 0
    assert batchproof("replay", path)[0] == 0


def test_an_interrupted_replay_says_how_far_it_came(recording):
    asked = iter([False] * 10 + [True])
    outcome = Replay(RunRecording(str(recording))).run(stop=lambda: next(asked))
    assert (outcome.lines, outcome.interrupted, outcome.difference) == (10, True, None)


def test_ctrl_c_ends_a_replay(batchproof, recording, monkeypatch):
    read = RunRecording.__iter__

    def records(self):
        for number, record in read(self):
            if number == 20:
                signal.raise_signal(signal.SIGINT)
            yield number, record

    monkeypatch.setattr(RunRecording, "__iter__", records)
    code, out, err = batchproof("replay", recording)
    assert (code, err) == (3, "")
    assert out.startswith("interrupted; so far legal, and the same run: 18 lines, ")
