"""The monitor finds nothing in the shipped scheduler, and every fault that is put before it."""

from collections.abc import Callable
from random import Random

import pytest

from batchproof import Limits, Request, Scheduler, SimulatedGPU
from batchproof.invariants.catalog import CATALOG
from batchproof.sched.config import ADMISSIONS
from batchproof.sched.errors import RequestError
from batchproof.sched.monitor import PROPERTIES, TICKS_KEPT, Monitor
from batchproof.sched.monitor_facts import TickFacts, ViolationError
from batchproof.sched.monitor_replay import replay
from batchproof.sched.policy import POLICIES, make_policy

SMALL = Limits(max_kv_blocks=4, block_size=2, chunk_size=2, token_budget=4, max_batch_size=2)
EOS, OTHER = 0, 7


def busy(monitor: bool | Monitor, policy: str = "stall-free", admission=None) -> Scheduler:
    limits = Limits(max_kv_blocks=30, token_budget=100, max_batch_size=16)
    sched = Scheduler(limits, make_policy(policy, admission), SimulatedGPU(limits), monitor=monitor)
    rng = Random(1)
    for index in range(60):
        prompt = [rng.randrange(1000) for _ in range(rng.randint(1, 200))]
        sched.submit(Request(f"u{index % 3}", prompt, rng.randint(1, 99), str(index)))
    return sched


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("admission", ADMISSIONS)
def test_it_finds_nothing_in_what_ships(policy, admission) -> None:
    sched = busy(True, policy, admission)
    for index in (1, 7, 40, 59):
        sched.tick()
        sched.cancel(str(index))
    for bad in (Request("u", [1] * 999, 99, "big"), Request("u", [1], 1, "2")):
        with pytest.raises(RequestError):
            sched.submit(bad)
    while sched.has_active():
        sched.tick()
    assert sched.monitor is not None
    assert sched.monitor.violations == []
    assert sched.monitor.ticks == sched.stats()["ticks"] > TICKS_KEPT


def test_its_properties_are_the_catalogs() -> None:
    assert {claim.name for claim in CATALOG} >= PROPERTIES


class Seen:
    """A monitor of one user's requests, told the first ticks of a legal run."""

    def __init__(self, admission="max_utilization") -> None:
        self.monitor = Monitor(SMALL, admission, on_violation="record")
        self.monitor.submitted("a", "u", 3, 3)
        self.monitor.submitted("b", "u", 1, 2)
        self.tick(admit=[("a", [0, 1])], chunks=[("a", 0, 2, None)], free=2)

    def tick(self, **facts) -> None:
        self.monitor.ticked(TickFacts(**facts))

    def first_token(self) -> None:
        self.tick(chunks=[("a", 2, 1, OTHER)], free=2)


def test_a_legal_run_has_no_violation() -> None:
    seen = Seen()
    seen.tick(admit=[("b", [2])], chunks=[("a", 2, 1, OTHER), ("b", 0, 1, OTHER)], free=1)
    seen.tick(grow=[("a", 3)], decode=[("a", OTHER), ("b", OTHER)], ended=[("b", "length")], free=1)
    seen.tick(decode=[("a", EOS)], ended=[("a", "eos")], free=4)
    assert seen.monitor.violations == []
    assert seen.monitor.live == 0


Fault = Callable[[Seen], None]

