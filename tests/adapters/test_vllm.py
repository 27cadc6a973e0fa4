"""vLLM's engine, in this process and on the CPU, on the verified scheduler."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from adapters.documents import HOW_TO, printed_by_example, run_blocks
from adapters.tiny_model import STOP_TOKENS, Ask, llama, mixed_asks

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",  # the scheduler can be looked at
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="ERROR",
    HF_HUB_OFFLINE="1",
)

pytest.importorskip("torch", reason="make test-engines runs it: torch is not here")
vllm = pytest.importorskip("vllm", reason="make test-engines runs it: vllm is not here")

from vllm import LLM, SamplingParams  # noqa: E402
from vllm.engine.arg_utils import EngineArgs  # noqa: E402
from vllm.v1.core.sched.interface import PauseState  # noqa: E402
from vllm.v1.core.sched.scheduler import Scheduler as OwnScheduler  # noqa: E402

from batchproof.sched.adapters import vllm as adapter  # noqa: E402
from batchproof.sched.adapters.vllm import BatchproofScheduler  # noqa: E402
from batchproof.sched.adapters.vllm_options import OPTIONS, unsupported_options  # noqa: E402
from batchproof.sched.errors import ExecutorError, LimitsError, MisuseError  # noqa: E402
from batchproof.sched.policy.registry import POLICIES  # noqa: E402
from batchproof.sched.replay import Replay  # noqa: E402
from batchproof.sched.run_recording import RunRecording  # noqa: E402

pytestmark = pytest.mark.engines

BLOCKS = 12
OPTIONS_OF_THE_ENGINE: dict[str, Any] = {
    "skip_tokenizer_init": True,
    "dtype": "float32",
    "enforce_eager": True,
    "block_size": 32,  # the CPU's attention needs a multiple of 32
    "num_gpu_blocks_override": BLOCKS + 1,  # one is the null block
    "max_model_len": 256,
    "max_num_batched_tokens": 128,
    "max_num_seqs": 5,
    "long_prefill_token_threshold": 32,
    "enable_prefix_caching": False,
    "async_scheduling": False,
}
"""So little that prompts are chunked, requests preempted, and seats and budget run out."""


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("model")
    llama().save_pretrained(folder)
    return str(folder)


@contextmanager
def engine(
    model_folder: str, scheduler: type | None = BatchproofScheduler, **options: Any
) -> Iterator[LLM]:
    """An engine, alone in this process: what engines share there goes with the first to end."""
    llm = LLM(model_folder, **{**OPTIONS_OF_THE_ENGINE, "scheduler_cls": scheduler, **options})
    yield llm
    llm.llm_engine.engine_core.shutdown()


@pytest.fixture
def ours(model_folder) -> Iterator[LLM]:
    """An engine on the verified scheduler, which must be empty again in the end."""
    with engine(model_folder) as llm:
        yield llm
        scheduler = scheduler_of(llm)
        assert scheduler.stats()["live"] == {
            "waiting": 0,
            "prefilling": 0,
            "decoding": 0,
            "free_blocks": BLOCKS,
        }
        assert scheduler.get_request_counts() == (0, 0)
        assert scheduler.get_kv_cache_usage() == 0


@pytest.fixture(scope="module")
def expected(model_folder) -> dict[str, list[int]]:
    """What vLLM's own scheduler makes of the mixed requests, with the same small memory."""
    with engine(model_folder, scheduler=None) as llm:
        assert type(scheduler_of(llm)) is OwnScheduler
        return tokens(llm, mixed_asks())


@pytest.fixture(scope="module")
def config(model_folder) -> Any:
    """A configuration that asks for nothing that is refused."""
    return EngineArgs(model_folder, **OPTIONS_OF_THE_ENGINE).create_engine_config()


def core_of(llm: LLM) -> Any:
    return llm.llm_engine.engine_core.engine_core


def scheduler_of(llm: LLM) -> Any:
    return core_of(llm).scheduler


def sampling(ask: Ask, **options: Any) -> SamplingParams:
    return SamplingParams(
        temperature=0,
        max_tokens=ask.max_tokens,
        detokenize=False,
        **{
            "stop_token_ids": STOP_TOKENS,
            "extra_args": {"user_id": ask.user_id},
            **options,
        },
    )


