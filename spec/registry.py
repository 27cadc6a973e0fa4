"""The models that `batchproof check` knows, as data: where each lives and what its bounds are.

Models are named here and imported only when asked for, so that a command that
checks one of them does not pay for the others.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from batchproof.spec.machine import Model
from batchproof.spec.property import Property

LOCATIONS: Final[Mapping[str, str]] = {
    "mini-batch": "batchproof.spec.mini_batch_family:MODEL_FAMILY",
    "batching": "batchproof.spec.model:MODEL_FAMILY",
}
"""Model name -> `module:attribute` of its `ModelFamily`, in the order of a bare `check`."""


@dataclass(frozen=True)
class Bound:
    """A size at which a model is checked: small enough to be searched exhaustively."""

    name: str
    about: str
    """The size in words, one line: it is shown to who asks for the bounds."""
    parameters: Any
    """Whatever the family's `build` reads the size from."""
    states: int | None = None
    """Distinct states of a full search; None where it is not known or depends on the policy."""
    folded_states: int | None = None
    """Distinct states with the model's reductions; None likewise."""
    properties: tuple[Property, ...] = ()
    """Properties whose predicate depends on this bound, besides the family's."""


@dataclass(frozen=True)
class ModelFamily:
    """A model at each of its bounds, with the properties that are claimed of it."""

    name: str
    bounds: Mapping[str, Bound]
    default_bounds: tuple[str, ...]
    """The bounds that a bare `batchproof check` covers."""
    build: Callable[[Bound, str | None], Model]
    """`build(bound, policy)`: the model at one bound, under one policy."""
    properties: tuple[Property, ...] = ()
    """Claimed at every bound; `promised_by` narrows a property to some policies."""
    recoverable: tuple[Property, ...] = ()
    """Claimed of every reachable state: `predicate(state)` can still become true (AG EF)."""
    policies: tuple[str, ...] = ()
    """The policies `build` knows, the default one first; empty if the model has none."""
    packed: Callable[[Bound], Any] | None = None
    """The same model in integers, for `spec/fast_search.py`; None if it has no such form."""


def load(name: str) -> ModelFamily:
    """Import the model called `name`.

    Raises:
        KeyError: no model has that name; `LOCATIONS` has those that there are.
    """
    module_name, _, attribute = LOCATIONS[name].partition(":")
    family = getattr(importlib.import_module(module_name), attribute)
    assert isinstance(family, ModelFamily), f"{LOCATIONS[name]} is not a ModelFamily"
    return family