FAULTS: dict[str, tuple[str, Fault]] = {
    "a batch too large": (
        "batch-bounded",
        lambda seen: (
            seen.monitor.submitted("c", "v", 1, 1),
            seen.tick(
                admit=[("b", [2]), ("c", [3])],
                chunks=[("a", 2, 1, OTHER), ("b", 0, 1, OTHER), ("c", 0, 1, OTHER)],
                ended=[("c", "length")],
                free=1,
            ),
        ),
    ),
    "a block leaks": (
        "blocks-conserved",
        lambda seen: seen.tick(chunks=[("a", 2, 1, EOS)], ended=[("a", "eos")], free=3),
    ),
    "a block with two owners": (
        "blocks-conserved",
        lambda seen: seen.tick(
            admit=[("b", [1])], chunks=[("a", 2, 1, OTHER), ("b", 0, 1, OTHER)], free=2
        ),
    ),
    "a block that there is not": (
        "blocks-conserved",
        lambda seen: seen.tick(admit=[("b", [4])], chunks=[("a", 2, 1, OTHER)], free=1),
    ),
    "admitted with the blocks of its first chunk": (
        "blocks-cover-context",
        lambda seen: (
            seen.monitor.submitted("c", "v", 3, 2),
            seen.tick(admit=[("c", [2])], chunks=[("a", 2, 1, OTHER)], free=1),
        ),
    ),
    "no growth at a boundary": (
        "blocks-cover-context",
        lambda seen: (seen.first_token(), seen.tick(decode=[("a", OTHER)], free=2)),
    ),
    "growth before a boundary": (
        "blocks-cover-context",
        lambda seen: (
            seen.tick(admit=[("b", [2])], chunks=[("a", 2, 1, OTHER), ("b", 0, 1, OTHER)], free=1),
            seen.tick(grow=[("b", 3)], decode=[("b", OTHER)], ended=[("b", "length")], free=2),
        ),
    ),
    "over the budget": (
        "budget-bounded",
        lambda seen: (
            seen.monitor.submitted("c", "v", 4, 1),
            seen.tick(
                admit=[("c", [2, 3])], chunks=[("a", 2, 1, OTHER), ("c", 0, 4, None)], free=0
            ),
        ),
    ),
    "a chunk too long": (
        "chunk-bounded",
        lambda seen: seen.tick(chunks=[("a", 2, 2, OTHER)], free=2),
    ),
    "a chunk of nothing": (
        "chunk-bounded",
        lambda seen: seen.tick(chunks=[("a", 2, 0, None)], free=2),
    ),
    "a chunk fed twice": (
        "fed-once-in-order",
        lambda seen: seen.tick(chunks=[("a", 0, 2, None)], free=2),
    ),
    "a token skipped": (
        "fed-once-in-order",
        lambda seen: seen.tick(chunks=[("a", 3, 1, OTHER)], free=2),
    ),
    "a token within a prefill": (
        "tokens-when-due",
        lambda seen: (
            seen.tick(admit=[("b", [2])], chunks=[("b", 0, 1, None)], free=1),
            seen.tick(chunks=[("a", 2, 1, OTHER)], free=1),
        ),
    ),
    "EOS seen a tick late": (
        "eos-ends-at-once",
        lambda seen: seen.tick(chunks=[("a", 2, 1, EOS)], free=2),
    ),
    "an end by EOS without EOS": (
        "eos-ends-at-once",
        lambda seen: seen.tick(chunks=[("a", 2, 1, OTHER)], ended=[("a", "eos")], free=4),
    ),
    "a token more than max_tokens": (
        "length-is-exact",
        lambda seen: (
            seen.tick(admit=[("b", [2])], chunks=[("a", 2, 1, OTHER), ("b", 0, 1, OTHER)], free=1),
            seen.tick(decode=[("b", OTHER)], free=1),
        ),
    ),
    "a token less than max_tokens": (
        "length-is-exact",
        lambda seen: seen.tick(chunks=[("a", 2, 1, OTHER)], ended=[("a", "length")], free=4),
    ),
    "reported twice": (
        "ended-once",
        lambda seen: seen.tick(
            chunks=[("a", 2, 1, EOS)], ended=[("a", "eos"), ("a", "eos")], free=4
        ),
    ),
    "reported though it was never live": (
        "ended-once",
        lambda seen: seen.tick(chunks=[("a", 2, 1, OTHER)], ended=[("x", "eos")], free=2),
    ),
    "cancelled twice": (
        "ended-once",
        lambda seen: (seen.monitor.cancelled("b"), seen.monitor.cancelled("b")),
    ),
    "one that passes its equal": (
        "passed-for-cause",
        lambda seen: seen.monitor.submitted("c", "u", 1, 1, (None, None), 0, 1),
    ),
    "the younger first": (
        "fcfs-within-user",
        lambda seen: (
            seen.monitor.submitted("c", "u", 1, 1),
            seen.tick(admit=[("c", [2])], chunks=[("a", 2, 1, OTHER)], free=1),
        ),
    ),
    "accepted though it cannot finish": (
        "feasible-or-refused",
        lambda seen: seen.monitor.submitted("c", "u", 6, 4),
    ),
    "refused by a queue that has room": (
        "refused-for-cause",
        lambda seen: seen.monitor.refused("c", "queue_full", 1, 1, "u"),
    ),
    "refused though it could finish": (
        "refused-for-cause",
        lambda seen: seen.monitor.refused("c", "infeasible", 6, 3),
    ),
    "refused as a duplicate of nobody": (
        "refused-for-cause",
        lambda seen: seen.monitor.refused("c", "duplicate"),
    ),
    "accepted under the id of a live request": (
        "refused-for-cause",
        lambda seen: seen.monitor.submitted("a", "u", 1, 1),
    ),
    "preempted under guaranteed_no_evict": (
        "never-evicts",
        lambda seen: seen.tick(
            preempt=["a"], admit=[("b", [0])], chunks=[("b", 0, 1, OTHER)], free=3
        ),
    ),
    "a waiting request decodes": (
        "only-live-are-scheduled",
        lambda seen: seen.tick(decode=[("b", OTHER)], free=2),
    ),
    "preempted while it waits": (
        "only-live-are-scheduled",
        lambda seen: seen.tick(preempt=["b"], chunks=[("a", 2, 1, OTHER)], free=2),
    ),
    "preempted and fed": (
        "only-live-are-scheduled",
        lambda seen: seen.tick(preempt=["a"], chunks=[("a", 2, 1, OTHER)], free=4),
    ),
    "twice in a batch": (
        "scheduled-once",
        lambda seen: (
            seen.first_token(),
            seen.tick(grow=[("a", 2)], decode=[("a", OTHER), ("a", OTHER)], free=1),
        ),
    ),
    "an empty batch": ("tick-feeds", lambda seen: seen.tick(free=2)),
}


