"""What must be possible, so that nothing holds only because nothing ever happens."""

from collections.abc import Callable
from typing import Final

from batchproof.invariants.claim import ANY, WORK_CONSERVING, Claim
from batchproof.spec.actions import Cancel, Event, Refuse, Submit, Tick, Work
from batchproof.spec.lifecycle import DECODING, RESIDENT, WAITING
from batchproof.spec.state import State, System


def _work(event: Event) -> Work:
    return event.work if isinstance(event, Tick) else Work()


def preempts(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether somebody is preempted."""
    return bool(_work(event).preempt)


def fills_pool(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether no block is free."""
    return after.free == 0


def chunks_prompt(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a prompt is fed in part."""
    return any(live.prefilled > 0 for live in after.live)


def grows(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a decode takes a block."""
    was = {live.request: live.blocks for live in before.live if live.phase == DECODING}
    return any(live.blocks > was.get(live.request, live.blocks) for live in after.live)


def recomputes(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a request with tokens is admitted again."""
    return any(live.generated and live.request in _work(event).admit for live in before.live)


def ends_at_first_token(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a request ends by EOS as its first token."""
    eos = event.eos if isinstance(event, Tick) else ()
    return any(not live.generated and live.request in eos for live in before.live)


def ends_by_length(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a request ends by length."""
    return isinstance(event, Tick) and any(reason == "length" for _, reason in event.ended)


def ends_two(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether two requests end in one tick."""
    return isinstance(event, Tick) and len(event.ended) >= 2


def mixes(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether one batch has a decode and a chunk."""
    fed = dict(_work(event).feed)
    phases = {live.phase == DECODING for live in before.live if live.request in fed}
    return len(phases) == 2


def uses_whole_budget(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a batch feeds as many tokens as it may."""
    return sum(tokens for _, tokens in _work(event).feed) == system.limits.token_budget


def cancels_resident(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a request that holds blocks is cancelled."""
    return isinstance(event, Cancel) and any(
        live.request == event.request and live.phase in RESIDENT for live in before.live
    )


def refuses_infeasible(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a request that is not live is refused."""
    return isinstance(event, Refuse) and before.find(event.request) is None


def waits_while_running(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a tick runs while somebody waits through it."""
    if not isinstance(event, Tick):
        return False
    waited = {live.request for live in before.live if live.phase == WAITING}
    return any(live.phase == WAITING and live.request in waited for live in after.live)


def _can_chunk(system: System) -> bool:
    return any(request.prompt > system.limits.chunk_size for request in system.requests)


def _can_grow(system: System) -> bool:
    return system.admission == "max_utilization" and any(
        system.blocks_to_yield(i, 0) < system.blocks_at_peak(i)
        for i in range(len(system.requests))
        if system.is_feasible(i)
    )


def is_passed(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a request that was never admitted was passed as often as it may be."""
    return isinstance(event, Submit) and any(
        live.passed == system.max_passes > was.passed
        for live in after.live
        for was in before.live
        if was.request == live.request
    )


def _cancels(system: System) -> bool:
    return system.cancels


def _can_refuse(system: System) -> bool:
    return not all(map(system.is_feasible, range(len(system.requests))))


def _can_pass(system: System) -> bool:
    return system.max_passes > 0


def _always(system: System) -> bool:
    return True


def _witness(
    name: str,
    claim: str,
    predicate: Callable[..., bool],
    applies: Callable[[System], bool] = _always,
    promised_by: frozenset[str] | None = None,
) -> Claim:
    return Claim(
        name,
        claim,
        "guards against claims that hold because nothing happens",
        "witness",
        predicate,
        promised_by=promised_by,
        applies=applies,
    )


CLAIMS: Final = (
    _witness("can-preempt", "a request can be preempted", preempts, _can_grow),
    _witness("can-fill-pool", "every block can be held", fills_pool),
    _witness("can-chunk", "a prompt can take more than one tick", chunks_prompt, _can_chunk),
    _witness("can-grow", "a decode can take a block", grows, _can_grow),
    _witness(
        "can-recompute",
        "a preempted request with tokens can be admitted again",
        recomputes,
        _can_grow,
    ),
    _witness("can-end-at-first-token", "EOS can be the first token", ends_at_first_token),
    _witness("can-end-by-length", "a request can end by length", ends_by_length),
    _witness("can-end-together", "two requests can end in one tick", ends_two),
    _witness(
        "can-mix",
        "one batch can have a decode and a chunk",
        mixes,
        promised_by=WORK_CONSERVING | {"fair-lane", ANY},
    ),
    _witness("can-use-budget", "a batch can feed token_budget tokens", uses_whole_budget),
    _witness("can-cancel-resident", "a resident can be cancelled", cancels_resident, _cancels),
    _witness("can-refuse", "an infeasible request can be refused", refuses_infeasible, _can_refuse),
    _witness("can-be-passed", "a request can be passed max_passes times", is_passed, _can_pass),
    _witness("can-wait", "a request can wait while others run", waits_while_running),
)
