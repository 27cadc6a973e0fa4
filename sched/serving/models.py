"""The models that can be served, by name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batchproof.sched.errors import (
    InfeasibleRequestError,
    InputError,
    InvalidRequestError,
)
from batchproof.sched.executor import Executor
from batchproof.sched.serving.pacing import PacedGPU
from batchproof.sched.serving.text import Codec, PseudoWords
from batchproof.sched.simulation import Setup

SIMULATED: Final = "simulated"
CONFIG_FILE: Final = "config.json"
"""What a folder with a transformers model holds."""


@dataclass(frozen=True)
class ServedModel:
    """All that the server knows of a model.

    `executor.forward` is called in a thread of its own, always the same one, and
    may take its time; `executor.now` is called from the server's thread meanwhile.
    """

    name: str
    """As `/v1/models` lists it and the `model` of a request names it."""
    executor: Executor
    codec: Codec
    eos_token: int | None = None
    """The token that ends a request, in the place of the limits' own; None: that one."""
    context_max: int | None = None
    """The most tokens of a prompt and its output; None: as many as memory holds."""
    vocabulary: int | None = None
    """Token ids are below this; None: all are known."""

    def check(self, prompt: Sequence[int], max_tokens: int) -> None:
        """Raise the `RequestError` for a request that this model cannot answer."""
        if self.vocabulary is not None and (unknown := max(prompt, default=0)) >= self.vocabulary:
            raise InvalidRequestError(
                f"token id {unknown} is not in the vocabulary of {self.name!r}; "
                f"ids are 0 to {self.vocabulary - 1}"
            )
        if self.context_max is not None and len(prompt) + max_tokens > self.context_max:
            raise InfeasibleRequestError(
                f"{len(prompt)} tokens of prompt and max_tokens {max_tokens} are more than the "
                f"{self.context_max} positions that {self.name!r} knows; ask for less"
            )


def load_model(name: str, setup: Setup, pace: float | None = None) -> ServedModel:
    """Return the simulated GPU, or the transformers model in the folder `name`.

    `pace` is how many virtual seconds pass in a real one; None: as fast as it
    goes. Raises `InputError` for a model that cannot be served, `LimitsError` for
    limits, rates or a pace that make no sense.
    """
    if name != SIMULATED:
        return _load_from_folder(name, setup, pace)
    gpu = setup.gpu()
    executor = gpu if pace is None else PacedGPU(gpu, pace)
    return ServedModel(name, executor, PseudoWords(setup.limits.eos_token))


def _load_from_folder(folder: str, setup: Setup, pace: float | None) -> ServedModel:
    if not (Path(folder) / CONFIG_FILE).is_file():
        raise InputError(
            f"model {folder!r}: no folder that holds a {CONFIG_FILE}; give {SIMULATED!r}, or a "
            "folder that save_pretrained of transformers wrote (nothing is fetched from a hub)"
        )
    if asked := ", ".join(_of_the_simulated_gpu(setup, pace)):
        raise InputError(f"model {folder!r}: {asked} is for the simulated GPU only: leave it out")
    try:
        from batchproof.sched.adapters.huggingface_model import load
    except ImportError as missing:
        raise InputError(str(missing)) from None
    loaded = load(folder, setup.limits)
    return ServedModel(
        folder,
        loaded.executor,
        loaded.codec,
        loaded.eos_token,
        loaded.context_max,
        loaded.vocabulary,
    )


def _of_the_simulated_gpu(setup: Setup, pace: float | None) -> Iterator[str]:
    """Yield the options that were given and mean nothing to a real model."""
    default = Setup()
    for option, given, left_out in (
        ("--pace", pace, None),
        ("--latency", setup.latency, default.latency),
        ("--seed", setup.seed, default.seed),
        ("--eos-rate", setup.eos_rate, default.eos_rate),
    ):
        if given != left_out:
            yield option
