"""What transformers' own schedulers do when memory is short, watched; and batchproof's beside them.

Where both are installed: python examples/own_schedulers_transformers.py
The model is tiny and random, the engine real. A tick is one batch of the engine.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.generation.continuous_batching.scheduler import (
    SCHEDULER_MAPPING,
    FIFOScheduler,
    PrefillFirstScheduler,
)

from batchproof.sched.adapters.huggingface import batching_config
from batchproof.sched.adapters.huggingface_watched import watched

CROWD = [(100, 400)] * 64
CROWDED = {
    "page_size": 16,
    "num_blocks": 256,
    "max_batch_tokens": 512,
    "max_requests_per_batch": 64,
}
TOO_LARGE = [(420, 20), (3, 4), (3, 40)]
SMALL = {"page_size": 16, "num_blocks": 24, "max_batch_tokens": 64, "max_requests_per_batch": 6}

Configured = Callable[[dict[str, int]], ContinuousBatchingConfig]


def own(scheduler: Any) -> Configured:
    """Return what configures one of transformers' own schedulers, watched."""

    def configured(cache: dict[str, int]) -> ContinuousBatchingConfig:
        SCHEDULER_MAPPING[scheduler.__name__] = watched(scheduler)
        return ContinuousBatchingConfig(
            scheduler_type=scheduler.__name__, allow_block_sharing=False, **cache
        )

    return configured


def ours(policy: str) -> Configured:
    """Return what configures batchproof's scheduler."""
    return lambda cache: batching_config(name=policy, policy=policy, **cache)


SCHEDULERS: dict[str, Configured] = {
    "transformers' own, fifo": own(FIFOScheduler),
    "transformers' own, prefill_first": own(PrefillFirstScheduler),
    "batchproof, stall-free": ours("stall-free"),
    "batchproof, orca": ours("orca"),
}


def run(model: Any, config: ContinuousBatchingConfig, requests: Sequence[tuple[int, int]]) -> Any:
    """Run requests of one user, of (prompt, output) tokens each; return outputs and scheduler."""
    manager = model.init_continuous_batching(
        generation_config=GenerationConfig(do_sample=False, eos_token_id=-1),
        continuous_batching_config=config,
    )
    for number, (prompt, output) in enumerate(requests):
        manager.add_request([5 + number] * prompt, request_id=f"A/{number}", max_new_tokens=output)
    manager.start()
    outputs = [manager.get_result(timeout=600) for _ in requests]
    scheduler = manager.batch_processor.scheduler
    manager.stop(block=True)
    return outputs, scheduler


def what_was_fed(scheduler: Any) -> tuple[int, int, int, str]:
    """Return preemptions, tokens fed, ticks, and what was violated."""
    if hasattr(scheduler, "watch"):
        watch = scheduler.watch
        violated = sorted({found.property for found in watch.violations})
        return watch.preemptions, watch.tokens_fed, watch.monitor.ticks, ", ".join(violated)
    stats = scheduler.stats()
    return stats["preemptions"], stats["tokens"]["fed"], stats["ticks"], ""


def crowd(model: Any) -> None:
    """Print what each scheduler feeds of requests that do not fit together."""
    needed = sum(prompt + output - 1 for prompt, output in CROWD)
    print(
        f"64 requests of 100 + 400 tokens, one user, {CROWDED['num_blocks']} blocks of 16 tokens:"
    )
    print(f"{needed:,} tokens are needed.\n")
    print(f"{'':34}preemptions  tokens fed  of needed  ticks  violated")
    for name, configured in SCHEDULERS.items():
        _, scheduler = run(model, configured(CROWDED), CROWD)
        preemptions, fed, ticks, violated = what_was_fed(scheduler)
        ratio = f"{fed / needed:.2f}"
        print(f"{name:34}{preemptions:11}{fed:12,}{ratio:>11}{ticks:7,}  {violated}".rstrip())


def too_large(model: Any) -> None:
    """Print what becomes of small requests behind one that does not fit into the whole cache."""
    print(
        f"\n420 + 20 tokens in {SMALL['num_blocks']} blocks of 16, two small requests behind it:\n"
    )
    print(f"{'':34}small ones answered  error of the large one")
    for name in list(SCHEDULERS)[:3]:
        outputs, _ = run(model, SCHEDULERS[name](SMALL), TOO_LARGE)
        by_id = {output.request_id: output for output in outputs}
        answered = sum(by_id[request_id].error is None for request_id in ("A/1", "A/2"))
        error = (by_id["A/0"].error or "none").removeprefix("request 'A/0': ").partition(";")[0]
        print(f"{name:34}{answered:12} of 2     {error}", flush=True)


def random_model() -> LlamaForCausalLM:
    """Return a model of one small layer."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    return LlamaForCausalLM(config).eval()


def main() -> None:
    """Print what was found."""
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    print(f"transformers {transformers.__version__}")
    model = random_model()
    crowd(model)
    too_large(model)


if __name__ == "__main__":
    main()