def outputs(llm: LLM, asks: Sequence[Ask], **options: Any) -> list[Any]:
    return [
        output.outputs[0]
        for output in llm.generate(
            [{"prompt_token_ids": ask.prompt} for ask in asks],
            [sampling(ask, **options) for ask in asks],
            use_tqdm=False,
        )
    ]


def tokens(llm: LLM, asks: Sequence[Ask]) -> dict[str, list[int]]:
    made = outputs(llm, asks)
    return {ask.request_id: list(out.token_ids) for ask, out in zip(asks, made, strict=True)}


@pytest.mark.parametrize("policy", POLICIES)
def test_tokens_are_those_of_vllms_own_scheduler_whatever_the_policy(
    model_folder, expected, policy
) -> None:
    with engine(model_folder, additional_config={"batchproof": {"policy": policy}}) as llm:
        assert tokens(llm, mixed_asks()) == expected


def test_requests_end_in_both_ways_and_none_is_degenerate(expected) -> None:
    lengths = {ask.request_id: ask.max_tokens for ask in mixed_asks()}
    stopped = [name for name, made in expected.items() if made[-1] in STOP_TOKENS]
    assert 5 < len(stopped) < 35
    assert any(len(made) < lengths[name] for name, made in expected.items())
    assert len({token for made in expected.values() for token in made}) > 40


def test_memory_was_short_enough_to_chunk_and_to_preempt(model_folder, expected) -> None:
    with engine(model_folder, additional_config={"batchproof": {"policy": "stall-free"}}) as llm:
        assert tokens(llm, mixed_asks()) == expected
        stats = scheduler_of(llm).stats()
    assert stats["preemptions"] > 0
    assert stats["tokens"]["recomputed"] > 0
    assert stats["kv"]["blocks_max"] == BLOCKS
    assert stats["batch"]["sequences_max"] == OPTIONS_OF_THE_ENGINE["max_num_seqs"]
    assert any(len(ask.prompt) > 32 for ask in mixed_asks())
    assert set(stats["users"]) == {"user0", "user1", "user2"}


class TwoOwners(BatchproofScheduler):
    """Makes two of the scheduler's blocks the same block of the engine."""

    def _engine_block(self, block: int) -> int:
        return super()._engine_block(block - block % 2)


class ShiftedTable(BatchproofScheduler):
    """Sends each new part of a block table turned by one entry: right blocks, wrong places."""

    def _schedule(self, sequence: Any, output: Any) -> None:
        blocks = sequence.blocks
        sequence.blocks = blocks[1:] + blocks[:1]
        super()._schedule(sequence, output)
        sequence.blocks = blocks


@pytest.mark.parametrize("wrong", [TwoOwners, ShiftedTable])
def test_a_wrong_block_table_changes_tokens(model_folder, expected, wrong) -> None:
    with engine(model_folder, scheduler=wrong) as llm:
        assert tokens(llm, mixed_asks()) != expected


def logprobs(llm: LLM, asks: Sequence[Ask]) -> list[Any]:
    made = llm.generate(
        [{"prompt_token_ids": ask.prompt} for ask in asks],
        [sampling(ask, logprobs=2, prompt_logprobs=2) for ask in asks],
        use_tqdm=False,
    )
    return [
        [
            {token: round(of_token.logprob, 3) for token, of_token in (of_place or {}).items()}
            for of_place in (*output.prompt_logprobs, *output.outputs[0].logprobs)
        ]
        for output in made
    ]


def test_logprobs_are_those_of_vllms_own_scheduler(model_folder) -> None:
    asks = mixed_asks(6)
    with engine(model_folder) as llm:
        ours = logprobs(llm, asks)
    with engine(model_folder, scheduler=None) as llm:
        assert logprobs(llm, asks) == ours


