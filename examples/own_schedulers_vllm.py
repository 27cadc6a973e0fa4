"""What vLLM's own scheduler does when memory is short or somebody goes first, watched.

Where vLLM and batchproof are installed: python examples/own_schedulers_vllm.py
The model is tiny and random, the engine real; batchproof's scheduler runs beside it. A tick is
one step of the engine.
"""

import os
import tempfile
from typing import Any

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # a step of the engine is a call here
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

import torch
import vllm
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.scheduler import Scheduler

from batchproof.sched.adapters.vllm import BatchproofScheduler
from batchproof.sched.adapters.vllm_watched import watched

ENGINE: dict[str, Any] = {
    "block_size": 32,  # the CPU's attention needs a multiple of 32
    "max_num_batched_tokens": 512,
    "max_num_seqs": 64,
    "max_model_len": 512,
    "enable_prefix_caching": False,
    "async_scheduling": False,
    "enforce_eager": True,
    "dtype": "float32",
    "skip_tokenizer_init": True,
}
OWN: dict[str, Any] = {"scheduler_cls": watched(Scheduler)}
BY_PRIORITY: dict[str, Any] = {
    "scheduler_cls": watched(Scheduler, exempt=["fcfs-within-user"]),
    "scheduling_policy": "priority",
}


def ours(policy: str) -> dict[str, Any]:
    """Return the options that put batchproof's scheduler in vLLM's place."""
    return {
        "scheduler_cls": BatchproofScheduler,
        "additional_config": {"batchproof": {"policy": policy}},
    }


class Engine:
    """An engine, stepped by hand, with `blocks` blocks; one is vLLM's null block besides."""

    def __init__(self, folder: str, blocks: int, **options: Any) -> None:
        self._llm = LLM(
            folder, **{**ENGINE, "num_gpu_blocks_override": blocks + 1, **options}
        ).llm_engine
        self.scheduler = self._llm.engine_core.engine_core.scheduler

    def submit(self, user: str, number: int, prompt: int, output: int, priority: int = 0) -> None:
        """Submit a request of `user`: `prompt` tokens in, exactly `output` out."""
        self._llm.add_request(
            f"{user}{number}",
            {"prompt_token_ids": [5 + number % 100] * prompt},
            SamplingParams(
                temperature=0,
                max_tokens=output,
                ignore_eos=True,
                detokenize=False,
                extra_args={"user_id": user},
            ),
            priority=priority,
        )

    def step(self) -> list[Any]:
        """Run one tick; return the outputs of the requests that got a token."""
        return self._llm.step()

    def end(self) -> None:
        """Abort what is live, and shut down."""
        self._llm.abort_request(list(self._llm.output_processor.request_states), internal=True)
        self._llm.engine_core.shutdown()

    def was_fed(self) -> tuple[int, int]:
        """Return preemptions and tokens fed so far."""
        if hasattr(self.scheduler, "watch"):
            return self.scheduler.watch.preemptions, self.scheduler.watch.tokens_fed
        stats = self.scheduler.stats()
        return stats["preemptions"], stats["tokens"]["fed"]

    def violated(self) -> str:
        """Return the properties that were seen not to hold; none of batchproof's own scheduler."""
        watch = getattr(self.scheduler, "watch", None)
        found = [] if watch is None else watch.violations
        return ", ".join(sorted({violation.property for violation in found}))


def crowd(folder: str) -> None:
    """Print what each scheduler feeds of requests that do not fit together."""
    needed = 64 * (100 + 400 - 1)
    print("64 requests of 100 + 400 tokens, one user, 128 blocks of 32 tokens:")
    print(f"{needed:,} tokens are needed.\n")
    print(f"{'':34}preemptions  tokens fed  of needed  ticks  violated")
    for name, options in (
        ("vLLM's own", OWN),
        ("batchproof, stall-free", ours("stall-free")),
        ("batchproof, orca", ours("orca")),
    ):
        engine = Engine(folder, 128, **options)
        for number in range(64):
            engine.submit("A", number, 100, 400)
        ticks, ended = 0, 0
        while ended < 64:
            ended += sum(output.finished for output in engine.step())
            ticks += 1
        preemptions, fed = engine.was_fed()
        ratio = f"{fed / needed:.2f}"
        row = f"{name:34}{preemptions:11}{fed:12,}{ratio:>11}{ticks:7,}  {engine.violated()}"
        print(row.rstrip(), flush=True)
        engine.end()


def too_large(folder: str) -> None:
    """Print what becomes of small requests behind one that does not fit into the whole cache.

    vLLM makes sure at start that its longest request fits; here that check is bypassed.
    """
    kv_cache_utils._check_enough_kv_cache_memory = lambda *_: None
    print("\n120 + 9 tokens in 3 blocks of 32, two small requests behind it, 100 ticks; the check")
    print("at start that the longest request fits is bypassed:\n")
    print(f"{'':34}small ones answered  violated")
    for name, options in (("vLLM's own", OWN), ("batchproof, stall-free", ours("stall-free"))):
        engine = Engine(folder, 3, **options)
        engine.submit("A", 0, 120, 9)
        engine.submit("A", 1, 3, 4)
        engine.submit("A", 2, 3, 40)
        answered = 0
        for _ in range(100):
            answered += sum(o.finished and o.request_id != "A0" for o in engine.step())
        print(f"{name:34}{answered:12} of 2     {engine.violated()}".rstrip(), flush=True)
        engine.end()


def urgent_stream(folder: str) -> None:
    """Print how long a request waits behind a stream of more urgent ones that take all seats."""
    streams = (50, 100, 200)
    print("\nFour seats, always as many urgent requests of 16 + 8 tokens of another user, and one")
    print("that is not urgent: ticks to its first token, by how many ticks the stream lasts:\n")
    print(f"{'':34}" + "".join(f"{length:6}" for length in streams))
    for name, options in (
        ("vLLM's own, by priority", BY_PRIORITY),
        ("vLLM's own, first come", OWN),
        ("batchproof, stall-free", ours("stall-free")),
        ("batchproof, fair-lane", ours("fair-lane")),
    ):
        waits = [ticks_to_first_token(folder, options, length) for length in streams]
        print(f"{name:34}" + "".join(f"{wait:6}" for wait in waits), flush=True)


def ticks_to_first_token(folder: str, options: dict[str, Any], stream: int) -> int:
    """Return the ticks that the request which is not urgent waits, submitted after tick 5."""
    engine = Engine(folder, 64, max_num_seqs=4, **options)
    urgent, live, tick = 0, 0, 0
    while True:
        while live < 8 and tick < stream:
            engine.submit("urgent", urgent, 16, 8, priority=0)
            urgent, live = urgent + 1, live + 1
        if tick == 5:
            engine.submit("patient", 0, 16, 8, priority=1)
        tick += 1
        outputs = engine.step()
        live -= sum(output.finished for output in outputs)
        if any(output.request_id == "patient0" for output in outputs):
            engine.end()
            return tick - 5


def save_random_model(folder: str) -> None:
    """Write a model of two small layers to `folder`."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def main() -> None:
    """Print what was found."""
    with tempfile.TemporaryDirectory() as folder:
        save_random_model(folder)
        print(f"vLLM {vllm.__version__}")
        crowd(folder)
        too_large(folder)
        urgent_stream(folder)


if __name__ == "__main__":
    main()
