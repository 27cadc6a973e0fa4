"""transformers' continuous batching on the verified scheduler, with real attention and tokens."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from adapters.documents import HOW_TO, printed_by_example, run_blocks
from adapters.tiny_model import STOP_TOKENS, Ask, llama, mixed_asks, sliding

torch = pytest.importorskip("torch", reason="make test-engines runs it: torch is not here")
pytest.importorskip("transformers", reason="make test-engines runs it: transformers is not here")

from transformers import ContinuousBatchingConfig, GenerationConfig  # noqa: E402
from transformers.generation.continuous_batching import scheduler as engine  # noqa: E402

from batchproof.sched.adapters import huggingface  # noqa: E402
from batchproof.sched.adapters.huggingface import (  # noqa: E402
    BatchproofScheduler,
    batching_config,
    register,
    scheduler_of,
)
from batchproof.sched.cli import run_cli  # noqa: E402
from batchproof.sched.errors import ExecutorError, LimitsError, MisuseError  # noqa: E402
from batchproof.sched.policy.registry import POLICIES  # noqa: E402

pytestmark = pytest.mark.engines

CACHE = {
    "page_size": 16,
    "num_blocks": 24,
    "max_batch_tokens": 64,
    "max_requests_per_batch": 6,
}
"""So little that prompts are chunked, requests preempted, and seats and budget run out."""

OWN = ContinuousBatchingConfig(**CACHE, allow_block_sharing=False)
"""The same cache under transformers' own scheduler."""


@pytest.fixture(scope="module")
def model() -> Any:
    return llama()


@pytest.fixture(autouse=True)
def _own_schedulers_again() -> Iterator[None]:
    before = dict(engine.SCHEDULER_MAPPING)
    yield
    engine.SCHEDULER_MAPPING.clear()
    engine.SCHEDULER_MAPPING.update(before)


@contextmanager
def running(model: Any, config: Any, **generation: Any) -> Iterator[Any]:
    """A manager that generates greedily; requests added before the block ends are run to an end."""
    options = {"do_sample": False, "eos_token_id": STOP_TOKENS, "max_new_tokens": 8, **generation}
    manager = model.init_continuous_batching(
        generation_config=GenerationConfig(**options), continuous_batching_config=config
    )
    try:
        yield manager
    finally:
        manager.stop(block=True)


def results(manager: Any, count: int) -> dict[str, Any]:
    """Return the outputs of `count` requests that ended, by id."""
    return {output.request_id: output for output in endings(manager, count)}


def endings(manager: Any, count: int) -> list[Any]:
    """Return the outputs of `count` requests that ended, in the order in which they did."""
    ended: list[Any] = []
    while len(ended) < count:
        output = manager.get_result(timeout=60)
        assert output is not None, f"{count - len(ended)} requests never end"
        if output.is_finished():
            ended.append(output)
    return ended


def submit(manager: Any, asks: Sequence[Ask]) -> None:
    for ask in asks:
        manager.add_request(ask.prompt, request_id=ask.request_id, max_new_tokens=ask.max_tokens)


def tokens(model: Any, config: Any, asks: Sequence[Ask]) -> tuple[dict[str, list[int]], Any]:
    """Return the tokens of each request, all submitted before the first tick, and the scheduler."""
    with running(model, config) as manager:
        submit(manager, asks)
        manager.start()
        outputs = results(manager, len(asks))
        scheduler = manager.batch_processor.scheduler
    assert not [output.error for output in outputs.values() if output.error]
    return {name: output.generated_tokens for name, output in outputs.items()}, scheduler


def alone(model: Any, ask: Ask) -> list[int]:
    """Return what `generate()` makes of a request on its own."""
    prompt = torch.tensor([ask.prompt])
    with torch.no_grad():
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=ask.max_tokens,
            eos_token_id=STOP_TOKENS,
            pad_token_id=0,
        )
    return list(out[0, len(ask.prompt) :].tolist())


