"""A named claim about a model: what is claimed, why, and the predicate that decides it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["invariant", "step", "liveness", "witness"]
"""What a predicate is asked about.

- `invariant`: `predicate(state)` is true in every reachable state.
- `step`: `predicate(before, event, after)` is true of every step.
- `liveness`: whenever `trigger(state)` is true, `predicate(state)` is true then
  or later, in every fair run ("leads to").
- `witness`: `predicate(before, event, after)` is true of some reachable step.
  It guards against claims that hold only because nothing ever happens.
"""


@dataclass(frozen=True)
class Property:
    """One claim: `name` to call it by, `claim` in one sentence, `source` it comes from."""

    name: str
    claim: str
    source: str
    kind: Kind
    predicate: Callable[..., bool]
    trigger: Callable[[Any], bool] | None = None
    """Liveness only: where the obligation begins; None means in every state."""
    promised_by: frozenset[str] | None = None
    """The policies that promise it; None when the specification itself does."""
