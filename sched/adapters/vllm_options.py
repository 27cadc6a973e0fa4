"""What vLLM can be started with that batchproof's scheduler does not honour, as a table."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

POLICY_OPTIONS: Final[Mapping[str, Any]] = {"policy": None}
"""What `additional_config["batchproof"]` may hold, with the defaults."""


class Option(NamedTuple):
    """An option of vLLM that is refused when it is asked for."""

    name: str
    is_asked_for: Callable[[Any], Any]
    """Of a `VllmConfig`."""
    remedy: str


OPTIONS: Final = (
    Option(
        "async_scheduling",
        lambda config: config.scheduler_config.async_scheduling,
        "two batches would be in flight: --no-async-scheduling, async_scheduling=False",
    ),
    Option(
        "enable_prefix_caching",
        lambda config: config.cache_config.enable_prefix_caching,
        "every block has one owner: --no-enable-prefix-caching, enable_prefix_caching=False",
    ),
    Option(
        "policy (of vLLM's own scheduler)",
        lambda config: config.scheduler_config.policy != "fcfs",
        "additional_config={'batchproof': {'policy': ...}} chooses batchproof's",
    ),
    Option(
        "speculative_config",
        lambda config: config.speculative_config,
        "no speculative decoding: leave it unset",
    ),
    Option("lora_config", lambda config: config.lora_config, "no LoRA: enable_lora=False"),
    Option(
        "kv_transfer_config",
        lambda config: config.kv_transfer_config,
        "no KV connectors: leave it unset",
    ),
    Option(
        "ec_transfer_config",
        lambda config: config.ec_transfer_config,
        "no encoder-cache connectors: leave it unset",
    ),
    Option(
        "kv_events_config",
        lambda config: config.kv_events_config and config.kv_events_config.enable_kv_cache_events,
        "no KV cache events: leave it unset",
    ),
    Option(
        "a multimodal or encoder-decoder model",
        lambda config: (
            config.model_config.is_multimodal_model or config.model_config.is_encoder_decoder
        ),
        "use a decoder-only text model",
    ),
    Option(
        "runner",
        lambda config: config.model_config.runner_type != "generate",
        "models that generate text only: runner='generate'",
    ),
    Option(
        "enable_prompt_embeds",
        lambda config: config.model_config.enable_prompt_embeds,
        "prompts are token ids: leave it unset",
    ),
    Option(
        "return_sampling_mask",
        lambda config: config.model_config.return_sampling_mask,
        "leave it unset",
    ),
    Option(
        "enable_return_routed_experts",
        lambda config: config.aux_output_config.enabled,
        "leave it unset",
    ),
    Option(
        "kv_cache_metrics",
        lambda config: config.observability_config.kv_cache_metrics,
        "leave it unset",
    ),
    Option(
        "pipeline_parallel_size",
        lambda config: config.parallel_config.pipeline_parallel_size > 1,
        "several batches would be in flight: 1",
    ),
    Option(
        "data_parallel_size",
        lambda config: config.parallel_config.data_parallel_size > 1,
        "not tried: start one engine for each replica",
    ),
    Option(
        "decode_context_parallel_size",
        lambda config: (
            config.parallel_config.decode_context_parallel_size > 1
            or config.parallel_config.prefill_context_parallel_size > 1
        ),
        "a block would be spread over several workers: 1, as prefill_context_parallel_size",
    ),
    Option(
        "enable_chunked_prefill",
        lambda config: not config.scheduler_config.enable_chunked_prefill,
        "prompts are chunked always: leave it True",
    ),
    Option(
        "long_prefill_token_threshold_adaptive",
        lambda config: config.scheduler_config.long_prefill_token_threshold_adaptive,
        "the chunk size is fixed: False",
    ),
    Option(
        "max_num_active_seqs",
        lambda config: config.scheduler_config.max_num_active_seqs is not None,
        "memory and max_num_seqs bound what runs: leave it unset",
    ),
    Option(
        "scheduler_reserve_full_isl",
        lambda config: not config.scheduler_config.scheduler_reserve_full_isl,
        "an admission always takes the blocks of the whole prompt: leave it True",
    ),
    Option(
        "watermark",
        lambda config: config.scheduler_config.watermark,
        "admission follows the policy, which keeps no such reserve: 0.0",
    ),
    Option(
        "prefill_schedule_interval",
        lambda config: config.scheduler_config.prefill_schedule_interval > 1,
        "prefills are scheduled in every step: 1",
    ),
    Option(
        "VLLM_USE_V2_MODEL_RUNNER",
        lambda config: config.use_v2_model_runner,
        "not tried: set this environment variable to 0",
    ),
)
"""Asked of the `VllmConfig` that the engine is started with."""


def unsupported_options(
    vllm_config: Any, kv_cache_config: Any, block_size: int
) -> Iterator[tuple[str, str]]:
    """Yield each option that cannot be honoured, and what to do about it."""
    for option in OPTIONS:
        if option.is_asked_for(vllm_config):
            yield option.name, option.remedy
    kinds = [type(group.kv_cache_spec).__name__ for group in kv_cache_config.kv_cache_groups]
    if kinds != ["FullAttentionSpec"]:
        yield (
            f"a model whose cache is of {', '.join(kinds) or 'no kind'}",
            "use one whose layers all attend to the whole context",
        )
    elif kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size != block_size:
        yield "a cache whose blocks differ from the scheduler's", "leave block_size to vLLM"
    ours = (vllm_config.additional_config or {}).get("batchproof", {})
    for name in set(ours) - set(POLICY_OPTIONS):
        yield (
            f"additional_config['batchproof'][{name!r}]",
            f"there are: {', '.join(POLICY_OPTIONS)}",
        )
