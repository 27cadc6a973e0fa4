"""Every reachable state of the shipped code at small bounds, held to the specification."""

import pytest
from support.sizes import TURNS

from batchproof.sched.roster import Roster
from batchproof.sched.scheduler import Scheduler
from batchproof.sched.shipped_family import MODEL_FAMILY, bound_of
from batchproof.sched.waiting import Line
from batchproof.spec.checker import check

STATES = {
    "pair": {"fair-lane": 71, "stall-free": 67, "static": 51, "orca": 67, "vllm-v1": 67},
    "growth": {"fair-lane": 1144, "stall-free": 638, "static": 502, "orca": 638, "vllm-v1": 638},
    "no-cancel": {"fair-lane": 799, "stall-free": 552, "static": 378, "orca": 552, "vllm-v1": 552},
    "users": {"fair-lane": 7873, "stall-free": 2897, "static": 2813, "orca": 2897, "vllm-v1": 2897},
    "budget": {"fair-lane": 424, "stall-free": 243, "static": 611, "orca": 243, "vllm-v1": 243},
    "reserve": {
        "fair-lane": 2919,
        "stall-free": 1911,
        "static": 1785,
        "orca": 1911,
        "vllm-v1": 1911,
    },
    "priority": {"fair-lane": 207, "stall-free": 182, "static": 166, "orca": 182, "vllm-v1": 182},
}
"""Bound -> policy -> states: `batchproof check --target scheduler`. A change of it is a change
of what the shipped code can reach."""

ON_DEMAND = {("pair", "vtc"): 249, ("budget", "vtc"): 4375}
"""What a bare check leaves out: virtual token counters have too many values at the other bounds."""

QUICK = [("pair", policy) for policy in STATES["pair"]] + [
    ("growth", "stall-free"),
    ("budget", "static"),
    ("priority", "stall-free"),
    ("priority", "fair-lane"),
    ("pair", "vtc"),
]
ALL = [*ON_DEMAND, *((bound, policy) for bound, counts in STATES.items() for policy in counts)]


def states(bound: str, policy: str) -> int:
    return ON_DEMAND.get((bound, policy)) or STATES[bound][policy]


def verdicts(bound_name: str, policy: str):
    bound = MODEL_FAMILY.bounds[bound_name]
    return check(MODEL_FAMILY.build(bound, policy), MODEL_FAMILY.claims(bound, policy))


def assert_all_hold(bound: str, policy: str) -> None:
    report = verdicts(bound, policy)
    assert {v.prop.name: v.outcome for v in report.verdicts if v.outcome != "holds"} == {}
    assert report.states == states(bound, policy)


@pytest.mark.parametrize(("bound", "policy"), QUICK)
def test_every_reachable_state_of_what_ships_keeps_to_the_specification(bound, policy) -> None:
    assert_all_hold(bound, policy)


@pytest.mark.deep
@pytest.mark.parametrize(("bound", "policy"), [case for case in ALL if case not in QUICK])
def test_every_reachable_state_at_the_larger_bounds_too(bound, policy) -> None:
    assert_all_hold(bound, policy)


def test_every_policy_that_a_bare_check_covers_is_pinned() -> None:
    assert all(set(counts) == set(MODEL_FAMILY.default_policies) for counts in STATES.values())
    assert set(STATES) == set(MODEL_FAMILY.default_bounds)


def leaky_end(self, sequence, event):
    """End a request, and lose a block of it."""
    sequence.blocks = sequence.blocks[1:]
    return END(self, sequence, event)


def forgetful_abandon(self, batch) -> None:
    """Abandon a batch, and leave what grew as it is."""
    batch.grown = ()
    ABANDON(self, batch)


def deaf_to_eos(self, batch, tokens, now):
    """Take the decodes, and go on after EOS."""
    return TAKE_DECODES(self, batch, [token or 1 for token in tokens], now)


def pushy_admit(self, sequence) -> None:
    """Admit a request before those whose prefill is under way."""
    ADMIT(self, sequence)
    others = [other for other in self.prefilling if other is not sequence]
    for other in others:
        del self.prefilling[other]
        self.prefilling[other] = None


def unsorted_line(self, sequence) -> None:
    """Put a preempted request behind those preempted before it."""
    self._returned.append(sequence)


END, ABANDON, TAKE_DECODES = Roster.end, Scheduler.abandon, Scheduler._take_decodes
ADMIT = Roster.admit

FAULTS = {
    "a block leaks": (Roster, "end", leaky_end, "pair/stall-free", "blocks-conserved"),
    "abandon forgets growth": (
        Scheduler,
        "abandon",
        forgetful_abandon,
        "pair/stall-free",
        "no-trace-is-left",
    ),
    "EOS unheard": (
        Scheduler,
        "_take_decodes",
        deaf_to_eos,
        "pair/stall-free",
        "follows-specification",
    ),
    "a line unsorted": (
        Line,
        "put_back",
        unsorted_line,
        "budget/prefill-first",
        "nothing-drifts",
    ),
    "last in, first fed": (Roster, "admit", pushy_admit, "pair/stall-free", "orders-agree"),
}


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "where", "property_name"), FAULTS.values(), ids=FAULTS
)
def test_a_fault_in_the_code_is_named(
    monkeypatch, owner, name, wrong, where, property_name
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    broken = {v.prop.name for v in verdicts(*where.split("/")).verdicts if v.outcome == "violated"}
    assert property_name in broken


def test_decodes_that_find_no_room_come_first_next_time(monkeypatch) -> None:
    """Prefill first alone lets more requests decode than a batch has room for: rule 6 bites."""
    bound = bound_of("turns", TURNS)

    def broken() -> set[str]:
        claims = MODEL_FAMILY.claims(bound, "prefill-first")
        report = check(MODEL_FAMILY.build(bound, "prefill-first"), claims)
        return {v.prop.name for v in report.verdicts if v.outcome == "violated"}

    assert not broken() & {"least-recent-first", "orders-agree"}
    monkeypatch.setattr(Roster, "rotate", lambda self, scheduled: None)
    assert {"least-recent-first", "orders-agree"} <= broken()
