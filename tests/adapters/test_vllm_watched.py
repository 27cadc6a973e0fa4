"""vLLM's own scheduler, watched: what holds of it, what does not, and that it would be seen."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="make test-engines runs it: torch is not here")
pytest.importorskip("vllm", reason="make test-engines runs it: vllm is not here")

from adapters.documents import found_by_example
from adapters.test_vllm import (
    add,
    core_of,
    engine,
    model_folder,  # noqa: F401
    scheduler_of,
    step_to_end,
    tokens,
)
from adapters.tiny_model import Ask, mixed_asks
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.scheduler import Scheduler as OwnScheduler
from vllm.v1.request import RequestStatus

from batchproof.sched.adapters import vllm_watched
from batchproof.sched.adapters.vllm_options import OPTIONS
from batchproof.sched.adapters.vllm_watched import watched
from batchproof.sched.errors import LimitsError
from batchproof.sched.replay import Outcome, Replay
from batchproof.sched.run_recording import RunRecording, Tick

pytestmark = pytest.mark.engines


def test_vllms_own_scheduler_keeps_the_rules_under_memory_pressure(model_folder) -> None:  # noqa: F811
    with engine(model_folder, scheduler=watched(OwnScheduler)) as llm:
        made = tokens(llm, mixed_asks())
        watch = scheduler_of(llm).watch
    assert len(made) == 40
    assert watch.violations == []
    assert watch.monitor.live == 0
    assert watch.preemptions > 0


def test_that_blocks_are_taken_chunk_by_chunk_would_be_seen(model_folder, monkeypatch) -> None:  # noqa: F811
    monkeypatch.setattr(vllm_watched, "NOT_VLLMS_RULES", {})
    with engine(model_folder, scheduler=watched(OwnScheduler)) as llm:
        tokens(llm, mixed_asks(4))
        found = scheduler_of(llm).watch.violations
    assert {violation.property for violation in found} == {"blocks-cover-context"}


def test_its_recording_is_held_against_the_rules_afterwards(
    model_folder,  # noqa: F811
    tmp_path,
) -> None:
    file = str(tmp_path / "run.jsonl.gz")
    with engine(model_folder, scheduler=watched(OwnScheduler, record=file)) as llm:
        made = tokens(llm, mixed_asks())
        watch = scheduler_of(llm).watch
    replay = Replay(RunRecording(file))
    assert replay.run() == Outcome(
        lines=watch.monitor.ticks + 40 + 1,
        ticks=watch.monitor.ticks,
        repeated=False,
        exempt=("blocks-cover-context",),
    )
    yielded = sum(
        len(record.decode) + sum(token is not None for *_, token in record.chunks)
        for _, record in RunRecording(file)
        if isinstance(record, Tick)
    )
    assert yielded == sum(len(of_request) for of_request in made.values())


def test_what_cannot_be_watched_is_refused_by_name(model_folder) -> None:  # noqa: F811
    refusal = "to be watched is asked for:\n  enable_prefix_caching: "
    with (
        pytest.raises(LimitsError, match=refusal),
        engine(model_folder, scheduler=watched(OwnScheduler), enable_prefix_caching=True),
    ):
        pass


def test_all_that_cannot_be_watched_is_among_what_can_be_asked_for() -> None:
    assert vllm_watched.UNWATCHED - {option.name for option in OPTIONS} == set()


def test_a_request_too_large_at_the_head_starves_all_where_the_check_is_bypassed(
    model_folder,  # noqa: F811
    monkeypatch,
) -> None:
    monkeypatch.setattr(kv_cache_utils, "_check_enough_kv_cache_memory", lambda *_: None)
    with engine(model_folder, scheduler=watched(OwnScheduler), num_gpu_blocks_override=4) as llm:
        add(llm, Ask("large", "ann", [5] * 120, 9))
        add(llm, Ask("small", "bob", [5, 6, 7], 4))
        for _ in range(20):
            llm.llm_engine.step()
        watch = scheduler_of(llm).watch
        assert [found.property for found in watch.violations] == [
            "feasible-or-refused",
            *["tick-feeds"] * 20,
        ]
        assert watch.tokens_fed == 0
        llm.llm_engine.abort_request(["large", "small"])


class SharesABlock(OwnScheduler):
    """Tells the workers that every request's first block is the same one."""

    def schedule(self, throttle_prefills: bool = False) -> Any:
        output = super().schedule(throttle_prefills)
        for new in output.scheduled_new_reqs:
            new.block_ids[0][0] = 1
        return output


def test_a_block_with_two_owners_is_seen(model_folder) -> None:  # noqa: F811
    with engine(model_folder, scheduler=watched(SharesABlock)) as llm:
        for ask in mixed_asks(3):
            add(llm, ask)
        step_to_end(llm)
        assert "blocks-conserved" in {
            found.property for found in scheduler_of(llm).watch.violations
        }


def test_an_abort_while_the_batch_is_out_is_heard_of(model_folder) -> None:  # noqa: F811
    with engine(model_folder, scheduler=watched(OwnScheduler)) as llm:
        scheduler, core = scheduler_of(llm), core_of(llm)
        add(llm, Ask("a", "ann", [5, 6, 7], 50), stop_token_ids=[])
        add(llm, Ask("b", "bob", [8, 9], 3), stop_token_ids=[])
        llm.llm_engine.step()
        (internal,) = (name for name in scheduler.requests if name.startswith("a"))
        batch = scheduler.schedule()
        ran = core.model_executor.execute_model(batch) or core.model_executor.sample_tokens(None)
        scheduler.finish_requests(internal, RequestStatus.FINISHED_ABORTED)
        scheduler.update_from_output(batch, ran)
        while scheduler.has_requests():
            core.step()
        assert scheduler.watch.violations == []
        assert scheduler.watch.monitor.live == 0


def test_an_abort_is_heard_of(model_folder) -> None:  # noqa: F811
    with engine(model_folder, scheduler=watched(OwnScheduler)) as llm:
        add(llm, Ask("r", "ann", [5] * 40, 100), stop_token_ids=[])
        for _ in range(3):
            llm.llm_engine.step()
        llm.llm_engine.abort_request(["r"])
        step_to_end(llm)
        watch = scheduler_of(llm).watch
        assert watch.violations == []
        assert watch.monitor.live == 0


def test_what_was_found_is_what_the_example_prints() -> None:
    found_by_example("own_schedulers_vllm.py")
