"""Faults of policies: each is a shipped policy with one thing wrong, or an honest bad idea."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from faults.fault import Fault, under

from batchproof.sched.policy.prefill_first import PrefillFirst
from batchproof.sched.policy.protocol import Candidate, Plan, View
from batchproof.sched.policy.stall_free import StallFree
from batchproof.sched.policy.static import Static
from batchproof.sched.refinement import UnderPolicy
from batchproof.spec.actions import Event
from batchproof.spec.state import State


class Altered:
    """A view of which some attributes are not what they are."""

    def __init__(self, view: View, **changes: Any) -> None:
        self._view = view
        self.__dict__.update(changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


def residents(view: View) -> list[Candidate]:
    """Return the residents, oldest first."""
    return sorted((*view.decoding, *view.prefilling), key=lambda candidate: candidate.number)


def stall_free_in_order(key: Callable[[Candidate], Any]) -> Callable[[], StallFree]:
    """Return stall-free, with the waiting line in another order."""

    class Reordered(StallFree):
        def plan(self, view: View) -> Plan:
            return super().plan(Altered(view, waiting=sorted(view.waiting, key=key)))

    return Reordered


class LatestFirst(PrefillFirst):
    """Fairness counter not lifted: a request that was just scheduled does not go to the end."""

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        seats = len(plan.decode)
        return replace(plan, decode=view.decoding[len(view.decoding) - seats :])


class UncountedPasses(UnderPolicy):
    """Priorities without ageing: to be passed leaves no mark, so that it goes on for ever."""

    def submit(self, state: State, request: int) -> tuple[Event, State]:
        before = {live.request: live.passed for live in state.live}
        event, after = super().submit(state, request)
        live = tuple(one._replace(passed=before.get(one.request, 0)) for one in after.live)
        return event, after._replace(live=live)


class PassesThePreempted(StallFree):
    """The youngest resident gives its place to the next in line, which thereby passes it."""

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        line, youngest = list(view.waiting)[:1], residents(view)[-1:]
        if plan.preempt or plan.admit or not line or not youngest:
            return plan
        if view.blocks_to_admit(line[0]) > view.free_blocks + youngest[0].block_count:
            return plan
        return Plan(preempt=youngest, admit=line, prefill=[(line[0], 1)])


class WaitsForCompany(StallFree):
    """No batch is made until two requests are there to share it."""

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        return plan if len(plan.decode) + len(plan.prefill) > 1 else Plan()


class EvictsForWaiting(StallFree):
    """The youngest resident gives way whenever somebody waits that does not fit."""

    def plan(self, view: View) -> Plan:
        plan = super().plan(view)
        if plan.preempt or plan.admit or not list(view.waiting) or len(residents(view)) < 2:
            return plan
        return _without(plan, residents(view)[-1:])


class PreemptsTheOldest(StallFree):
    """Who has to grow takes the blocks of the oldest resident."""

    def plan(self, view: View) -> Plan:
        oldest = residents(view)[:1]
        if len(view.growing) <= view.free_blocks or len(residents(view)) < 2:
            return super().plan(view)
        return _without(Plan(decode=view.decoding), oldest)


class KeepsAReserve(StallFree):
    """A block is kept free against preemption, even if nobody is resident."""

    def plan(self, view: View) -> Plan:
        keep = 1 if residents(view) else 0
        return super().plan(Altered(view, free_blocks=view.free_blocks - keep, growing=()))


def _without(plan: Plan, victims: Sequence[Candidate]) -> Plan:
    return Plan(
        preempt=victims,
        decode=[c for c in plan.decode if c not in victims],
        prefill=[(c, tokens) for c, tokens in plan.prefill if c not in victims],
    )


POLICIES = (
    Fault(
        "one-user-first",
        "one user's requests are always admitted before all others'",
        "fcfs-over-all",
        under(stall_free_in_order(lambda c: (c.user_id != "u1", c.number))),
        "growth",
    ),
    Fault(
        "counter-not-lifted",
        "those scheduled most recently are scheduled again",
        "least-recent-first",
        under(LatestFirst),
        "budget",
    ),
    Fault(
        "passes-the-preempted",
        "a request is admitted past one of its user that the same tick preempts",
        "work-is-legal",
        under(PassesThePreempted),
        "users",
    ),
    Fault(
        "waits-for-company",
        "a request that is alone is not served",
        "tick-feeds",
        under(WaitsForCompany),
    ),
    Fault(
        "evicts-a-reservation",
        "under guaranteed_no_evict the youngest gives way to who waits",
        "never-evicts",
        under(lambda: EvictsForWaiting("guaranteed_no_evict")),
        "reserve",
    ),
    Fault(
        "static-batching",
        "a slot that is free is not used again until the whole batch is done",
        "no-idle-capacity",
        under(Static),
        "growth",
    ),
    Fault(
        "reserve-against-preemption",
        "a block is kept free though the next in line fits into it",
        "no-idle-capacity",
        under(KeepsAReserve),
        "budget",
    ),
    Fault(
        "futile-preemption",
        "the youngest is preempted though nobody takes its blocks",
        "preemption-is-needed",
        under(EvictsForWaiting),
        "growth",
    ),
    Fault(
        "preempts-the-oldest",
        "who has to grow takes the blocks of the oldest",
        "oldest-stays",
        under(PreemptsTheOldest),
        "growth",
    ),
    Fault(
        "prefill-first",
        "waiting prompts run before any decode",
        "bounded-time-between-tokens",
        under(PrefillFirst),
    ),
    Fault(
        "priority-without-ageing",
        "a user of high priority is served first, however long others wait",
        "every-request-ends/r0",
        under(stall_free_in_order(lambda c: (c.user_id != "u1", c.number))),
        "users",
    ),
    Fault(
        "passes-uncounted",
        "no pass is counted, so that the urgent pass without end",
        "every-request-ends/r0",
        lambda size: UncountedPasses(system=size.system, watched=size.watched, policy=StallFree()),
        "priority",
    ),
    Fault(
        "newest-first",
        "the newest request is admitted first",
        "first-token-comes/r0",
        under(stall_free_in_order(lambda c: -c.number)),
        "growth",
    ),
    Fault(
        "preempted-last",
        "who was preempted is admitted when nobody else waits",
        "preempted-comes-back/r0",
        under(stall_free_in_order(lambda c: (c.remaining < c.max_tokens, c.number))),
        "growth",
    ),
)
