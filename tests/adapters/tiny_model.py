"""A tiny random model, and the requests that the engines' tests run on it.

Its weights are large (`initializer_range`): with the usual small ones the next
token hardly depends on the context, and a wrong block would go unnoticed.
"""

from random import Random
from typing import Any, NamedTuple

VOCABULARY = 128
STOP_TOKENS = [16, 54]
"""Token ids that the model yields now and then, so that some requests end early."""
MODEL_LEN = 512
"""Positions that the model knows."""


class Ask(NamedTuple):
    """One request, in no engine's words."""

    request_id: str
    user_id: str
    prompt: list[int]
    max_tokens: int


def llama() -> Any:
    """Return the model, the same each time, in transformers' form."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)  # tiny matrices: more threads only wait for each other
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=MODEL_LEN,
        initializer_range=0.5,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config).eval()


def sliding() -> Any:
    """Return a model whose layers see a window of the context only, which is refused."""
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM(
        MistralConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            sliding_window=16,
        )
    )


def mixed_asks(count: int = 40, prompt_max: int = 120, output_max: int = 60) -> list[Ask]:
    """Return requests of three users, with prompts and outputs of all lengths."""
    draw = Random(7)
    return [
        Ask(
            request_id=f"user{number % 3}/{number}",
            user_id=f"user{number % 3}",
            prompt=[draw.randrange(3, VOCABULARY) for _ in range(draw.randint(1, prompt_max))],
            max_tokens=draw.randint(1, output_max),
        )
        for number in range(count)
    ]
