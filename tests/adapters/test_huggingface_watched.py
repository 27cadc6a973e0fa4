"""transformers' own schedulers, watched: what holds of them, what does not, and that it is seen."""

import json
from pathlib import Path
from typing import Any

import pytest
from adapters.documents import found_by_example
from adapters.tiny_model import Ask, llama, mixed_asks

pytest.importorskip("torch", reason="make test-engines runs it: torch is not here")
pytest.importorskip("transformers", reason="make test-engines runs it: transformers is not here")

from adapters.test_huggingface import (
    CACHE,
    _own_schedulers_again,  # noqa: F401
    endings,
    results,
    running,
    submit,
    tokens,
)
from transformers import ContinuousBatchingConfig
from transformers.generation.continuous_batching.scheduler import (
    SCHEDULER_MAPPING,
    FIFOScheduler,
    PrefillFirstScheduler,
)

from batchproof.sched.adapters import huggingface_watched
from batchproof.sched.adapters.huggingface_watched import watched
from batchproof.sched.cli import run_cli
from batchproof.sched.errors import LimitsError

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def model() -> Any:
    return llama()


def config(scheduler: Any = FIFOScheduler, **options: Any) -> ContinuousBatchingConfig:
    """A configuration that runs on a scheduler of transformers, watched."""
    settings = {name: options.pop(name) for name in ("record", "exempt") if name in options}
    SCHEDULER_MAPPING["watched"] = watched(scheduler, **settings)
    return ContinuousBatchingConfig(
        scheduler_type="watched", **{**CACHE, "allow_block_sharing": False, **options}
    )


@pytest.mark.parametrize("scheduler", [FIFOScheduler, PrefillFirstScheduler])
def test_under_memory_pressure_all_holds_but_the_order_within_a_user(model, scheduler) -> None:
    made, own = tokens(model, config(scheduler), mixed_asks())
    watch = own.watch
    assert len(made) == 40
    assert {found.property for found in watch.violations} == {"fcfs-within-user"}
    assert watch.monitor.live == 0
    assert watch.preemptions > 0
    assert watch.tokens_fed > sum(len(ask.prompt) for ask in mixed_asks())


def test_with_memory_enough_all_holds(model) -> None:
    _, own = tokens(model, config(num_blocks=256), mixed_asks())
    assert own.watch.violations == []
    assert own.watch.preemptions == 0


def test_watching_changes_no_token(model) -> None:
    own = ContinuousBatchingConfig(**CACHE, allow_block_sharing=False)
    asks = mixed_asks(12)
    assert tokens(model, config(), asks)[0] == tokens(model, own, asks)[0]


def test_that_blocks_are_taken_chunk_by_chunk_would_be_seen(model, monkeypatch) -> None:
    monkeypatch.setattr(huggingface_watched, "NOT_TRANSFORMERS_RULES", {})
    _, own = tokens(model, config(num_blocks=256), mixed_asks(4))
    assert {found.property for found in own.watch.violations} == {"blocks-cover-context"}


def test_its_recording_is_held_against_the_rules_afterwards(model, tmp_path, capsys) -> None:
    file = str(tmp_path / "run.jsonl.gz")
    exempt = ["fcfs-within-user"]
    _, own = tokens(model, config(record=file, exempt=exempt), mixed_asks())
    own.watch.end()
    assert run_cli(["replay", file]) == 0
    out = capsys.readouterr().out
    assert f" {own.watch.monitor.ticks:,} ticks; exempt, by its header, from " in out
    assert "blocks-cover-context, fcfs-within-user" in out


def test_its_recording_holds_every_token(model, tmp_path) -> None:
    file = tmp_path / "run.jsonl"
    asks = mixed_asks(6)
    made, own = tokens(model, config(record=str(file)), asks)
    own.watch.end()
    told: dict[str, list[int]] = {ask.request_id: [] for ask in asks}
    ended: dict[str, str] = {}
    for line in Path(file).read_text().splitlines():
        event = json.loads(line)
        for request_id, token in event.get("decode", ()):
            told[request_id].append(token)
        for request_id, _, _, token in event.get("chunks", ()):
            told[request_id] += [] if token is None else [token]
        ended.update(event.get("ended", ()))
    assert set(ended.values()) == {"eos", "length"}
    for request_id, expected in made.items():
        last = {"eos": 2**64 - 1, "length": expected[-1]}[ended[request_id]]
        assert told[request_id] == [*expected[:-1], last]


