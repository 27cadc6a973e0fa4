"""The models that `batchproof check` knows, as data: where each lives and what its bounds are.

Models are named here and imported only when asked for, so that a command that
checks one of them does not pay for the others.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from batchproof.spec.machine import Model
from batchproof.spec.packed import PackedModel
from batchproof.spec.property import Property
from batchproof.spec.search import DEADLOCK

LOCATIONS: Final[Mapping[str, str]] = {
    "mini-batch": "batchproof.spec.mini_batch_family:MODEL_FAMILY",
    "batching": "batchproof.sched.batching_family:MODEL_FAMILY",
    "fair-lane": "batchproof.sched.fair_lane_family:MODEL_FAMILY",
    "scheduler": "batchproof.sched.shipped_family:MODEL_FAMILY",
}
"""Model name -> `module:attribute` of its `ModelFamily`."""

TARGETS: Final[Mapping[str, tuple[str, ...]]] = {
    "specification": ("mini-batch", "batching", "fair-lane"),
    "scheduler": ("scheduler",),
}
"""What a check without a model is of: the names of the models, in their order."""


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
    """The policies that `build` knows; empty if the model has none."""
    default_policies: tuple[str, ...] = ()
    """The policies that a bare `batchproof check` covers, the first of all if empty."""
    packed: Callable[[Bound], PackedModel] | None = None
    """The same model in integers, for the fast search; None if it has no such form."""

    def claims(self, bound: Bound, policy: str | None) -> tuple[Property, ...]:
        """Return what is claimed at a bound of a policy: all but what only others promise."""
        return tuple(
            prop
            for prop in (*self.properties, *bound.properties)
            if prop.promised_by is None or policy in prop.promised_by
        )

    def every(self, bound: Bound) -> tuple[Property, ...]:
        """Return every property that can be asked for at a bound, promised or not."""
        return (DEADLOCK, *self.properties, *bound.properties, *self.recoverable)

    def find(self, name: str, bound: Bound) -> Property:
        """Return the property called `name`; KeyError if there is none."""
        return {prop.name: prop for prop in self.every(bound)}[name]


def load(name: str) -> ModelFamily:
    """Import the model called `name`.

    Raises:
        KeyError: no model has that name; `LOCATIONS` has those that there are.

    """
    module_name, _, attribute = LOCATIONS[name].partition(":")
    family = getattr(importlib.import_module(module_name), attribute)
    assert isinstance(family, ModelFamily), f"{LOCATIONS[name]} is not a ModelFamily"
    return family
