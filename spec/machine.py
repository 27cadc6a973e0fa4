"""What a model is: the protocol to implement, and the optional abilities a model may add."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable


class Model(Protocol):
    """A state machine: what you implement to have your own checked.

    States are hashable and never change. Events are labels, compared and shown
    but never interpreted. Both methods must give the same, in the same order,
    whenever they are asked.
    """

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    def initial(self) -> Iterable[Any]:
        """Every state a run may begin in."""
        ...

    def successors(self, state: Any) -> Iterable[tuple[Any, Any]]:
        """Every `(event, next state)` that is possible in `state`."""
        ...


@runtime_checkable
class Reduced(Protocol):
    """Optional: a model that folds states together which behave alike."""

    def canonical(self, state: Any) -> Any:
        """Return the one state that stands for all those like `state`.

        It must be a bisimulation: the canonical forms of the successors of
        `state` are those of the successors of `canonical(state)`. The search
        spot-checks it; `reduction.verify` proves it on a bound.
        """
        ...


@runtime_checkable
class Ending(Protocol):
    """Optional: a model that may stop. Without it, any state with no successor is a deadlock."""

    def may_end(self, state: Any) -> bool:
        """Say whether `state` may legally have no successor."""
        ...


@runtime_checkable
class Fair(Protocol):
    """Optional: a model that says which of its events must not be put off for ever."""

    def fairness(self, event: Any) -> str | None:
        """Return the class of weakly fair events that `event` is in, or None.

        A class that stays enabled for ever must be taken again and again. A
        model without this method has one class of all events: runs stop only
        where nothing is possible.
        """
        ...


@runtime_checkable
class Describing(Protocol):
    """Optional: a model that fills the columns of a counterexample's table itself."""

    def describe(self, before: Any, event: Any, after: Any) -> Mapping[str, str]:
        """Return column -> text for one step; `before` and `event` are None for the first."""
        ...


class CheckError(Exception):
    """The check cannot be done; the message says whose fault it is."""


class ModelError(CheckError):
    """The model breaks the contract of `Model`."""


class PropertyError(CheckError):
    """A property cannot be decided: its predicate raised, or tells folded states apart."""
