"""How long one iteration of the model takes: the latency models, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from batchproof.sched.errors import LimitsError


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """T(n, s, c) = fixed + max(floor, base + token n) + sequence s + context c, in ms."""

    name: str
    fixed_ms: float = 0.0
    floor_ms: float = 0.0
    base_ms: float = 0.0
    token_ms: float = 0.0
    sequence_ms: float = 0.0
    context_ms: float = 0.0

    def seconds(self, tokens: int, sequences: int, context: int) -> float:
        """Return the time of a batch that feeds `tokens` and reads `context` tokens."""
        linear = max(self.floor_ms, self.base_ms + self.token_ms * tokens)
        per_batch = self.sequence_ms * sequences + self.context_ms * context
        return (self.fixed_ms + linear + per_batch) / 1e3


LATENCY_MODELS: Final[Mapping[str, LatencyModel]] = {
    model.name: model
    for model in (
        LatencyModel("linear", fixed_ms=5.0, sequence_ms=1.0),
        # Fitted to a public profile of Llama 3 8B on an A100 (mean error 3.7%); 131,072 bytes of
        # KV for each context token, read at 1.6 TB/s.
        LatencyModel(
            "a100-llama3-8b",
            fixed_ms=1.7,
            floor_ms=10.5,
            base_ms=8.7,
            token_ms=0.0665,
            context_ms=131072 / 1.6e12 * 1e3,
        ),
        LatencyModel("h100-llama2-7b", floor_ms=5.77, base_ms=1.4, token_ms=0.021),
    )
}
"""The latency models by name."""


def latency_model(name: str) -> LatencyModel:
    """Return the latency model called `name`; raise `LimitsError` naming those there are."""
    if name not in LATENCY_MODELS:
        raise LimitsError(
            f"latency model {name!r} is unknown; there are: {', '.join(LATENCY_MODELS)}"
        )
    return LATENCY_MODELS[name]
