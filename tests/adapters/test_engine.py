"""What all adapters share: agreement with the engine on every tick, refusals, what to install."""

import importlib
import sys
from types import SimpleNamespace

import pytest

from batchproof import Limits, Request
from batchproof.sched.adapters.engine import (
    STOPPED,
    Answer,
    EngineClock,
    EngineScheduler,
    missing_engine,
    refuse_options,
    warn_if_untried,
)
from batchproof.sched.errors import ExecutorError, LimitsError, MisuseError

LIMITS = Limits(
    max_kv_blocks=8, block_size=4, chunk_size=4, token_budget=8, max_batch_size=4, eos_token=STOPPED
)


def with_request(prompt: int = 6, max_tokens: int = 3) -> EngineScheduler:
    engine = EngineScheduler(LIMITS, "stall-free")
    engine.core.submit(Request("u", [5] * prompt, max_tokens, "r"))
    return engine


def test_an_engine_drives_a_request_to_its_end_by_length() -> None:
    engine = with_request()
    fed = []
    for answer in (Answer(), Answer(7), Answer(8), Answer(9, "length")):
        (sequence,) = engine.schedule()
        fed.append((sequence.position, len(sequence.tokens)))
        ended = engine.complete([answer])
    assert fed == [(0, 4), (4, 2), (6, 1), (7, 1)]
    assert [(request.generated, request.finish_reason) for request in ended] == [
        ([7, 8, 9], "length")
    ]


def test_the_engine_says_when_a_request_stops_whatever_the_token() -> None:
    engine = with_request(prompt=2)
    engine.schedule()
    assert engine.complete([Answer(0)]) == [], "no token ends a request by itself"
    engine.schedule()
    (ended,) = engine.complete([Answer(7, "eos")])
    assert ended.finish_reason == "eos"
    assert not engine.core.has_active()


def test_a_stop_with_the_last_token_that_is_allowed_is_a_stop() -> None:
    engine = with_request(prompt=2, max_tokens=1)
    engine.schedule()
    (ended,) = engine.complete([Answer(7, "eos")])
    assert ended.finish_reason == "eos"


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "answer", "message"),
    [
        (6, 3, Answer(7), "does not complete its context; the engine sampled 7"),
        (4, 3, Answer(), "which completes its context; the engine sampled None"),
        (6, 3, Answer(None, "eos"), "has 3 tokens to come, but .* ended by 'eos'"),
        (4, 3, Answer(7, "length"), "has 3 tokens to come, but .* ended by 'length'"),
        (4, 1, Answer(7), "has 1 tokens to come, but .* ended by None"),
        (4, 3, Answer(7, "cancelled"), "ended by 'cancelled'"),
    ],
)
def test_an_engine_that_disagrees_is_found_out_and_the_batch_stays_out(
    prompt, max_tokens, answer, message
) -> None:
    engine = with_request(prompt, max_tokens)
    batch = engine.schedule()
    with pytest.raises(ExecutorError, match=message):
        engine.complete([answer])
    assert engine.batch is batch


def test_a_cancel_while_the_batch_is_out_waits_for_it() -> None:
    engine = with_request(prompt=2)
    (sequence,) = engine.schedule()
    engine.cancel("r")
    assert engine.core.has_active()
    assert engine.complete([Answer.while_live(sequence, 7)]) == []
    assert not engine.core.has_active()
    assert engine.core.stats()["live"]["free_blocks"] == LIMITS.max_kv_blocks


def test_a_cancel_between_batches_is_at_once() -> None:
    engine = with_request()
    engine.cancel("r")
    assert not engine.core.has_active()


def test_a_request_cancelled_with_its_last_token_out_ends_by_length() -> None:
    engine = with_request(prompt=2, max_tokens=1)
    (sequence,) = engine.schedule()
    engine.cancel("r")
    (ended,) = engine.complete([Answer.while_live(sequence, 7)])
    assert ended.finish_reason == "length"


def test_answers_without_a_batch_are_refused() -> None:
    with pytest.raises(MisuseError, match="no batch is out"):
        with_request().complete([])


def test_the_engine_runs_the_model_and_nobody_else() -> None:
    with pytest.raises(MisuseError, match="driven by the engine"):
        with_request().core.tick()
    assert EngineClock().now() <= EngineClock().now()


def test_a_policy_of_ones_own_is_made_anew_for_each_scheduler() -> None:
    made = []

    class Mine:
        name = "mine"
        admission = "max_utilization"

        def __init__(self) -> None:
            made.append(self)

    engines = [EngineScheduler(LIMITS, Mine) for _ in range(2)]
    assert [engine.core.policy for engine in engines] == made
    with pytest.raises(LimitsError, match="policy 'nobodys' is unknown"):
        EngineScheduler(LIMITS, "nobodys")


def test_all_refused_options_are_named_at_once() -> None:
    refuse_options("Engine", [])
    with pytest.raises(LimitsError, match=r"Engine is asked for:\n  a: do b\n  c: do d"):
        refuse_options("Engine", [("a", "do b"), ("c", "do d")])


def test_a_local_version_label_does_not_make_a_version_untried() -> None:
    warn_if_untried("engine", "1.2.3+cpu", ["1.2.3"])
    with pytest.warns(RuntimeWarning, match=r"engine 1\.2\.4 was not tried.*tried: 1\.2\.3\. "):
        warn_if_untried("engine", "1.2.4", ["1.2.3"])


@pytest.mark.parametrize(
    ("module", "engine"),
    [
        ("huggingface", "transformers"),
        ("huggingface_model", "transformers"),
        ("huggingface_watched", "transformers"),
        ("vllm", "vllm"),
        ("vllm_watched", "vllm"),
    ],
)
def test_without_the_extra_the_error_is_the_command_to_type(module, engine, monkeypatch) -> None:
    for name in ("torch", engine):
        monkeypatch.setitem(sys.modules, name, None)
    name = f"batchproof.sched.adapters.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'batchproof\[{engine}\]'"):
        importlib.import_module(name)


def test_an_engine_without_what_is_needed_names_the_version_to_install(monkeypatch) -> None:
    for name in ("torch", "engine"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__spec__=object()))
    error = missing_engine(ModuleNotFoundError(name="engine.part"), "engine", ("1.0", "1.1"))
    assert str(error) == (
        "this engine has no engine.part; tried with batchproof: 1.0, 1.1: pip install 'engine==1.1'"
    )
