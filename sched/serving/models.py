"""The models that can be served, by name."""

from dataclasses import dataclass
from typing import Final

from batchproof.sched.errors import InputError
from batchproof.sched.executor import Executor
from batchproof.sched.serving.pacing import PacedGPU
from batchproof.sched.serving.text import Codec, PseudoWords
from batchproof.sched.simulation import Setup

SIMULATED: Final = "simulated"


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


def load_model(name: str, setup: Setup, pace: float | None = None) -> ServedModel:
    """Return the model called `name`.

    `pace` is how many virtual seconds pass in a real one; None: as fast as it
    goes. Raises `InputError` for a model that cannot be served, `LimitsError` for
    limits, rates or a pace that make no sense.
    """
    if name != SIMULATED:
        raise InputError(
            f"model {name!r}: only the simulated GPU is served in this version, no model from a "
            f"path or a hub; use --model {SIMULATED}"
        )
    gpu = setup.gpu()
    executor = gpu if pace is None else PacedGPU(gpu, pace)
    return ServedModel(name, executor, PseudoWords(setup.limits.eos_token))
