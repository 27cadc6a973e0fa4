"""Something happens, and what can be used is used (rule 7); pauses are bounded."""

from typing import Final

from batchproof.invariants.claim import FIRST_COME_FIRST_SERVED, SPARING, WORK_CONSERVING, Claim
from batchproof.spec.actions import Event, Tick, Work, objection_to_tick, works
from batchproof.spec.lifecycle import DECODING, WAITING
from batchproof.spec.state import LONG_GAP, Live, State, System


def work_is_legal(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether the specification allows what the tick does."""
    return not isinstance(event, Tick) or objection_to_tick(system, before, event.work) is None


def tick_possible(system: System, state: State) -> bool:
    """Say whether some tick is legal, if somebody is live."""
    return not state.live or next(iter(works(system, state)), None) is not None


def tick_feeds(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a tick feeds somebody."""
    return not isinstance(event, Tick) or sum(tokens for _, tokens in event.work.feed) > 0


def never_evicts(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether nobody is preempted."""
    return not isinstance(event, Tick) or not event.work.preempt


def no_idle_capacity(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether nothing is left that a resident or the next in line could use."""
    if not isinstance(event, Tick):
        return True
    work, limits = event.work, system.limits
    fed = dict(work.feed)
    if sum(fed.values()) >= limits.token_budget:
        return True
    seats = limits.max_batch_size - len(fed)
    free = _free_in(system, before, work)
    for live in before.live:
        if _is_resident_in(work, live):
            if fed.get(live.request, 0) < _usable(system, live, free):
                return seats == 0 and live.request not in fed
        elif seats:
            # The first that is left waiting: nobody behind it counts.
            return _to_admit(system, live) > free
    return True


def _usable(system: System, live: Live, free: int) -> int:
    """Return the tokens that a resident could be fed, given what the tick leaves free."""
    if live.phase == DECODING:
        return 1 if free >= _growth(system, live) else 0
    left = system.requests[live.request].prompt + live.generated - live.prefilled
    return min(system.limits.chunk_size, left)


def preemption_is_needed(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether each victim, in their order, gave way while blocks were missing.

    To what grows or is admitted in the tick, or to a decode that had to grow and gave way too.
    """
    if not isinstance(event, Tick) or not event.work.preempt:
        return True
    live = {live.request: live for live in before.live}
    victims = [live[request] for request in event.work.preempt if request in live]
    missing = sum(victim.blocks for victim in victims) - _free_in(system, before, event.work)
    missing += sum(_growth(system, v) for v in victims if v.phase == DECODING)
    for victim in victims:
        if missing <= 0:
            return False
        missing -= victim.blocks
    return True


def oldest_stays(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether the oldest resident is not preempted."""
    if not isinstance(event, Tick) or not event.work.preempt:
        return True
    return next(live for live in before.live if live.phase != WAITING).request not in (
        event.work.preempt
    )


def gap_promised(system: System) -> int:
    """Return the most ticks from one token to the next, where all decodes take turns."""
    limits = system.limits
    return -(-limits.max_batch_size // min(limits.max_batch_size, limits.token_budget))


def tokens_keep_coming(system: System, state: State) -> bool:
    """Say whether no decoding request has gone without a token for too many ticks."""
    return state.history is None or all(
        gap < min(gap_promised(system), LONG_GAP) for gap in state.history.gaps
    )


def _is_resident_in(work: Work, live: Live) -> bool:
    if live.phase == WAITING:
        return live.request in work.admit
    return live.request not in work.preempt


def _free_in(system: System, before: State, work: Work) -> int:
    """Return the blocks that are left over in a tick, before anybody ends in it."""
    fed = dict(work.feed)
    free = before.free
    for live in before.live:
        if live.request in work.preempt:
            free += live.blocks
        elif live.request in work.admit:
            free -= _to_admit(system, live)
        elif live.request in fed:
            free -= _growth(system, live)
    return free


def _to_admit(system: System, live: Live) -> int:
    return system.blocks_to_admit(live.request, live.generated)


def _growth(system: System, live: Live) -> int:
    return max(0, system.blocks_to_yield(live.request, live.generated) - live.blocks)


def _evicts_never(system: System) -> bool:
    return system.admission == "guaranteed_no_evict"


CLAIMS: Final = (
    Claim(
        "work-is-legal",
        "the specification allows every tick",
        "rules 1 to 7",
        "step",
        work_is_legal,
    ),
    Claim(
        "tick-possible",
        "when a request is live, some tick is legal",
        "rule 7",
        "invariant",
        tick_possible,
    ),
    Claim(
        "tick-feeds",
        "a tick with live requests feeds at least one token",
        "rule 7",
        "step",
        tick_feeds,
    ),
    Claim(
        "never-evicts",
        "under guaranteed_no_evict nobody is preempted",
        "rule 3",
        "step",
        never_evicts,
        applies=_evicts_never,
    ),
    Claim(
        "no-idle-capacity",
        "a tick leaves no budget, seat and memory together that a resident, or the next in line, "
        "could use",
        "rule 7",
        "step",
        no_idle_capacity,
        promised_by=WORK_CONSERVING,
    ),
    Claim(
        "preemption-is-needed",
        "no preemption is futile: each victim, in their order, gives way while blocks are missing "
        "for what grows or is admitted in the tick, or for a decode that gives way itself",
        "rule 7",
        "step",
        preemption_is_needed,
        promised_by=SPARING,
    ),
    Claim(
        "oldest-stays",
        "the oldest resident is never preempted",
        "rule 7: somebody always gets nearer to the end",
        "step",
        oldest_stays,
        promised_by=SPARING,
    ),
    Claim(
        "bounded-time-between-tokens",
        "a decoding request that is not preempted yields a token at least every N ticks, "
        "N = ceil(max_batch_size / min(max_batch_size, token_budget))",
        "rule 6",
        "invariant",
        tokens_keep_coming,
        promised_by=FIRST_COME_FIRST_SERVED,
    ),
)
