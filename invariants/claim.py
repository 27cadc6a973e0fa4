"""What a claim about the specification is, before it is told at which size it is checked."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from batchproof.spec.property import Kind, Property
from batchproof.spec.state import System

ANY: Final = "any"
"""The policy that may do everything legal: the specification itself."""

WORK_CONSERVING: Final = frozenset({"stall-free", "orca", "vllm-v1"})
"""The policies that use whatever the next in line could use."""

STARVATION_FREE: Final = WORK_CONSERVING | {"static", "fair-lane"}
"""The policies that let every request end, whatever others do."""

FIRST_COME_FIRST_SERVED: Final = WORK_CONSERVING | {"static", "prefill-first"}
"""The policies that serve all users in one line, oldest first, and preempt the youngest."""

SPARING: Final = FIRST_COME_FIRST_SERVED | {"fair-lane"}
"""The policies that preempt only when they must, and never the oldest."""


@dataclass(frozen=True)
class Claim:
    """A property of `spec.state.State` and its steps, at any size.

    `predicate` (and `trigger`) take the `System` first, then what a
    `spec.property.Property` of this kind takes.
    """

    name: str
    claim: str
    source: str
    kind: Kind
    predicate: Callable[..., bool]
    trigger: Callable[..., bool] | None = None
    promised_by: frozenset[str] | None = None
    """The policies that promise it; None when the specification itself does."""
    applies: Callable[[System], bool] = lambda system: True
    """Sizes at which there is anything to claim."""
    of_request: bool = False
    """Claimed of one request: `predicate` and `trigger` take its id after the system."""

    def at(self, system: System, watched: Iterable[int] = ()) -> list[Property]:
        """Return the claim as properties at one size; if of a request, one for each."""
        if not self.applies(system):
            return []
        if not self.of_request:
            return [self._property(self.name, system)]
        return [self._property(f"{self.name}/r{request}", system, request) for request in watched]

    def _property(self, name: str, *fixed: object) -> Property:
        return Property(
            name=name,
            claim=self.claim,
            source=self.source,
            kind=self.kind,
            predicate=partial(self.predicate, *fixed),
            trigger=None if self.trigger is None else partial(self.trigger, *fixed),
            promised_by=self.promised_by,
        )