@pytest.fixture(scope="module")
def expected(model: Any) -> dict[str, list[int]]:
    """What `generate()` makes of each of the mixed requests, one at a time."""
    return {ask.request_id: alone(model, ask) for ask in mixed_asks()}


def test_requests_end_in_both_ways_and_none_is_degenerate(expected) -> None:
    lengths = {ask.request_id: ask.max_tokens for ask in mixed_asks()}
    stopped = [name for name, made in expected.items() if made[-1] in STOP_TOKENS]
    assert 5 < len(stopped) < 35
    assert any(len(made) < lengths[name] for name, made in expected.items())
    assert len({token for made in expected.values() for token in made}) > 40


@pytest.mark.parametrize("policy", POLICIES)
def test_tokens_are_those_of_generate_whatever_the_policy(model, expected, policy) -> None:
    config = batching_config(name=policy, policy=policy, chunk_size=16, **CACHE)
    made, scheduler = tokens(model, config, mixed_asks())
    assert isinstance(scheduler, BatchproofScheduler)
    assert made == expected


def test_tokens_are_those_of_transformers_own_scheduler(model, expected) -> None:
    made, scheduler = tokens(model, OWN, mixed_asks())
    assert isinstance(scheduler, engine.FIFOScheduler)
    assert made == expected


def test_memory_was_short_enough_to_chunk_and_to_preempt(model) -> None:
    config = batching_config(policy="stall-free", chunk_size=16, **CACHE)
    _, scheduler = tokens(model, config, mixed_asks())
    stats = scheduler.stats()
    assert stats["preemptions"] > 0
    assert stats["tokens"]["recomputed"] > 0
    assert stats["kv"]["blocks_max"] == CACHE["num_blocks"]
    assert stats["batch"]["sequences_max"] == CACHE["max_requests_per_batch"]
    assert any(len(ask.prompt) > 16 for ask in mixed_asks())


class TwoOwners(BatchproofScheduler):
    """Makes two of the scheduler's blocks the same block of the engine."""

    def _engine_block(self, block: int) -> int:
        return super()._engine_block(block - block % 2)


def test_a_block_with_two_owners_changes_tokens(model, expected, monkeypatch) -> None:
    monkeypatch.setattr(huggingface, "BatchproofScheduler", TwoOwners)
    config = batching_config(chunk_size=16, **CACHE)
    made, _ = tokens(model, config, mixed_asks())
    assert made != expected


class ShiftedTable(BatchproofScheduler):
    """Turns each block table by one entry: every block has one owner, but not its place."""

    def _follow(self, batch: Any) -> None:
        super()._follow(batch)
        for table in self._allocator.block_table.values():
            table[:] = table[1:] + table[:1]


def test_blocks_in_the_wrong_order_change_tokens(model, expected, monkeypatch) -> None:
    monkeypatch.setattr(huggingface, "BatchproofScheduler", ShiftedTable)
    config = batching_config(chunk_size=16, **CACHE)
    made, _ = tokens(model, config, mixed_asks())
    assert made != expected


def test_generate_batch_runs_on_it_too(model) -> None:
    asks = mixed_asks(6)
    outputs = model.generate_batch(
        [ask.prompt for ask in asks],
        generation_config=GenerationConfig(do_sample=False, eos_token_id=STOP_TOKENS),
        continuous_batching_config=batching_config(**CACHE),
        max_new_tokens=9,
    )
    assert [output.generated_tokens for output in outputs.values()] == [
        alone(model, ask._replace(max_tokens=9)) for ask in asks
    ]


def test_a_second_session_of_the_same_manager_starts_anew(model, expected) -> None:
    asks = mixed_asks(8)
    with running(model, batching_config(chunk_size=16, **CACHE)) as manager:
        for _ in range(2):
            manager.start()
            submit(manager, asks)
            outputs = results(manager, len(asks))
            manager.stop(block=True, keep_for_next_session=True)
            for ask in asks:
                assert outputs[ask.request_id].generated_tokens == expected[ask.request_id]
    model.destroy_cached_continuous_batching_manager()


