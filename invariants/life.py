"""The life of a request: accepted once, along the table's edges, ended once (rules 1, 4 and 9)."""

from typing import Final

from batchproof.invariants.claim import Claim
from batchproof.spec import lifecycle
from batchproof.spec.actions import Cancel, Event, Refuse, Submit, Tick
from batchproof.spec.lifecycle import DONE, WAITING
from batchproof.spec.state import Live, State, System


def life_is_legal(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether every change of phase is a path of edges that the event stands for."""
    phases: dict[int, lifecycle.Phase] = {live.request: live.phase for live in after.live}
    for live in before.live:
        dest = phases.get(live.request, DONE)
        path = _edges(event, live, dest)
        phase: lifecycle.Phase | None = live.phase
        for edge in path:
            phase = None if phase is None else lifecycle.dest(edge, phase)
        if phase != dest:
            return False
    return True


def _edges(event: Event, live: Live, dest: lifecycle.Phase) -> list[lifecycle.Event]:
    """Return the edges that one step takes a request along, if it ends in `dest`."""
    if isinstance(event, Cancel):
        return ["cancel"] if event.request == live.request else []
    if not isinstance(event, Tick):
        return []
    if live.request in event.work.preempt:
        return ["preempt"]
    path: list[lifecycle.Event] = ["admit"] if live.request in event.work.admit else []
    if dest == DONE:
        path.append("finish")
    elif dest == lifecycle.DECODING != live.phase:
        path.append("first_token")
    return path


def only_live_are_scheduled(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a tick preempts, admits and feeds only whom it can."""
    if not isinstance(event, Tick):
        return True
    work = event.work
    residents = {live.request for live in before.live if live.phase != WAITING}
    waiting = {live.request for live in before.live if live.phase == WAITING}
    return (
        residents.issuperset(work.preempt)
        and waiting.issuperset(work.admit)
        and (residents - {*work.preempt} | {*work.admit}).issuperset(i for i, _ in work.feed)
    )


def ids_unique(system: System, state: State) -> bool:
    """Say whether no two live requests have the same id."""
    return len({live.request for live in state.live}) == len(state.live)


def feasible_or_refused(system: System, state: State) -> bool:
    """Say whether every live request could finish alone."""
    limits = system.limits
    return all(
        prompt >= 1
        and max_tokens >= 1
        and prompt + max_tokens - 1 <= limits.max_kv_blocks * limits.block_size
        for _, prompt, max_tokens, _ in (system.requests[live.request] for live in state.live)
    )


def refused_for_cause(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a refusal has a reason, and changes nothing."""
    if not isinstance(event, Refuse):
        return True
    _, prompt, max_tokens, _ = system.requests[event.request]
    room = system.limits.max_kv_blocks * system.limits.block_size
    could_finish = prompt >= 1 <= max_tokens and prompt + max_tokens - 1 <= room
    is_live = any(live.request == event.request for live in before.live)
    return after == before and (is_live or not could_finish)


def submitted_to_wait(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether only a submission makes a request live, with nothing fed or held."""
    known = {live.request for live in before.live}
    new = [live for live in after.live if live.request not in known]
    if not isinstance(event, Submit):
        return not new
    return new == [Live(event.request, WAITING, 0, 0, 0)]


def ended_once(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether all who were live are live or reported as ended, once, and nobody else is."""
    remain = {live.request for live in after.live}
    gone = sorted(live.request for live in before.live if live.request not in remain)
    if isinstance(event, Tick):
        return gone == sorted(i for i, _ in event.ended)
    return gone == ([event.request] if isinstance(event, Cancel) else [])


def bystanders_untouched(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether whoever a step does not name is after it as before it."""
    if isinstance(event, Tick):
        work = event.work
        named = {*work.preempt, *work.admit, *(i for i, _ in work.feed)}
    else:
        named = {event.request}
    others = [_as_it_is(live) for live in before.live if live.request not in named]
    still = [_as_it_is(live) for live in after.live if live.request not in named]
    return sorted(others) == sorted(still)


def _as_it_is(live: Live) -> Live:
    """Return a request but for how often it was passed, which is a matter of order (rule 5)."""
    return live._replace(passed=0)


CLAIMS: Final = (
    Claim(
        "life-is-legal",
        "every change of phase is along edges of the lifecycle table; nothing leaves done",
        "rule 1",
        "step",
        life_is_legal,
    ),
    Claim(
        "only-live-are-scheduled",
        "a tick preempts residents, admits waiting requests and feeds residents, and nobody else",
        "rule 1",
        "step",
        only_live_are_scheduled,
    ),
    Claim("ids-unique", "no two live requests have the same id", "rule 4", "invariant", ids_unique),
    Claim(
        "feasible-or-refused",
        "every live request could finish alone in an empty pool",
        "rule 4",
        "invariant",
        feasible_or_refused,
    ),
    Claim(
        "refused-for-cause",
        "a request is refused only if its id is live or it could not finish alone, "
        "and a refusal changes nothing",
        "rule 4",
        "step",
        refused_for_cause,
    ),
    Claim(
        "submitted-to-wait",
        "a request becomes live by its submission only, waiting and with nothing",
        "rules 1 and 4",
        "step",
        submitted_to_wait,
    ),
    Claim(
        "ended-once",
        "a request that is live stays live or is reported as ended, exactly once; "
        "none is lost, none is reported that was not live",
        "rules 1 and 9",
        "step",
        ended_once,
    ),
    Claim(
        "bystanders-untouched",
        "a step changes only the requests that it names",
        "rules 2 and 9",
        "step",
        bystanders_untouched,
    ),
)
