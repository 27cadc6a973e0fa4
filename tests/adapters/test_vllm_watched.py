"""vLLM's own scheduler, watched: what holds of it, what does not, and that it would be seen."""

from typing import Any

import pytest

pytest.importorskip("torch", reason="make test-engines runs it: torch is not here")
pytest.importorskip("vllm", reason="make test-engines runs it: vllm is not here")

from adapters.test_vllm import (
    add,
    engine,
    model_folder,  # noqa: F401
    scheduler_of,
    step_to_end,
    tokens,
)
from adapters.tiny_model import Ask, mixed_asks
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.scheduler import Scheduler as OwnScheduler

from batchproof.sched.adapters.vllm_watched import watched

pytestmark = pytest.mark.engines


def test_vllms_own_scheduler_keeps_the_rules_under_memory_pressure(model_folder) -> None:  # noqa: F811
    with engine(model_folder, scheduler=watched(OwnScheduler)) as llm:
        made = tokens(llm, mixed_asks())
        watch = scheduler_of(llm).watch
    assert len(made) == 40
    assert watch.violations == []
    assert watch.monitor.live == 0
    assert watch.preemptions > 0
    # What it does not set out to do is noticed: blocks are taken chunk by chunk.
    assert {found.property for found in watch.monitor.violations} == {"blocks-cover-context"}


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
