"""The specification, by itself and run under each shipped policy, as `batchproof check` sees it."""

from typing import Final

from batchproof.invariants.catalog import RECOVERABLE, properties
from batchproof.invariants.claim import ANY
from batchproof.sched.policy.registry import POLICIES, make_policy
from batchproof.sched.refinement import UnderPolicy
from batchproof.spec.bounds import SIZES, Size
from batchproof.spec.model import Batching
from batchproof.spec.registry import Bound, ModelFamily

WRONG_ON_PURPOSE: Final = frozenset({"prefill-first"})
"""Policies that break what they should promise: shipped to be measured against, and shown so."""

ON_DEMAND: Final = frozenset({"vtc"})
"""Policies with no end of states: virtual token counters count every token served."""


def model(size: Size, policy: str | None = None) -> Batching:
    """Return the specification at one size: by itself, or run under a shipped policy."""
    if policy in (None, ANY):
        return Batching(size.system)
    return UnderPolicy(
        system=size.system,
        watched=size.watched,
        policy=make_policy(policy, size.system.admission),
    )


def _bound(name: str, size: Size) -> Bound:
    return Bound(
        name=name,
        about=size.about,
        parameters=size,
        states=size.states,
        folded_states=size.folded_states,
        properties=tuple(properties(size.system, size.watched)),
    )


MODEL_FAMILY: Final = ModelFamily(
    name="batching",
    bounds={name: _bound(name, size) for name, size in SIZES.items()},
    default_bounds=tuple(SIZES),
    build=lambda bound, policy: model(bound.parameters, policy),
    recoverable=tuple(
        claim for kind in RECOVERABLE for claim in kind.at(SIZES["no-cancel"].system)
    ),
    policies=(ANY, *POLICIES),
    default_policies=(
        ANY,
        *(name for name in POLICIES if name not in WRONG_ON_PURPOSE | ON_DEMAND),
    ),
)
