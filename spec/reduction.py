"""Whether a model's canonical form is right, decided state by state on the full search.

A search with reductions is trusted as far as this holds on the bounds that
are small enough for it.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from batchproof.spec.machine import Fair, Model, ModelError, Reduced
from batchproof.spec.property import Property
from batchproof.spec.search import Search, decide


@dataclass(frozen=True, slots=True)
class Folding:
    """How the states of a full search fold together."""

    class_sizes: dict[Any, int]
    """Canonical form -> how many reachable states fold to it; they add up to the full count."""

    @property
    def full(self) -> int:
        """States of the full search."""
        return sum(self.class_sizes.values())

    @property
    def folded(self) -> int:
        """States that a search with reductions finds."""
        return len(self.class_sizes)


def verify(model: Model, properties: Sequence[Property] = ()) -> Folding:
    """Check, for every reachable state, that the model's canonical form behaves as it does.

    For each: the canonical form is its own; the steps of both, of each class of
    fairness, fold to the same states; and every property says the same of both,
    and of their steps.

    Raises:
        ModelError: the model has no canonical form, or a state behaves otherwise than its own.
        PropertyError: a predicate raised.

    """
    if not isinstance(model, Reduced):
        raise ModelError(f"model {model.name!r} has no canonical form to verify")
    sizes: dict[Any, int] = {}
    for state in Search(model, reduce=False).run().states:
        form = model.canonical(state)
        sizes[form] = sizes.get(form, 0) + 1
        for what, seen in (("canonical form", _form), ("behavior", _behavior)):
            if seen(model, state, properties) != seen(model, form, properties):
                raise ModelError(
                    f"model {model.name!r}: {state!r} and its canonical form {form!r} "
                    f"differ in {what}"
                )
    return Folding(sizes)


def _form(model: Reduced, state: Any, properties: Sequence[Property]) -> Any:
    return model.canonical(state)


def _behavior(model: Any, state: Any, properties: Sequence[Property]) -> Hashable:
    """Return what can be told of a state: what its properties say, and where its steps lead."""
    of_states = [p for p in properties if p.kind in ("invariant", "liveness")]
    of_steps = [p for p in properties if p.kind in ("step", "witness")]
    claims = tuple(
        (decide(p, p.predicate, state), p.trigger is not None and decide(p, p.trigger, state))
        for p in of_states
    )
    steps = frozenset(
        (
            model.canonical(after),
            model.fairness(event) if isinstance(model, Fair) else None,
            tuple(decide(p, p.predicate, state, event, after) for p in of_steps),
        )
        for event, after in model.successors(state)
    )
    return claims, steps