def test_streamed_tokens_arrive_one_by_one(model, expected) -> None:
    ask = max(mixed_asks(), key=lambda ask: len(expected[ask.request_id]))
    with running(model, batching_config(chunk_size=16, **CACHE)) as manager:
        manager.add_request(
            ask.prompt, request_id=ask.request_id, max_new_tokens=ask.max_tokens, streaming=True
        )
        manager.start()
        outputs = [manager.get_result(timeout=60)]
        while not outputs[-1].is_finished():
            outputs.append(manager.get_result(timeout=60))
    lengths = [len(output.generated_tokens) for output in outputs]
    assert lengths == list(range(1, len(expected[ask.request_id]) + 1))


def test_a_cancelled_request_gives_its_blocks_back_and_disturbs_nobody(model, expected) -> None:
    asks = mixed_asks(8)
    endless = Ask("user9/endless", "user9", [5] * 40, 300)
    with running(model, batching_config(chunk_size=16, **CACHE), eos_token_id=-1) as manager:
        manager.add_request(
            endless.prompt, request_id=endless.request_id, max_new_tokens=300, streaming=True
        )
        manager.start()
        while not manager.get_result(timeout=1):
            pass
        manager.cancel_request(endless.request_id)
        for ask in asks:
            manager.add_request(
                ask.prompt,
                request_id=ask.request_id,
                max_new_tokens=ask.max_tokens,
                eos_token_id=STOP_TOKENS,
            )
        ended = results(manager, len(asks))
        stats = scheduler_of(manager).stats()
    assert {name: output.generated_tokens for name, output in ended.items()} == {
        ask.request_id: expected[ask.request_id] for ask in asks
    }
    assert stats["requests"]["cancelled"] == 1
    assert stats["live"]["free_blocks"] == CACHE["num_blocks"]


BAD_REQUESTS = {
    "infeasible": ({"input_ids": [5] * 300, "max_new_tokens": 200}, "need 32 blocks"),
    "empty prompt": ({"input_ids": [], "max_new_tokens": 5}, "the prompt is empty"),
    "no limit": ({"input_ids": [5, 6]}, "max_new_tokens is not set"),
}


@pytest.mark.parametrize("case", BAD_REQUESTS)
def test_a_bad_request_ends_with_the_reason_as_its_error(model, case) -> None:
    options, message = BAD_REQUESTS[case]
    good = mixed_asks(1)[0]
    with running(model, batching_config(**CACHE), max_new_tokens=None) as manager:
        manager.add_request(request_id="bad", **options)
        submit(manager, [good])
        manager.start()
        outputs = results(manager, 2)
    assert message in outputs["bad"].error
    assert outputs[good.request_id].generated_tokens == alone(model, good)


def test_several_sequences_of_one_request_are_refused(model) -> None:
    with running(
        model, batching_config(**CACHE), num_return_sequences=2, do_sample=True
    ) as manager:
        manager.add_request([5, 6, 7], request_id="twice")
        manager.start()
        assert "num_return_sequences=2" in results(manager, 1)["twice"].error


def test_an_id_that_is_live_is_refused_and_may_be_used_again_later(model) -> None:
    with running(model, batching_config(**CACHE)) as manager:
        manager.add_request([5, 6, 7], request_id="same", max_new_tokens=2)
        manager.add_request([5, 6, 7], request_id="same", max_new_tokens=2)
        manager.start()
        errors = [output.error for output in endings(manager, 2)]
        manager.add_request([5, 6, 7], request_id="same", max_new_tokens=2)
        again = results(manager, 1)["same"]
    assert [bool(error) for error in errors] == [True, False]
    assert again.error is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("allow_block_sharing", True),
        ("use_async_batching", True),
        ("cpu_offload_space", 2.0),
        ("safety_margin", 0.1),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused_by_name(option, value) -> None:
    with pytest.raises(LimitsError, match=f"{option}={value}: only"):
        batching_config(**CACHE, **{option: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "allow_block_sharing=True"),
        ({"allow_block_sharing": False, "safety_margin": 0.2}, "safety_margin=0.2"),
    ],
)
def test_it_is_refused_when_the_engine_starts_too(model, options, message) -> None:
    register()
    config = ContinuousBatchingConfig(scheduler_type="batchproof", **CACHE, **options)
    with running(model, config) as manager:
        manager.add_request([5, 6, 7], request_id="r")
        manager.start()
        assert message in manager.get_result(timeout=10).error


