"""The specification as a model: its state counts, its symmetry, and what is claimed of it."""

import pytest
from faults.fault import verdict_of
from faults.seeded import FAULTS

from batchproof.invariants.catalog import CATALOG
from batchproof.invariants.claim import ANY, Claim
from batchproof.sched.batching_family import MODEL_FAMILY, ON_DEMAND, WRONG_ON_PURPOSE, model
from batchproof.sched.policy.registry import POLICIES
from batchproof.spec.actions import Cancel, Refuse, Submit, Tick
from batchproof.spec.bounds import SIZES
from batchproof.spec.checker import Report, check
from batchproof.spec.lifecycle import WAITING
from batchproof.spec.model import Batching
from batchproof.spec.reduction import verify
from batchproof.spec.registry import LOCATIONS, load
from batchproof.spec.search import Search
from batchproof.spec.state import LONG_GAP, State

QUICK = ("pair", "budget", "reserve", "priority")
"""Bounds whose full search takes a second or two."""


def run(bound: str, policy: str) -> Report:
    size = MODEL_FAMILY.bounds[bound]
    return check(
        MODEL_FAMILY.build(size, policy),
        MODEL_FAMILY.claims(size, policy),
        recover=MODEL_FAMILY.recoverable,
    )


@pytest.mark.parametrize("bound", QUICK)
def test_the_full_search_finds_the_pinned_states(bound: str) -> None:
    assert len(Search(model(SIZES[bound]), reduce=False).run().states) == SIZES[bound].states


@pytest.mark.parametrize("bound", [*QUICK, "no-cancel"])
def test_the_search_up_to_symmetry_finds_the_pinned_states(bound: str) -> None:
    assert len(Search(model(SIZES[bound])).run().states) == SIZES[bound].folded_states


@pytest.mark.deep
@pytest.mark.parametrize("bound", SIZES)
def test_every_bound_has_the_pinned_states(bound: str) -> None:
    folding = verify(model(SIZES[bound]))
    assert (folding.full, folding.folded) == (SIZES[bound].states, SIZES[bound].folded_states)


def test_symmetry_changes_no_verdict_and_no_behavior() -> None:
    size = MODEL_FAMILY.bounds["pair"]
    folding = verify(model(SIZES["pair"]), MODEL_FAMILY.claims(size, ANY))
    assert folding.folded < folding.full == SIZES["pair"].states


@pytest.mark.parametrize("policy", ["stall-free", "static"])
def test_symmetry_holds_under_a_policy_whose_requests_are_watched(policy: str) -> None:
    folding = verify(model(SIZES["users"], policy), MODEL_FAMILY.bounds["users"].properties)
    assert folding.folded < folding.full


def test_interchangeable_requests_and_users_fold_and_others_do_not() -> None:
    users = Batching(SIZES["users"].system)
    ones = [users.submit(State((), 3), request)[1] for request in range(4)]
    assert len(set(ones)) == 4
    assert {users.canonical(one) for one in ones} == {ones[0]}
    _, both = users.submit(ones[3], 1)
    assert [live.request for live in users.canonical(both).live] == [0, 2]
    watched = Batching(SIZES["users"].system, watched=(2,))
    assert len({watched.canonical(one) for one in ones}) == 3
    growth = Batching(SIZES["growth"].system)
    alone = [growth.submit(State((), 5), request)[1] for request in range(3)]
    assert growth.canonical(alone[1]) == alone[0]
    assert growth.canonical(alone[2]) == alone[2]


def everything_holds(bound: str, policy: str) -> Report:
    report = run(bound, policy)
    assert not [v.prop.name for v in report.verdicts if v.outcome != "holds"]
    assert report.outcome == "holds"
    return report


@pytest.mark.parametrize("bound", ["pair", "no-cancel"])
def test_everything_claimed_of_the_rules_holds(bound: str) -> None:
    everything_holds(bound, ANY)


@pytest.mark.deep
@pytest.mark.parametrize("bound", SIZES)
def test_everything_claimed_of_the_rules_holds_at_every_bound(bound: str) -> None:
    everything_holds(bound, ANY)


@pytest.mark.parametrize("bound", SIZES)
@pytest.mark.parametrize("policy", MODEL_FAMILY.default_policies[1:])
def test_everything_that_a_policy_promises_holds(bound: str, policy: str) -> None:
    report = everything_holds(bound, policy)
    if policy == "fair-lane":
        assert report.states == FAIR_LANE_STATES[bound]


