"""User A fills vLLM's memory, user B sends one short request: ticks to its first token.

Run it where vLLM and batchproof are installed: python examples/fairness_vllm.py
The model is tiny and random, the engine real. A tick is one step of the engine.
"""

import os
import tempfile

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # a step of the engine is a call here
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
import vllm
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams

from batchproof.sched.adapters.vllm import BatchproofScheduler

BLOCKS = 48
ENGINE = {
    "block_size": 32,
    "num_gpu_blocks_override": BLOCKS + 1,  # one is vLLM's null block
    "max_num_batched_tokens": 128,
    "max_num_seqs": 16,
    "max_model_len": 512,
    "enable_prefix_caching": False,
    "async_scheduling": False,
    "enforce_eager": True,
    "dtype": "float32",
    "skip_tokenizer_init": True,
}
A_REQUESTS, A_PROMPT, A_OUTPUT = 40, 128, 64
B_PROMPT, B_OUTPUT = 64, 8
B_ARRIVES = 40
"""The tick before which B submits: A holds all of the memory by then."""

SCHEDULERS = {
    "vLLM's own, first come first served": {},
    "batchproof, stall-free": {
        "scheduler_cls": BatchproofScheduler,
        "additional_config": {"batchproof": {"policy": "stall-free"}},
    },
    "batchproof, fair-lane": {
        "scheduler_cls": BatchproofScheduler,
        "additional_config": {"batchproof": {"policy": "fair-lane"}},
    },
}


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


def submit(llm: LLM, user: str, number: int, prompt: int, output: int) -> None:
    """Submit a request of `user`: `prompt` tokens in, exactly `output` out."""
    llm.llm_engine.add_request(
        f"{user}{number}",
        {"prompt_token_ids": [5 + number] * prompt},
        SamplingParams(
            temperature=0,
            max_tokens=output,
            ignore_eos=True,
            detokenize=False,
            extra_args={"user_id": user},
        ),
    )


def ticks_to_first_token(llm: LLM, a_requests: int) -> tuple[int, int]:
    """Return the ticks from B's arrival to its first token, and those of the whole run."""
    for number in range(a_requests):
        submit(llm, "A", number, A_PROMPT, A_OUTPUT)
    tick, first = 0, 0
    while tick <= B_ARRIVES or llm.llm_engine.has_unfinished_requests():
        if tick == B_ARRIVES:
            submit(llm, "B", 0, B_PROMPT, B_OUTPUT)
        tick += 1
        outputs = llm.llm_engine.step()
        if not first and any(output.request_id == "B0" for output in outputs):
            first = tick
    return first - B_ARRIVES, tick


def main() -> None:
    """Print B's time to first token under each scheduler."""
    print(f"vLLM {vllm.__version__}; {BLOCKS} blocks of 32 tokens.")
    print(f"A has {A_REQUESTS} requests of {A_PROMPT} + {A_OUTPUT} tokens,")
    print(f"B one of {B_PROMPT} + {B_OUTPUT}, before tick {B_ARRIVES}.\n")
    print(f"{'ticks to the first token of B':38}  alone  with A  ticks in all")
    with tempfile.TemporaryDirectory() as folder:
        save_random_model(folder)
        for name, options in SCHEDULERS.items():
            llm = LLM(folder, **ENGINE, **options)
            alone, _ = ticks_to_first_token(llm, 0)
            with_a, total = ticks_to_first_token(llm, A_REQUESTS)
            print(f"{name:38}  {alone:5}  {with_a:6}  {total:12}")
            llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
