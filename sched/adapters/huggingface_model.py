"""A transformers model as an executor: its keys and values are in the scheduler's blocks.

`batchproof serve --model FOLDER` runs it. It is meant to be right first: the next
token is the most likely one, and each batch's context is copied out of the blocks
for the model's ordinary forward pass, which needs no kernel of its own.
"""

# pyright: reportMissingImports=false

import time
from collections.abc import Sequence
from inspect import signature
from typing import Any, NamedTuple

from batchproof.sched.adapters.engine import STOPPED, missing_engine, warn_if_untried
from batchproof.sched.adapters.huggingface import TRIED
from batchproof.sched.config import Limits
from batchproof.sched.errors import InputError, LimitsError
from batchproof.sched.executor import ScheduledSequence

try:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
    from transformers.cache_utils import DynamicLayer
except ModuleNotFoundError as missing:
    raise missing_engine(missing, "transformers", TRIED) from None


class Loaded(NamedTuple):
    """A model that was loaded from a folder, and what there is to know of it."""

    executor: "PagedModel"
    codec: "TokenizerCodec"
    eos_token: int
    """The token that ends a request; `STOPPED` if none does."""
    context_max: int | None
    """Positions that it knows; None if it does not say."""
    vocabulary: int
    """Its token ids are below this."""


def load(folder: str, limits: Limits) -> Loaded:
    """Load a model and its tokenizer from a folder, without looking anywhere else.

    Raises `InputError` where there is none, or one that cannot run this way,
    `LimitsError` for more blocks than there is memory for.
    """
    warn_if_untried("transformers", transformers.__version__, TRIED)
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InputError(
            f"model {folder!r}: transformers cannot load it: {str(error).strip()}"
        ) from None
    config = model.config.get_text_config()
    stops = _eos_tokens(model)
    eos_token = stops[0] if stops else STOPPED
    return Loaded(
        PagedModel(model, limits, stops, name=folder),
        TokenizerCodec(tokenizer),
        eos_token,
        getattr(config, "max_position_embeddings", None),
        config.vocab_size,
    )


def _eos_tokens(model: Any) -> list[int]:
    """Return the tokens that end a request, as `generate()` takes them."""
    ids = model.generation_config.eos_token_id
    if ids is None:
        ids = model.config.get_text_config().eos_token_id
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


class TokenizerCodec:
    """Text to tokens and back, by a model's own tokenizer; special tokens are no text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt; half of a surrogate pair counts as a `?`."""
        return list(self._tokenizer(text.encode(errors="replace").decode())["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of output tokens."""
        return str(
            self._tokenizer.decode(
                list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )


class PagedModel:
    """Runs batches on a model whose layers all attend to the whole context.

    All that it keeps of a request is in the blocks of its block table, so there is
    nothing to tell it of a request that ends or is preempted. `stops` are the
    tokens that end a request, the first of which it answers for any. Raises
    `InputError` for a model that cannot run this way, `LimitsError` for more blocks
    than there is memory for.
    """

    def __init__(
        self, model: Any, limits: Limits, stops: Sequence[int], name: str = "model"
    ) -> None:
        self._model = model
        self._block_size = limits.block_size
        self._stops = frozenset(stops)
        self._stop = stops[0] if stops else STOPPED
        known = signature(model.forward).parameters
        # Only the last position's logits are wanted, where the model can leave out the others.
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in known else {}
        self._cache_argument = "cache" if "cache" in known else "past_key_values"
        self._memory = self._reserve(limits, self._try_out(name))
        """Keys and values of each layer, by slot: block times `block_size` plus place in it."""

    def now(self) -> float:
        """Return the seconds since some moment in the past."""
        return time.monotonic()

    def forward(self, batch: Sequence[ScheduledSequence]) -> list[int]:
        """Run a batch: those that feed equally many tokens in one pass. Return each one's token."""
        tokens = [0] * len(batch)
        by_length: dict[int, list[int]] = {}
        for place, sequence in enumerate(batch):
            by_length.setdefault(len(sequence.tokens), []).append(place)
        with torch.inference_mode():
            for places in by_length.values():
                made = self._forward([batch[place] for place in places])
                for place, token in zip(places, made, strict=True):
                    tokens[place] = self._stop if token in self._stops else token
        return tokens

    def _forward(self, group: Sequence[ScheduledSequence]) -> list[int]:
        """Run sequences that feed equally many tokens, their contexts padded on the left."""
        fed = len(group[0].tokens)
        past = max(sequence.position for sequence in group)
        slots = torch.zeros(len(group), past + fed, dtype=torch.long)
        mask = torch.zeros(len(group), past + fed, dtype=torch.long)
        for row, sequence in enumerate(group):
            start = past - sequence.position
            slots[row, start:] = self._slots(sequence.block_table, sequence.position + fed)
            mask[row, start:] = 1
        cache = DynamicCache()
        for layer, (keys, values) in enumerate(self._memory):
            read = (states[slots[:, :past]].transpose(1, 2) for states in (keys, values))
            cache.update(*read, layer)
        positions = [range(s.position, s.position + fed) for s in group]
        output = self._model(
            input_ids=torch.tensor([list(sequence.tokens) for sequence in group]),
            attention_mask=mask,
            position_ids=torch.tensor([list(of_row) for of_row in positions]),
            use_cache=True,
            **{self._cache_argument: cache},
            **self._options,
        )
        for layer, memory in zip(cache.layers, self._memory, strict=True):
            for states, kept in zip((layer.keys, layer.values), memory, strict=True):
                kept[slots[:, past:]] = states[:, :, past:].transpose(1, 2)
        made: list[int] = output.logits[:, -1].argmax(-1).tolist()
        return made

    def _slots(self, block_table: Sequence[int], tokens: int) -> Any:
        """Return the slots of a context's first tokens."""
        blocks = torch.tensor(list(block_table))
        places = torch.arange(tokens)
        return blocks[places // self._block_size] * self._block_size + places % self._block_size

    @staticmethod
    def _reserve(limits: Limits, of_one_token: Sequence[tuple[Any, Any]]) -> list[list[Any]]:
        """Return memory for all blocks, shaped as what the layers made of one token."""
        slots = limits.max_kv_blocks * limits.block_size
        try:
            return [
                [states.new_zeros(slots, *states.shape[1::2]) for states in layer]
                for layer in of_one_token
            ]
        except RuntimeError as error:
            token = sum(states.nbytes for layer in of_one_token for states in layer)
            raise LimitsError(
                f"limits: {limits.max_kv_blocks} blocks of {limits.block_size} tokens of {token} "
                f"bytes do not fit in memory ({str(error).partition('.')[0]}): use fewer"
            ) from None

    def _try_out(self, name: str) -> list[tuple[Any, Any]]:
        """Run one token, and return the keys and values that each layer made of it."""
        cache = DynamicCache(config=self._model.config)
        one = torch.zeros(1, 1, dtype=torch.long)
        try:
            with torch.inference_mode():
                self._model(
                    input_ids=one,
                    attention_mask=one + 1,
                    position_ids=one,
                    use_cache=True,
                    **{self._cache_argument: cache},
                )
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"model {name!r}: its forward pass cannot be used: {error}") from None
        others = sorted({type(layer).__name__ for layer in cache.layers} - {DynamicLayer.__name__})
        if others or not cache.layers or not cache.layers[0].is_initialized:
            kinds = ", ".join(others) or "none"
            raise InputError(
                f"model {name!r}: layers with a cache of another kind than the whole context's "
                f"({kinds}); use a model whose layers all attend to the whole context"
            )
        return [(layer.keys, layer.values) for layer in cache.layers]
