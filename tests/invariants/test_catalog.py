"""The catalog is one list of well-named claims, each about something."""

import re
from typing import get_args

import pytest

from batchproof.invariants.catalog import CATALOG, RECOVERABLE, properties
from batchproof.invariants.claim import ANY, Claim
from batchproof.sched.policy.registry import POLICIES
from batchproof.spec.bounds import SIZES
from batchproof.spec.property import Kind

ALL = (*CATALOG, *RECOVERABLE)


@pytest.mark.parametrize("claim", ALL, ids=lambda claim: claim.name)
def test_a_claim_is_a_sentence_with_a_source(claim: Claim) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", claim.name)
    assert claim.kind in get_args(Kind)
    assert claim.claim[0].islower() or claim.claim.startswith("EOS")
    assert not claim.claim.endswith(".")
    assert re.match("guards" if claim.kind == "witness" else r"rules? \d", claim.source)
    assert claim.of_request == (claim.kind == "liveness" and claim not in RECOVERABLE)
    assert (claim.trigger is not None) == claim.of_request


def test_names_are_unique() -> None:
    assert len({claim.name for claim in ALL}) == len(ALL)


def test_only_known_policies_promise_anything() -> None:
    for claim in ALL:
        assert claim.promised_by is None or claim.promised_by <= {ANY, *POLICIES}


def test_every_claim_applies_at_some_bound() -> None:
    for claim in ALL:
        assert any(claim.at(size.system, (0,)) for size in SIZES.values()), claim.name


def test_a_claim_of_a_request_is_made_of_each_that_is_watched() -> None:
    names = [prop.name for prop in properties(SIZES["growth"].system, (0, 2))]
    assert {"every-request-ends/r0", "every-request-ends/r2"} <= set(names)
    assert len(names) == len(set(names))


def test_sizes_say_which_requests_to_watch() -> None:
    assert SIZES["pair"].watched == (0,)
    assert SIZES["growth"].watched == (0, 2)
    assert SIZES["users"].watched == (0,)
    assert SIZES["reserve"].watched == (0, 2)