class SharesABlock(FIFOScheduler):
    """Gives every request the same first block."""

    def schedule_batch(self, token_budget: int, cache_budget: int) -> Any:
        answer = super().schedule_batch(token_budget, cache_budget)
        (allocator,) = self.cache.cache_allocators.values()
        for table in allocator.block_table.values():
            table[0] = next(iter(allocator.block_table.values()))[0]
        return answer


def test_a_block_with_two_owners_is_seen(model) -> None:
    with running(model, config(SharesABlock)) as manager:
        submit(manager, mixed_asks(3))
        manager.start()
        manager.get_result(timeout=60)
        watch = manager.batch_processor.scheduler.watch
    assert "blocks-conserved" in {found.property for found in watch.violations}


def test_a_cancelled_request_is_heard_of_and_a_second_session_goes_on() -> None:
    endless = Ask("endless", "ann", [5] * 40, 300)
    with running(llama(), config(), eos_token_id=-1) as manager:  # the model keeps its manager
        manager.add_request(endless.prompt, request_id="endless", max_new_tokens=300,
                            streaming=True)  # fmt: skip
        manager.start()
        while not manager.get_result(timeout=1):
            pass
        manager.cancel_request("endless")
        submit(manager, [endless._replace(request_id="next", max_tokens=3)])
        while endings(manager, 1)[0].request_id != "next":
            pass
        manager.stop(block=True, keep_for_next_session=True)
        manager.start()
        submit(manager, [endless._replace(request_id="later", max_tokens=3)])
        results(manager, 1)
        watch = manager.batch_processor.scheduler.watch
    assert watch.violations == []
    assert watch.monitor.live == 0


@pytest.mark.parametrize("how", ["hard stop", "failed batch"])
def test_what_is_live_at_the_end_of_a_session_ends_with_it(monkeypatch, how) -> None:
    endless = Ask("endless", "ann", [5] * 40, 300)
    with running(llama(), config(), eos_token_id=-1) as manager:
        manager.start()
        manager.add_request(endless.prompt, request_id="endless", max_new_tokens=300,
                            streaming=True)  # fmt: skip
        while not manager.get_result(timeout=1):
            pass
        processor = manager.batch_processor
        watch = processor.scheduler.watch
        if how == "failed batch":
            monkeypatch.setattr(processor, "_generation_step", broken_step)
            manager.join(0)
            monkeypatch.undo()
        assert watch.monitor.live == 1
        manager.stop(block=True, keep_for_next_session=True, hard_stop=True)
        manager.start()
        submit(manager, [endless._replace(request_id="later", max_tokens=3)])
        while endings(manager, 1)[0].request_id != "later":
            pass
        assert manager.batch_processor.scheduler.watch is watch
    assert watch.violations == []
    assert watch.monitor.live == 0


def broken_step(_model: Any) -> None:
    raise RuntimeError("the model failed")


def test_a_request_without_a_limit_is_watched_up_to_the_whole_cache(model) -> None:
    with running(model, config(), max_new_tokens=None, eos_token_id=-1) as manager:
        manager.add_request([5, 6, 7], request_id="endless", streaming=True)
        manager.start()
        while len(manager.get_result(timeout=60).generated_tokens) < 50:
            pass
        manager.cancel_request("endless")
        watch = manager.batch_processor.scheduler.watch
    assert watch.violations == []
    assert watch.tokens_fed >= 3 + 49


def test_shared_blocks_cannot_be_watched(model) -> None:
    with running(model, config(allow_block_sharing=True)) as manager:
        manager.add_request([5, 6, 7], request_id="r", max_new_tokens=9)
        manager.start()
        assert "allow_block_sharing=True" in manager.get_result(timeout=30).error


def test_a_batch_asked_for_before_the_last_one_ran_cannot_be_watched(model) -> None:
    with running(model, config()) as manager:
        processor = manager._create_batch_processor()
        submit(manager, mixed_asks(2))
        assert processor.prepare_next_batch()
        with pytest.raises(LimitsError, match="use_async_batching=True cannot be watched"):
            processor.scheduler.clear_cancelled_requests()
        manager.start()


def test_several_sequences_of_one_request_are_refused(model) -> None:
    with running(model, config(), num_return_sequences=2, do_sample=True) as manager:
        manager.add_request([5, 6, 7], request_id="twice")
        manager.start()
        assert "num_return_sequences=2" in results(manager, 1)["twice"].error


def test_what_was_found_is_what_the_example_prints() -> None:
    found_by_example("own_schedulers_transformers.py")
