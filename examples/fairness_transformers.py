"""User A fills transformers' cache, user B sends one short request: ticks to its first token.

Run it where transformers and batchproof are installed: python examples/fairness_transformers.py
The model is tiny and random, the engine real. A tick is one batch of the engine.
"""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.generation.continuous_batching.scheduler import SCHEDULER_MAPPING

from batchproof.sched.adapters.huggingface import batching_config

BLOCKS = 48
CACHE = {
    "page_size": 32,
    "num_blocks": BLOCKS,
    "max_batch_tokens": 128,
    "max_requests_per_batch": 16,
    "allow_block_sharing": False,
}
A_REQUESTS, A_PROMPT, A_OUTPUT = 40, 128, 64
B_PROMPT, B_OUTPUT = 64, 8
B_ARRIVES = 40
"""The tick after which B submits: A holds all of the memory by then."""

SCHEDULERS: dict[str, Callable[[], ContinuousBatchingConfig]] = {
    "transformers' own, fifo": lambda: ContinuousBatchingConfig(scheduler_type="fifo", **CACHE),
    "transformers' own, prefill_first": lambda: ContinuousBatchingConfig(
        scheduler_type="prefill_first", **CACHE
    ),
    "batchproof, stall-free": lambda: batching_config(
        name="ours-stall-free", policy="stall-free", **CACHE
    ),
    "batchproof, fair-lane": lambda: batching_config(
        name="ours-fair-lane", policy="fair-lane", **CACHE
    ),
}


class Ticks:
    """Counts the batches of a scheduler, and notes in which each request got its first token."""

    def __init__(self, scheduler_type: str, at_tick: Callable[[int], None]) -> None:
        self.count = 0
        self.first_token: dict[str, int] = {}
        self._make_scheduler = SCHEDULER_MAPPING[scheduler_type]
        self._at_tick = at_tick
        SCHEDULER_MAPPING["counted"] = self._counted

    def _counted(self, **arguments: Any) -> Any:
        scheduler = self._make_scheduler(**arguments)
        schedule_batch = scheduler.schedule_batch

        def counted(*budgets: int) -> Any:
            answer = schedule_batch(*budgets)
            if answer[0]:
                self.count += 1
                for scheduled in answer[0]:
                    if scheduled.has_new_token:
                        self.first_token.setdefault(scheduled.state.request_id, self.count)
                self._at_tick(self.count)
            return answer

        scheduler.schedule_batch = counted
        return scheduler


def ticks_to_first_token(
    model: LlamaForCausalLM, config: ContinuousBatchingConfig, a_requests: int
) -> tuple[int, int]:
    """Return the ticks from B's arrival to its first token, and those of the whole run."""
    arrives = B_ARRIVES if a_requests else 1

    def submit(user: str, number: int, prompt: int, output: int) -> None:
        manager.add_request(
            [5 + number] * prompt, request_id=f"{user}/{number}", max_new_tokens=output
        )

    def at_tick(tick: int) -> None:
        if tick == arrives:
            submit("B", 0, B_PROMPT, B_OUTPUT)

    ticks = Ticks(config.scheduler_type, at_tick)
    config.scheduler_type = "counted"
    manager = model.init_continuous_batching(
        generation_config=GenerationConfig(do_sample=False, eos_token_id=-1),
        continuous_batching_config=config,
    )
    for number in range(a_requests):
        submit("A", number, A_PROMPT, A_OUTPUT)
    if not a_requests:
        submit("A", 0, 1, 1)  # one token: the engine ticks once, and B is alone from then on
    manager.start()
    for _ in range(max(a_requests, 1) + 1):
        manager.get_result(timeout=600)
    manager.stop(block=True)
    return ticks.first_token["B/0"] - arrives, ticks.count


def random_model() -> LlamaForCausalLM:
    """Return a model of two small layers."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    return LlamaForCausalLM(config).eval()


def main() -> None:
    """Print B's time to first token under each scheduler."""
    print(f"transformers {transformers.__version__}; {BLOCKS} blocks of 32 tokens.")
    print(f"A has {A_REQUESTS} requests of {A_PROMPT} + {A_OUTPUT} tokens,")
    print(f"B one of {B_PROMPT} + {B_OUTPUT}, after tick {B_ARRIVES}.\n")
    print(f"{'ticks to the first token of B':38}  alone  with A  ticks in all")
    model = random_model()
    for name, config in SCHEDULERS.items():
        alone, _ = ticks_to_first_token(model, config(), 0)
        with_a, total = ticks_to_first_token(model, config(), A_REQUESTS)
        print(f"{name:38}  {alone:5}  {with_a:6}  {total:12}")


if __name__ == "__main__":
    main()