def test_prefill_first_has_no_bound_between_tokens_and_starves_its_decodes() -> None:
    size = MODEL_FAMILY.bounds["pair"]
    names = ["bounded-time-between-tokens", "every-request-ends/r0"]
    report = check(
        MODEL_FAMILY.build(size, "prefill-first"), [MODEL_FAMILY.find(n, size) for n in names]
    )
    gap, ends = report.verdicts[-2:]
    assert gap.outcome == "violated"
    assert gap.trace is not None
    assert gap.trace.length == 5
    assert ends.outcome == "violated"
    assert ends.trace is not None
    assert ends.trace.loop is not None


def test_without_ageing_a_stream_of_urgent_requests_starves_the_patient_one() -> None:
    """Where no pass is counted; with the count, `every-request-ends/r0` holds at this bound."""
    fault = next(fault for fault in FAULTS if fault.name == "passes-uncounted")
    verdict = verdict_of(fault)
    assert verdict.outcome == "violated"
    assert verdict.trace is not None
    assert verdict.trace.loop is not None
    round_it = verdict.trace.steps[verdict.trace.loop :]
    assert all(step.state.find(0).phase == WAITING for step in round_it)
    submitted = [s.event.request for s in round_it[1:] if isinstance(s.event, Submit)]
    assert submitted
    assert 0 not in submitted


def test_static_batching_leaves_slots_idle_and_says_so() -> None:
    size = MODEL_FAMILY.bounds["growth"]
    report = check(
        MODEL_FAMILY.build(size, "static"), [MODEL_FAMILY.find("no-idle-capacity", size)]
    )
    assert report["no-idle-capacity"].outcome == "violated"


FAIR_LANE_STATES = {
    "pair": 53,
    "growth": 894,
    "no-cancel": 454,
    "users": 4_749,
    "budget": 342,
    "reserve": 1_643,
    "priority": 168,
}
"""Of the specification under fair-lane."""


def test_fair_lane_promises_what_it_keeps_with_lanes_too() -> None:
    """Decodes wait for lanes: tests/fair shows it where there are any. Others are broken here."""
    promised = {name for name, claim in BY_NAME.items() if "fair-lane" in promised_by(claim)}
    turns = {"bounded-time-between-tokens", "least-recent-first"}
    assert set(BY_NAME) - promised == turns | {"fcfs-over-all", "no-idle-capacity"}
    size = MODEL_FAMILY.bounds["users"]
    names = ["fcfs-over-all", "no-idle-capacity"]
    report = check(
        MODEL_FAMILY.build(size, "fair-lane"), [MODEL_FAMILY.find(name, size) for name in names]
    )
    assert {name: report[name].outcome for name in names} == dict.fromkeys(names, "violated")


BY_NAME = {claim.name: claim for claim in CATALOG}


def promised_by(claim: Claim) -> frozenset[str]:
    return frozenset({"fair-lane"}) if claim.promised_by is None else claim.promised_by


def test_the_bound_to_the_first_token_is_reported() -> None:
    assert "within" in run("pair", "stall-free")["first-token-comes/r0"].note


def test_the_family_is_registered_with_every_shipped_policy() -> None:
    assert "batching" in LOCATIONS
    assert load("batching") is MODEL_FAMILY
    assert MODEL_FAMILY.policies == (ANY, *POLICIES)
    left_out = set(MODEL_FAMILY.policies) - set(MODEL_FAMILY.default_policies)
    assert left_out == (WRONG_ON_PURPOSE | ON_DEMAND) & set(POLICIES)


def test_gaps_are_counted_beyond_what_is_promised() -> None:
    for size in SIZES.values():
        limits = size.system.limits
        turns = -(-limits.max_batch_size // min(limits.max_batch_size, limits.token_budget))
        assert turns < LONG_GAP


def test_a_step_is_described_in_words() -> None:
    pair = model(SIZES["pair"])
    (start,) = pair.initial()
    assert pair.describe(None, None, start)["event"] == "start"
    seen: dict[str, str] = {}
    for state in Search(pair, reduce=False).run().states[::5]:
        for event, after in pair.successors(state):
            row = pair.describe(state, event, after)
            seen.setdefault(type(event).__name__, row["event"])
            assert row["blocks"].endswith(f"{after.free} free")
            if isinstance(event, Tick):
                assert row["feeds"]
    assert seen == {
        Submit.__name__: "submit r0",
        Refuse.__name__: "refuse r2",
        Cancel.__name__: "cancel r0",
        Tick.__name__: "tick",
    }