def test_sliding_window_layers_are_refused_by_name(model) -> None:
    with running(sliding(), batching_config(**CACHE)) as manager:
        manager.add_request([5, 6, 7], request_id="r")
        manager.start()
        assert "sliding-window" in manager.get_result(timeout=10).error


def test_a_batch_asked_for_before_the_last_one_ran_is_refused(model) -> None:
    with running(model, batching_config(**CACHE)) as manager:
        processor = manager._create_batch_processor()
        submit(manager, mixed_asks(2))
        assert processor.prepare_next_batch()
        with pytest.raises(LimitsError, match="use_async_batching"):
            processor.scheduler.schedule_batch(64, 10_000)
        manager.start()


def test_an_engine_that_ends_a_request_too_early_is_found_out(model) -> None:
    with running(model, batching_config(**CACHE)) as manager:
        processor = manager._create_batch_processor()
        manager.add_request([5, 6, 7], request_id="r", max_new_tokens=5)
        assert processor.prepare_next_batch()
        state = processor.scheduler.active_requests["r"]
        state.generated_tokens.append(9)
        state.status = huggingface.RequestStatus.FINISHED
        with pytest.raises(ExecutorError, match="has 5 tokens to come"):
            processor.scheduler.clear_cancelled_requests()
        manager.start()


def test_another_scheduler_in_its_place_is_noticed(model) -> None:
    misspelt = ContinuousBatchingConfig(scheduler_type="batchprof", **CACHE)
    with running(model, misspelt) as manager:
        submit(manager, mixed_asks(1))
        manager.start()
        results(manager, 1)
        with pytest.raises(MisuseError, match=r"FIFOScheduler, not batchproof's.*'batchprof'"):
            scheduler_of(manager)


def test_a_name_is_not_given_to_two_settings() -> None:
    register(name="ours", chunk_size=16)
    register(name="ours", chunk_size=16)
    with pytest.raises(LimitsError, match="'ours' is registered already"):
        register(name="ours", chunk_size=32)
    with pytest.raises(LimitsError, match="'fifo' is registered already"):
        register(name="fifo")


def test_users_are_told_apart_by_the_request_id(model) -> None:
    with running(model, batching_config(**CACHE)) as manager:
        for request_id in ("ann/1", "bob/1", "no-slash", "/empty"):
            manager.add_request([5, 6, 7], request_id=request_id, max_new_tokens=1)
        manager.start()
        results(manager, 4)
        assert set(scheduler_of(manager).stats()["users"]) == {"ann", "bob", "default"}


def test_a_version_that_was_not_tried_is_warned_about(model, monkeypatch) -> None:
    monkeypatch.setattr(huggingface, "TRIED", ("1.2.3", "4.5.6"))
    with running(model, batching_config(**CACHE)) as manager:
        with pytest.warns(RuntimeWarning, match=r"was not tried.*tried: 1\.2\.3, 4\.5\.6"):
            manager._create_batch_processor()
        manager.start()


def test_the_how_to_runs(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks("use-with-transformers.md")
    assert run_cli(["replay", "fifo-run.jsonl"]) == 0
    assert "use_async_batching=True: only False is supported" in capsys.readouterr().out


def test_the_example_prints_what_the_how_to_shows() -> None:
    shown = (HOW_TO / "use-with-transformers.md").read_text()
    assert printed_by_example("fairness_transformers.py") in shown
