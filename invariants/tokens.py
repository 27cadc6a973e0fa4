"""Tokens in and out: fed once and in order, yielded when due, ended by the right one (rule 2)."""

from typing import Final

from batchproof.invariants.claim import Claim
from batchproof.spec.actions import Event, Tick
from batchproof.spec.lifecycle import DECODING, PREFILLING
from batchproof.spec.state import Live, State, System


def _yields(system: System, live: Live, tokens: int) -> bool:
    """Say whether a request yields a token in a tick that feeds it `tokens`; before it."""
    prompt = system.requests[live.request].prompt
    left = prompt + live.generated - live.prefilled
    return tokens > 0 and (live.phase == DECODING or tokens == left)


def fed_once_in_order(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether what is fed comes after what was fed, and never past the context."""
    if not isinstance(event, Tick):
        return True
    fed = dict(event.work.feed)
    was = {live.request: live for live in before.live}
    for i, tokens in fed.items():
        live = was.get(i)
        if live and live.prefilled + tokens > system.requests[i].prompt + live.generated:
            return False
    return all(
        live.prefilled == was[live.request].prefilled + fed.get(live.request, 0)
        for live in after.live
        if live.phase == PREFILLING and live.request in was
    )


def tokens_when_due(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a request has one token more exactly if it yields in the tick."""
    fed = dict(event.work.feed) if isinstance(event, Tick) else {}
    was = {live.request: live for live in before.live}
    return all(
        live.generated
        == was[live.request].generated
        + _yields(system, was[live.request], fed.get(live.request, 0))
        for live in after.live
        if live.request in was
    )


def phase_fits_tokens(system: System, state: State) -> bool:
    """Say whether who decodes has a token, and who prefills has context left to feed."""
    for live in state.live:
        context = system.requests[live.request].prompt + live.generated
        if live.phase == DECODING and not live.generated:
            return False
        if live.prefilled >= context:
            return False
        if live.generated >= system.requests[live.request].max_tokens:
            return False
    return True


def eos_ends_at_once(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether exactly those who yield EOS end by EOS."""
    if not isinstance(event, Tick):
        return True
    return sorted(event.eos) == sorted(i for i, reason in event.ended if reason == "eos")


def length_is_exact(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether exactly those end by length who yield their last token, not EOS."""
    if not isinstance(event, Tick):
        return True
    fed = dict(event.work.feed)
    due = [
        live.request
        for live in before.live
        if live.request not in event.eos
        and _yields(system, live, fed.get(live.request, 0))
        and live.generated + 1 == system.requests[live.request].max_tokens
    ]
    return due == [i for i, reason in event.ended if reason == "length"]


def preemption_keeps_tokens(system: System, before: State, event: Event, after: State) -> bool:
    """Say whether a preempted request waits with its tokens, to be fed from the first."""
    if not isinstance(event, Tick) or not event.work.preempt:
        return True
    kept = {live.request: live.generated for live in before.live}
    return all(
        live.generated == kept.get(live.request) and not live.prefilled
        for live in after.live
        if live.request in event.work.preempt
    )


CLAIMS: Final = (
    Claim(
        "fed-once-in-order",
        "in one residency every context token is fed once, in order, and none past the context",
        "rule 2",
        "step",
        fed_once_in_order,
    ),
    Claim(
        "tokens-when-due",
        "a request yields a token when it is fed the last of its context or decodes, "
        "and at no other time",
        "rule 2",
        "step",
        tokens_when_due,
    ),
    Claim(
        "phase-fits-tokens",
        "a request prefills until its whole context is fed, decodes from then on, "
        "and is not live with max_tokens tokens",
        "rules 1 and 2",
        "invariant",
        phase_fits_tokens,
    ),
    Claim(
        "eos-ends-at-once",
        "a request ends by EOS in exactly the tick in which it yields EOS: once, and nothing after",
        "rule 2",
        "step",
        eos_ends_at_once,
    ),
    Claim(
        "length-is-exact",
        "a request ends by length in exactly the tick of its max_tokens-th token, unless it is EOS",
        "rule 2",
        "step",
        length_is_exact,
    ),
    Claim(
        "preemption-keeps-tokens",
        "a preempted request keeps what it has generated, and its next residency starts afresh",
        "rule 8",
        "step",
        preemption_keeps_tokens,
    ),
)
