"""What is read from a recording agrees with it; what contradicts itself is refused."""

import json
from collections import Counter
from statistics import median

import pytest
from support.report_samples import busy_history, busy_recording, history_of

from batchproof.sched.errors import InputError
from batchproof.sched.report.lifecycle_graph import duration_text, request_graph, run_graph
from batchproof.sched.report.run_history import RunHistory

LINES = busy_recording().splitlines()
RECORDS = [json.loads(line) for line in LINES]
TICKS = [record for record in RECORDS if record["event"] == "tick"]


def ended() -> dict[str, str]:
    return dict(pair for tick in TICKS for pair in tick.get("ended", []))


def test_the_sample_run_has_something_of_everything() -> None:
    assert any("preempt" in tick for tick in TICKS)
    assert {"submit", "refuse", "cancel"} <= {record["event"] for record in RECORDS}
    assert {"eos", "length"} <= set(ended().values())


def test_lives_are_those_of_the_recording() -> None:
    history = busy_history()
    submitted = [record["request"]["id"] for record in RECORDS if record["event"] == "submit"]
    assert [life.name for life in history.lives] == submitted
    cancelled = {record["id"]: "cancelled" for record in RECORDS if record["event"] == "cancel"}
    assert {life.name: life.finish_reason for life in history.lives} == {**ended(), **cancelled}
    preempted = Counter(name for tick in TICKS for name in tick.get("preempt", []))
    assert {life.name: life.preemptions for life in history.lives if life.preemptions} == preempted


def test_output_tokens_and_first_tokens_are_those_of_the_recording() -> None:
    tokens: Counter[str] = Counter()
    first: dict[str, float] = {}
    for tick in TICKS:
        chunks = [name for name, _, _, token in tick.get("chunks", []) if token is not None]
        for name in [name for name, _ in tick.get("decode", [])] + chunks:
            tokens[name] += 1
            first.setdefault(name, tick["end"])
    lives = busy_history().lives
    assert {life.name: life.generated for life in lives if life.generated} == tokens
    assert {life.name: life.first_token_at for life in lives if life.first_token_at} == first


def test_holdings_leave_as_many_blocks_free_as_the_recording_says() -> None:
    history = busy_history()
    pool = history.header.limits.max_kv_blocks
    held = [0] * (len(TICKS) + 1)
    for holding in history.holdings:
        assert 0 <= holding.start < holding.end
        for tick in range(holding.start, holding.end):
            held[tick] += 1
    for number, tick in enumerate(TICKS):
        gone = sum(
            holding.end == number + 1
            for holding in history.holdings
            if history.lives[holding.life].name in dict(tick.get("ended", []))
        )
        assert pool - held[number] + gone == tick["free"]


def test_each_tick_is_what_the_batch_was() -> None:
    for row, tick in zip(busy_history().ticks, TICKS, strict=True):
        decodes, chunks = tick.get("decode", []), tick.get("chunks", [])
        assert row.sequences == len(decodes) + len(chunks)
        assert row.tokens == len(decodes) + sum(fed for _, _, fed, _ in chunks)
        assert (row.start, row.end, row.free) == (tick["start"], tick["end"], tick["free"])


def test_the_counts_of_a_run_are_on_its_graph() -> None:
    graph = run_graph(busy_history())
    edges = {(edge.title, edge.source, edge.dest): edge for edge in graph.edges}
    admits = sum(len(tick.get("admit", [])) for tick in TICKS)
    assert edges["admit", "waiting", "prefilling"].facts["count"] == admits
    preempts = sum(len(tick.get("preempt", [])) for tick in TICKS)
    assert preempts == sum(e.facts["count"] for e in graph.edges if e.title == "preempt")
    for edge in graph.edges:
        assert edge.dashed == (edge.facts["count"] == 0)
    finished = [
        life.moves[-1].at - life.moves[-2].at
        for life in busy_history().lives
        if life.moves[-1][:2] == ("finish", "decoding")
    ]
    assert edges["finish", "decoding", "done"].facts["median_s"] == round(median(finished), 6)


def test_the_path_of_a_request_has_every_move_with_tick_and_time() -> None:
    history = busy_history()
    life = max(history.lives, key=lambda life: life.preemptions)
    graph = request_graph(history, life)
    assert life.preemptions
    assert [edge.title for edge in graph.edges] == [move.event for move in life.moves]
    assert [edge.facts["tick"] for edge in graph.edges] == [move.tick for move in life.moves]
    assert len(graph.nodes) == len(graph.edges) + 1
    preempted = [edge.facts["tick"] for edge in graph.edges if edge.title == "preempt"]
    assert preempted == [n for n, tick in enumerate(TICKS) if life.name in tick.get("preempt", [])]


def test_a_later_request_of_the_same_id_is_another_life() -> None:
    submit = next(line for line in LINES if b'"submit"' in line)
    name = json.loads(submit)["request"]["id"]
    cancel = json.dumps({"event": "cancel", "at": 0.5, "id": name}).encode()
    end = b'{"event":"end","complete":true,"ticks":0,"live":0}'
    history = history_of(b"\n".join([LINES[0], submit, cancel, submit, cancel, end]))
    assert [life.name for life in history.lives] == [name, f"{name}#2"]
    assert history.find(f"{name}#2") is history.lives[1]


def tampered(record: dict[str, object]) -> bytes:
    end = b'{"event":"end","complete":true,"ticks":0,"live":0}'
    return b"\n".join([LINES[0], LINES[1], json.dumps(record).encode(), end])


TICK = {"event": "tick", "tick": 0, "start": 0.0, "end": 1.0, "free": 24}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({**TICK, "decode": [["zz", 5]]}, "line 3: request 'zz' is not live"),
        ({**TICK, "preempt": ["r0"]}, "line 3: request 'r0' cannot preempt when waiting"),
        ({**TICK, "tick": 4}, "line 3: tick 4 comes after 0 ticks"),
        ({**TICK, "admit": [["r0", [24]]]}, "line 3: block 24 is not in the pool"),
        ({**TICK, "admit": [["r0", [1, 1]]]}, "line 3: block 1 is held by request 'r0' already"),
        (json.loads(LINES[1]), "line 3: request 'r0' is live already"),
    ],
)
def test_a_recording_that_contradicts_itself_is_refused(record, message: str) -> None:
    with pytest.raises(InputError, match=f"{message}.*the recording is at fault"):
        history_of(tampered(record))


def test_an_empty_run_is_a_run() -> None:
    history = history_of(LINES[0] + b'\n{"event":"end","complete":true,"ticks":0,"live":0}')
    assert (history.lives, history.ticks, history.ended_at) == ([], [], 0.0)
    assert all(edge.dashed for edge in run_graph(history).edges)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (1.2e-6, "1.20 µs"),
        (0.000999, "999 µs"),
        (0.0123, "12.3 ms"),
        (1, "1.00 s"),
        (1234.5, "1,234 s"),
    ],
)
def test_durations_are_said_in_three_digits(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_reading_twice_gives_the_same() -> None:
    again: RunHistory = history_of(busy_recording())
    assert again.lives == busy_history().lives
    assert again.holdings == busy_history().holdings
