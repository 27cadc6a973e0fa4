"""What a seeded fault is: something wrong on purpose, and the property that must notice."""

from collections.abc import Callable
from dataclasses import dataclass

from batchproof.invariants.catalog import RECOVERABLE, properties
from batchproof.sched.policy.protocol import Policy
from batchproof.sched.refinement import UnderPolicy
from batchproof.spec.bounds import SIZES, Size
from batchproof.spec.checker import Limits, Verdict, check
from batchproof.spec.model import Batching

MAX_STATES = 5_000
"""A fault may make states without end; what it breaks is broken long before that."""


@dataclass(frozen=True)
class Fault:
    """One fault: `model` makes the specification with it, at the size called `bound`."""

    name: str
    story: str
    breaks: str
    """The property that must be violated; of one request, as `name/r0`."""
    model: Callable[[Size], Batching]
    bound: str = "pair"

    @property
    def claim(self) -> str:
        """The claim's name in the catalog."""
        return self.breaks.partition("/")[0]


def verdict_of(fault: Fault) -> Verdict:
    """Check the one property that `fault` must break."""
    size = SIZES[fault.bound]
    claims = {prop.name: prop for prop in properties(size.system, size.watched)}
    recover = [p for claim in RECOVERABLE for p in claim.at(size.system) if p.name == fault.breaks]
    chosen = [] if recover else [claims[fault.breaks]]
    report = check(
        fault.model(size),
        chosen,
        recover=recover,
        reduce=False,
        limits=Limits(max_states=MAX_STATES),
    )
    return report[fault.breaks]


def under(make: Callable[[], Policy]) -> Callable[[Size], Batching]:
    """Return how to make the specification run under a policy."""
    return lambda size: UnderPolicy(system=size.system, watched=size.watched, policy=make())


def wrong(model: type[Batching]) -> Callable[[Size], Batching]:
    """Return how to make a specification that is wrong."""
    return lambda size: model(size.system)