@pytest.mark.parametrize(("name", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named(name: str, fault: Fault) -> None:
    seen = Seen("guaranteed_no_evict" if name == "never-evicts" else "max_utilization")
    fault(seen)
    assert name in {violation.property for violation in seen.monitor.violations}


def test_every_property_has_a_fault() -> None:
    assert {name for name, _ in FAULTS.values()} == PROPERTIES


def test_it_raises_at_the_first_violation_when_asked_to() -> None:
    monitor = Monitor(SMALL)
    monitor.submitted("a", "u", 1, 1)
    with pytest.raises(ViolationError, match="tick 0: tick-feeds: nothing is fed") as raised:
        monitor.ticked(TickFacts(free=4))
    assert raised.value.report["violations"][0]["property"] == "tick-feeds"


def test_a_report_is_enough_to_see_the_violation_again() -> None:
    sched = busy(monitor := Monitor(Limits(max_kv_blocks=30, token_budget=100, max_batch_size=16),
                                    on_violation="record"))  # fmt: skip
    for _ in range(3 * TICKS_KEPT + 50):
        sched.tick()
    assert monitor.violations == []
    assert replay(monitor.report()) == []

    monitor.ticked(TickFacts(free=3))

    report = monitor.report()
    told = [event for event in report["events"] if event[0] == "ticked"]
    assert TICKS_KEPT <= len(told) <= 2 * TICKS_KEPT
    assert replay(report) == monitor.violations != []


def test_a_report_says_what_was_not_checked() -> None:
    monitor = Monitor(Limits(max_kv_blocks=4), on_violation="record", exempt=["blocks-conserved"])
    monitor.ticked(TickFacts(free=3))
    assert monitor.violations == replay(monitor.report()) == []


def test_it_takes_up_a_restored_scheduler_in_the_middle() -> None:
    sched = busy(False)
    for _ in range(50):
        sched.tick()
    again = Scheduler.restore(sched.snapshot(), executor=sched.executor, monitor=True)
    while again.has_active():
        again.tick()
    assert again.monitor is not None
    assert again.monitor.violations == []


def test_it_hears_beside_an_observer_of_ones_own() -> None:
    from batchproof.sched.observer import SilentObserver

    class Counter(SilentObserver):
        ticks = 0

        def ticked(self, batch, tokens, ended, now) -> None:
            self.ticks += 1

    counter = Counter()
    sched = Scheduler(observer=counter, monitor=True)
    sched.submit(Request("u", [1], 3, "a"))
    while sched.has_active():
        sched.tick()
    assert sched.monitor is not None
    assert counter.ticks == sched.monitor.ticks == 3
