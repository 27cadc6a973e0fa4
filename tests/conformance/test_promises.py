"""What policies promise, held along random walks where there is more of everything than at a bound.

Exhaustive search ends at a few requests and blocks: a promise that is broken only
by victims of different sizes is not seen there.
"""

from dataclasses import dataclass, field
from random import Random

import pytest

from batchproof.invariants.catalog import properties
from batchproof.sched.policy.registry import POLICIES, make_policy
from batchproof.sched.refinement import UnderPolicy
from batchproof.spec.actions import Cancel, Event, Submit, Tick, Work
from batchproof.spec.property import Property
from batchproof.spec.state import Limits, Request, State, System

BROKEN = {("prefill-first", "bounded-time-between-tokens")}
"""Promises that are made to be seen broken: `batchproof check --policy prefill-first`."""
CHANCES = {Submit: 0.35, Cancel: 0.02}
"""Of a step; all others are ticks."""


@dataclass(frozen=True)
class Walk(UnderPolicy):
    """The specification under a policy, where now and then a token is EOS, of one request."""

    rng: Random = field(kw_only=True)

    def yielding(self, state: State, work: Work) -> tuple[int, ...]:
        """Return whose token may be EOS: seldom anybody's."""
        could = super().yielding(state, work)
        return (self.rng.choice(could),) if could and self.rng.random() < 0.2 else ()

    def step(self, state: State) -> tuple[Event, State]:
        """Return a step, of a kind that is chosen first."""
        steps: dict[type, list[tuple[Event, State]]] = {Submit: [], Cancel: [], Tick: []}
        for event, after in self.successors(state):
            steps.setdefault(type(event), []).append((event, after))
        draw = self.rng.random()
        for kind, chance in CHANCES.items():
            if steps[kind] and draw < chance:
                return self.rng.choice(steps[kind])
            draw -= chance
        return self.rng.choice(steps[Tick] or steps[Submit])


def a_system(rng: Random) -> System:
    """Return a machine, and requests of three users of whom one has most."""
    limits = Limits(
        max_kv_blocks=rng.randint(8, 24),
        block_size=rng.randint(1, 4),
        chunk_size=rng.randint(2, 8),
        token_budget=rng.randint(8, 24),
        max_batch_size=rng.randint(2, 10),
    )
    memory = limits.max_kv_blocks * limits.block_size
    requests = (
        Request(
            rng.choice((0, 0, 0, 0, 1, 2)), rng.randint(1, memory // 2), rng.randint(1, memory // 3)
        )
        for _ in range(16)
    )
    return System(limits, tuple(requests))


def promises(policy: str, system: System) -> list[Property]:
    return [
        prop
        for prop in properties(system, ())
        if prop.kind in ("invariant", "step")
        and prop.promised_by is not None
        and policy in prop.promised_by
        and (policy, prop.name) not in BROKEN
    ]


@pytest.mark.parametrize("policy", sorted({*POLICIES} - {"vtc"}))  # which promises nothing
def test_promises_are_kept_on_random_walks(policy: str) -> None:
    preempting = 0
    for seed in range(16):
        rng = Random(seed)
        system = a_system(rng)
        weights = (1, 2, 1) if seed % 3 == 0 else ()
        model = Walk(system=system, policy=make_policy(policy), weights=weights, rng=rng)
        claims = promises(policy, system)
        (state,) = model.initial()
        for number in range(100):
            event, after = model.step(state)
            preempting += isinstance(event, Tick) and bool(event.work.preempt)
            for claim in claims:
                case = (after,) if claim.kind == "invariant" else (state, event, after)
                assert claim.predicate(*case), (claim.name, seed, number, event)
            state = after
    assert preempting > 20