def test_an_engine_in_a_process_of_its_own_finds_it_by_name(model_folder, expected) -> None:
    asks = mixed_asks(5)
    script = f"""
import json
from vllm import LLM, SamplingParams
if __name__ == "__main__":
    llm = LLM({model_folder!r}, **{OPTIONS_OF_THE_ENGINE!r},
              scheduler_cls="batchproof.sched.adapters.vllm.BatchproofScheduler")
    made = llm.generate(
        [{{"prompt_token_ids": ask[2]}} for ask in {[tuple(ask) for ask in asks]!r}],
        [SamplingParams(temperature=0, max_tokens=ask[3], stop_token_ids={STOP_TOKENS!r},
                        detokenize=False) for ask in {[tuple(ask) for ask in asks]!r}],
        use_tqdm=False)
    print("TOKENS", json.dumps([list(out.outputs[0].token_ids) for out in made]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    answer = [line for line in done.stdout.splitlines() if line.startswith("TOKENS ")]
    assert answer, done.stderr[-3000:]
    made = json.loads(answer[0].removeprefix("TOKENS "))
    assert made == [expected[ask.request_id] for ask in asks]


def test_a_request_may_fill_the_models_context(ours) -> None:
    (made,) = outputs(ours, [Ask("r", "u", [5] * 250, 100)], stop_token_ids=[])
    assert made.finish_reason == "length"
    assert len(made.token_ids) == OPTIONS_OF_THE_ENGINE["max_model_len"] - 250


def test_a_request_that_cannot_fit_ends_with_the_reason(model_folder, monkeypatch) -> None:
    from vllm.v1.core import kv_cache_utils

    # vLLM makes sure that the longest request fits; with this check bypassed, rule 4 still holds.
    monkeypatch.setattr(kv_cache_utils, "_check_enough_kv_cache_memory", lambda *_: None)
    good, large = Ask("good", "u", [5, 6, 7], 4), Ask("large", "u", [5] * 120, 9)
    with engine(model_folder, num_gpu_blocks_override=4) as llm:
        refused, made = outputs(llm, [large, good], stop_token_ids=[])
        assert not scheduler_of(llm).has_unfinished_requests()
    assert refused.finish_reason == "error"
    assert "need 4 blocks, the pool has 3" in refused.stop_reason
    assert not refused.token_ids
    assert made.finish_reason == "length"


def test_what_a_request_may_not_ask_for_is_refused_by_name(ours) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    structured = StructuredOutputsParams(choice=["yes", "no"])
    request = SimpleNamespace(
        request_id="r",
        client_index=0,
        lora_request=object(),
        mm_features=[],
        pooling_params=None,
        prompt_embeds=None,
        resumable=True,
        structured_output_request=structured,
        get_finished_reason=lambda: None,
    )
    scheduler = scheduler_of(ours)
    scheduler.add_request(request)
    assert scheduler.has_requests()
    empty = scheduler.schedule()
    assert not empty.num_scheduled_tokens
    (output,) = scheduler.update_from_output(empty, None)[0].outputs
    assert output.stop_reason == (
        "request 'r' asks for LoRA, streaming input, structured output: not supported"
    )
    assert not scheduler.has_requests()


def add(llm: LLM, ask: Ask, **options: Any) -> None:
    llm.llm_engine.add_request(
        ask.request_id, {"prompt_token_ids": ask.prompt}, sampling(ask, **options)
    )


def step_to_end(llm: LLM) -> dict[str, list[int]]:
    made: dict[str, list[int]] = {}
    while llm.llm_engine.has_unfinished_requests():
        for output in llm.llm_engine.step():
            if output.finished:
                made[output.request_id] = list(output.outputs[0].token_ids)
    llm.llm_engine.step()  # the workers hear of those that ended last
    return made


def test_an_aborted_request_gives_its_blocks_back_and_disturbs_nobody(ours, expected) -> None:
    asks = mixed_asks(6)
    add(ours, Ask("endless", "u", [5] * 40, 200), stop_token_ids=[])
    for ask in asks:
        add(ours, ask)
    for _ in range(4):
        ours.llm_engine.step()
    ours.llm_engine.abort_request(["endless"])
    made = step_to_end(ours)
    assert made == {ask.request_id: expected[ask.request_id] for ask in asks}
    assert scheduler_of(ours).stats()["requests"]["cancelled"] == 1


def test_a_request_aborted_while_its_batch_is_out_is_heard_of_no_more(ours) -> None:
    scheduler, core = scheduler_of(ours), core_of(ours)
    add(ours, Ask("a", "u", [5, 6, 7], 50), stop_token_ids=[])
    add(ours, Ask("b", "u", [8, 9], 3), stop_token_ids=[])
    ours.llm_engine.step()
    (internal,) = (name for name in scheduler._requests if name.startswith("a"))
    batch = scheduler.schedule()
    ran = core.model_executor.execute_model(batch) or core.model_executor.sample_tokens(None)
    (aborted,) = scheduler.finish_requests(internal, adapter.RequestStatus.FINISHED_ABORTED)
    assert aborted.is_finished()
    assert scheduler.stats()["live"]["free_blocks"] < BLOCKS, "its memory is in use"
    (of_client,) = scheduler.update_from_output(batch, ran).values()
    assert [output.request_id[0] for output in of_client.outputs] == ["b"]
    batch = scheduler.schedule()
    assert internal in batch.finished_req_ids
    ran = core.model_executor.execute_model(batch) or core.model_executor.sample_tokens(None)
    (of_client,) = scheduler.update_from_output(batch, ran).values()
    assert of_client.outputs[0].finished


def test_pausing_keeps_requests_and_goes_on(ours) -> None:
    scheduler = scheduler_of(ours)
    add(ours, Ask("r", "u", [5, 6, 7], 3), stop_token_ids=[])
    ours.llm_engine.step()
    with pytest.raises(MisuseError, match="mode 'wait'"):
        scheduler.set_pause_state(PauseState.PAUSED_NEW)
    with pytest.raises(MisuseError, match="clear_cache"):
        scheduler.reset_prefix_cache(reset_running_requests=True)
    assert scheduler.reset_prefix_cache() is False
    scheduler.set_pause_state(PauseState.PAUSED_ALL)
    assert not scheduler.has_unfinished_requests()
    assert not scheduler.schedule().num_scheduled_tokens
    scheduler.set_pause_state(PauseState.UNPAUSED)
    assert len(step_to_end(ours)["r"]) == 3
    assert scheduler.reset_prefix_cache() is True


@pytest.mark.parametrize(
    ("extra", "session", "user"),
    [({"user_id": "ann"}, "s1", "ann"), ({}, "s1", "s1"), (None, None, "default")],
)
def test_the_user_is_named_by_the_request_else_its_session(extra, session, user) -> None:
    request = SimpleNamespace(session_id=session, sampling_params=SimpleNamespace(extra_args=extra))
    assert adapter.user_of(request) == user


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"enable_prefix_caching": True}, "enable_prefix_caching"),
        ({"scheduling_policy": "priority"}, "policy"),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 256}, "enable_chunked"),
        ({"additional_config": {"batchproof": {"colour": 1}}}, "colour"),
        ({"additional_config": {"batchproof": {"policy": "nobodys"}}}, "nobodys"),
    ],
)
def test_an_option_that_cannot_be_honoured_stops_the_engine(model_folder, options, name) -> None:
    with pytest.raises(LimitsError, match=name), engine(model_folder, **options):
        pass


ASKED_FOR = {
    "async_scheduling": ("scheduler_config.async_scheduling", True),
    "enable_prefix_caching": ("cache_config.enable_prefix_caching", True),
    "policy (of vLLM's own scheduler)": ("scheduler_config.policy", "priority"),
    "speculative_config": ("speculative_config", object()),
    "lora_config": ("lora_config", object()),
    "kv_transfer_config": ("kv_transfer_config", object()),
    "ec_transfer_config": ("ec_transfer_config", object()),
    "kv_events_config": ("kv_events_config", SimpleNamespace(enable_kv_cache_events=True)),
    "a multimodal or encoder-decoder model": ("model_config.is_multimodal_model", True),
    "runner": ("model_config.runner_type", "pooling"),
    "enable_prompt_embeds": ("model_config.enable_prompt_embeds", True),
    "return_sampling_mask": ("model_config.return_sampling_mask", True),
    "enable_return_routed_experts": ("aux_output_config.enabled", True),
    "kv_cache_metrics": ("observability_config.kv_cache_metrics", True),
    "pipeline_parallel_size": ("parallel_config.pipeline_parallel_size", 2),
    "data_parallel_size": ("parallel_config.data_parallel_size", 2),
    "decode_context_parallel_size": ("parallel_config.decode_context_parallel_size", 2),
    "enable_chunked_prefill": ("scheduler_config.enable_chunked_prefill", False),
    "long_prefill_token_threshold_adaptive": (
        "scheduler_config.long_prefill_token_threshold_adaptive",
        True,
    ),
    "max_num_active_seqs": ("scheduler_config.max_num_active_seqs", 3),
    "scheduler_reserve_full_isl": ("scheduler_config.scheduler_reserve_full_isl", False),
    "watermark": ("scheduler_config.watermark", 0.1),
    "prefill_schedule_interval": ("scheduler_config.prefill_schedule_interval", 2),
    "VLLM_USE_V2_MODEL_RUNNER": ("use_v2_model_runner", True),
}
"""Option -> the attribute of a `VllmConfig` that asks for it, and how."""


class Changed:
    """An object with one attribute, by its dotted path, changed; the rest as it was."""

    def __init__(self, inner: Any, path: str, value: Any) -> None:
        self._inner = inner
        self._name, _, self._rest = path.partition(".")
        self._value = value
        getattr(inner, self._name)  # there must be one

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if name != self._name:
            return inner
        return Changed(inner, self._rest, self._value) if self._rest else self._value


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_option_of_the_table_is_refused_when_asked_for_and_only_then(config, option) -> None:
    path, value = ASKED_FOR[option.name]
    assert not option.is_asked_for(config)
    assert option.is_asked_for(Changed(config, path, value))


@pytest.mark.parametrize(
    ("kinds", "block_size", "name"),
    [
        (["SlidingWindowSpec"], 32, "SlidingWindowSpec"),
        (["FullAttentionSpec", "MambaSpec"], 32, "FullAttentionSpec, MambaSpec"),
        ([], 32, "no kind"),
        (["FullAttentionSpec"], 64, "blocks differ"),
    ],
)
def test_a_cache_of_another_kind_is_refused_by_name(config, kinds, block_size, name) -> None:
    groups = [SimpleNamespace(kv_cache_spec=type(kind, (), {"block_size": 32})()) for kind in kinds]
    cache = SimpleNamespace(kv_cache_groups=groups)
    refused = dict(unsupported_options(config, cache, block_size))
    assert [option for option in refused if name in option]


def test_more_than_one_token_for_a_sequence_is_refused() -> None:
    with pytest.raises(ExecutorError, match="2 tokens sampled"):
        adapter._only([4, 5], SimpleNamespace(request_id="r"))  # type: ignore[arg-type]


def test_a_version_that_was_not_tried_is_warned_about(model_folder, monkeypatch) -> None:
    monkeypatch.setattr(adapter, "TRIED", ("1.2.3", "4.5.6"))
    with (
        pytest.warns(RuntimeWarning, match=r"was not tried.*tried: 1\.2\.3, 4\.5\.6"),
        engine(model_folder),
    ):
        pass


def test_stats_are_logged_for_vllms_metrics(model_folder) -> None:
    with engine(model_folder, disable_log_stats=False) as llm:
        add(llm, Ask("r", "u", [5] * 70, 5), stop_token_ids=[])
        llm.llm_engine.step()
        stats = scheduler_of(llm).make_stats()
        step_to_end(llm)
    assert (stats.num_running_reqs, stats.num_waiting_reqs) == (1, 0)
    assert stats.kv_cache_usage == 3 / BLOCKS


def test_the_tests_run_where_the_checkout_is() -> None:
    assert Path(adapter.__file__).resolve().is_relative_to(Path(__file__).resolve().parents[2])


def test_the_how_to_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_blocks("use-with-vllm.md")
    assert [len(output.outputs[0].token_ids) for output in names["outputs"]] == [8, 8]
    assert names["watch"].monitor.ticks == 8
    assert Replay(RunRecording("vllm-run.jsonl")).run().broken is None


def test_the_example_prints_what_the_how_to_shows() -> None:
    shown = (HOW_TO / "use-with-vllm.md").read_text()
    assert printed_by_example("fairness_vllm.py") in shown
