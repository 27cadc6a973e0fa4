"""A claim at a size: as many properties as it is made of, each with all that the claim says."""

import pytest
from invariants.examples import SYSTEM

from batchproof.invariants.catalog import CATALOG, RECOVERABLE
from batchproof.invariants.claim import Claim
from batchproof.sched.policy.registry import POLICIES
from batchproof.spec.property import Property


def holds(system: object, *rest: object) -> bool:
    return (system, *rest) == (SYSTEM, "a state")


def holds_of_request(system: object, *rest: object) -> bool:
    return (system, *rest) == (SYSTEM, 3, "a state")


def is_owed(system: object, *rest: object) -> bool:
    return (system, *rest) == (SYSTEM, 3, "where it begins")


def said(prop: Property) -> tuple[object, ...]:
    return prop.name, prop.claim, prop.source, prop.kind, prop.promised_by


def test_a_claim_is_one_property_that_knows_the_size() -> None:
    promised = frozenset({"static"})
    claim = Claim("calm", "all is calm", "rule 0", "invariant", holds, promised_by=promised)
    (prop,) = claim.at(SYSTEM)
    assert said(prop) == ("calm", "all is calm", "rule 0", "invariant", promised)
    assert prop.predicate("a state")
    assert prop.trigger is None


def test_a_claim_of_a_request_is_a_property_of_each_that_is_watched() -> None:
    claim = Claim(
        "ends", "it ends", "rule 0", "liveness", holds_of_request, is_owed, of_request=True
    )
    assert claim.at(SYSTEM) == []
    two, three = claim.at(SYSTEM, (2, 3))
    assert said(two) == ("ends/r2", "it ends", "rule 0", "liveness", None)
    assert said(three) == ("ends/r3", *said(two)[1:])
    assert not two.predicate("a state")
    assert three.predicate("a state")
    for prop, owed in ((two, False), (three, True)):
        assert prop.trigger is not None
        assert prop.trigger("where it begins") == owed


def test_where_there_is_nothing_to_claim_there_is_no_property() -> None:
    claim = Claim(
        "calm", "all is calm", "rule 0", "invariant", holds, applies=lambda system: system != SYSTEM
    )
    assert claim.at(SYSTEM) == []


ORDER = {"fcfs-over-all", "least-recent-first", "bounded-time-between-tokens"}
SPARING = {"preemption-is-needed", "oldest-stays"}
ENDS = {"every-request-ends", "first-token-comes", "preempted-comes-back"}
PROMISES = {
    "stall-free": {*ORDER, *SPARING, *ENDS, "no-idle-capacity", "can-mix"},
    "orca": {*ORDER, *SPARING, *ENDS, "no-idle-capacity", "can-mix"},
    "vllm-v1": {*ORDER, *SPARING, *ENDS, "no-idle-capacity", "can-mix"},
    "static": {*ORDER, *SPARING, *ENDS},
    "prefill-first": {*ORDER, *SPARING},
    "fair-lane": {*SPARING, *ENDS, "can-mix"},
    "vtc": set(),
    "any": {"can-mix"},
}
"""Policy -> what it promises beyond the rules; `any` is the specification itself."""


@pytest.mark.parametrize("policy", [*POLICIES, "any"])
def test_a_policy_promises_beyond_the_rules(policy: str) -> None:
    promised = {
        claim.name
        for claim in (*CATALOG, *RECOVERABLE)
        if claim.promised_by is not None and policy in claim.promised_by
    }
    assert promised == PROMISES[policy]
