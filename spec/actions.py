"""What may happen: submit, refuse, cancel and tick, each a guard and an effect.

A tick is a choice of work, and of whose output is EOS. The specification takes
no side: any work that the rules allow is legal. Guards return the objection,
with the rule it comes from, or None.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations
from typing import NamedTuple

from batchproof.spec.lifecycle import (
    DECODING,
    PREFILLING,
    RESIDENT,
    WAITING,
    FinishReason,
)
from batchproof.spec.state import (
    NEW,
    Live,
    State,
    System,
    completes,
    feedable,
)


@dataclass(frozen=True, slots=True)
class Submit:
    """A user submits a request, and it is accepted."""

    request: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """A user submits a request, and it is refused."""

    request: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """A user cancels a live request, or it expires: to the rules that is the same.

    When a request expires is a matter of clocks, which no rule reads; it may be
    between any two ticks, as a user may cancel then.
    """

    request: int


class Work(NamedTuple):
    """What a tick does, in this order; requests are named by id, oldest first."""

    preempt: tuple[int, ...] = ()
    admit: tuple[int, ...] = ()
    feed: tuple[tuple[int, int], ...] = ()
    """Each request that is fed, and how many tokens: of a decode, one."""


class Tick(NamedTuple):
    """One iteration of the model: the work, whose output was EOS, and what was reported."""

    work: Work
    eos: tuple[int, ...] = ()
    ended: tuple[tuple[int, FinishReason], ...] = ()


Event = Submit | Refuse | Cancel | Tick


# --- submit -----------------------------------------------------------------


def objection_to_submit(system: System, state: State, request: int) -> str | None:
    """Rule 4: feasible or refused; no live request has the same id."""
    if state.find(request) is not None:
        return "rule 4: a live request has this id"
    if not system.is_feasible(request):
        return "rule 4: it could not finish alone in an empty pool"
    return None


def submit(system: System, state: State, request: int) -> State:
    """Rule 5: it comes last, and passes forward along its own user's line while it may.

    Who is passed takes the place behind it, so that the places of other users' requests
    stay as they are.
    """
    live = [*state.live, Live(request, *NEW)]
    place = len(state.live)
    for ahead in reversed(range(len(state.live))):
        other = live[ahead]
        if not _same_user(system, other.request, request):
            continue
        if not may_pass(system, request, other):
            break
        live[ahead], live[place] = live[place], other._replace(passed=other.passed + 1)
        place = ahead
    return state._replace(live=tuple(live))


def may_pass(system: System, request: int, other: Live) -> bool:
    """Rule 5: only who is less urgent is passed, at most so often, and never once admitted."""
    less_urgent = system.requests[other.request].priority < system.requests[request].priority
    return less_urgent and other.passed < system.max_passes


# --- cancel -----------------------------------------------------------------


def objection_to_cancel(state: State, request: int) -> str | None:
    """Rule 9: only what is live can be cancelled."""
    return None if state.find(request) is not None else "rule 9: no live request has this id"


def cancel(state: State, request: int) -> State:
    """Rule 9: at once, exactly that id; its blocks are free."""
    freed = sum(live.blocks for live in state.live if live.request == request)
    rest = tuple(live for live in state.live if live.request != request)
    return state._replace(live=rest, free=state.free + freed)


# --- tick: the guard --------------------------------------------------------


def objection_to_tick(system: System, state: State, work: Work) -> str | None:
    """Return the first rule that `work` breaks in `state`, or None."""
    return next(_objections(system, state, work), None)


def _objections(system: System, state: State, work: Work) -> Iterator[str]:
    # Only the first is ever asked for: what follows one may rely on its absence.
    limits, (preempt, admit, feed) = system.limits, work
    lives = {live.request: live for live in state.live}
    tokens = dict(feed)
    # Rule 1: only edges of the table, each request once.
    if len({*preempt, *admit}) < len(preempt) + len(admit) or len(tokens) < len(feed):
        yield "rule 1: a request is named twice"
    if not {*preempt, *admit, *tokens} <= lives.keys():
        yield "rule 1: a request that is not live is scheduled"
    if any(lives[i].phase not in RESIDENT for i in preempt):
        yield "rule 1: a request that is not resident is preempted"
    if any(lives[i].phase != WAITING for i in admit):
        yield "rule 1: a request that is not waiting is admitted"
    if any(i in preempt or (lives[i].phase == WAITING and i not in admit) for i in tokens):
        yield "rule 1: a request without blocks is fed"
    # Rule 3: what grows and what is admitted takes its blocks at once, from what is free.
    if preempt and system.admission == "guaranteed_no_evict":
        yield "rule 3: guaranteed_no_evict never preempts"
    freed = sum(lives[i].blocks for i in preempt)
    if blocks_taken(system, state, work) > state.free + freed:
        yield "rule 3: more blocks are taken than are free"
    # Rule 5: within a user, nobody is admitted before an older one that waits.
    waiting = {i for i in lives if lives[i].phase == WAITING or i in preempt} - set(admit)
    order = [live.request for live in state.live]
    if any(
        _same_user(system, i, j) for j in admit for i in order[: order.index(j)] if i in waiting
    ):
        yield "rule 5: a request is admitted before an older one of its user"
    # Rule 6: chunk, budget and batch size.
    if any(not 1 <= n <= feedable(system, lives[i]) for i, n in feed):
        yield "rule 6: a request is fed too many tokens, or none"
    if sum(tokens.values()) > limits.token_budget:
        yield "rule 6: more tokens than the budget"
    if len(feed) > limits.max_batch_size:
        yield "rule 6: more sequences than a batch may have"
    # Rule 7: a tick with live requests feeds at least one token.
    if not feed:
        yield "rule 7: nothing is fed"


def _same_user(system: System, i: int, j: int) -> bool:
    return system.requests[i].user == system.requests[j].user


def blocks_taken(system: System, state: State, work: Work) -> int:
    """Return the blocks that `work` takes: for growth, and for admissions (rule 3)."""
    fed = dict(work.feed)
    return sum(
        growth(system, live)
        if live.phase == DECODING and live.request in fed
        else system.blocks_to_admit(live.request, live.generated)
        if live.request in work.admit
        else 0
        for live in state.live
    )


def growth(system: System, live: Live) -> int:
    """Return the blocks that a decode takes: one where it crosses a boundary (rule 3)."""
    return max(system.blocks_to_yield(live.request, live.generated) - live.blocks, 0)


# --- tick: every legal work -------------------------------------------------


def works(system: System, state: State) -> Iterator[Work]:
    """Yield every work that is legal in `state`: exactly what `objection_to_tick` lets pass."""
    limits = system.limits
    shares = [_Shares((), (), (), limits.token_budget, limits.max_batch_size, state.free, ())]
    for live in state.live:
        shares = [more for share in shares for more in _with(system, share, live)]
    for share in shares:
        if share.free >= 0 and share.feed:
            yield Work(share.preempt, share.admit, share.feed)


class _Shares(NamedTuple):
    """Work for the oldest requests, and what it leaves for the younger ones."""

    preempt: tuple[int, ...]
    admit: tuple[int, ...]
    feed: tuple[tuple[int, int], ...]
    budget: int
    seats: int
    free: int
    """Below zero, younger requests must be preempted to make up for it."""
    passed: tuple[int, ...]
    """Users that have an older request waiting: rule 5."""


def _with(system: System, share: _Shares, live: Live) -> Iterator[_Shares]:
    preempt, admit, feed, budget, seats, free, passed = share
    request, user = live.request, system.requests[live.request].user
    if live.phase == WAITING:
        yield share._replace(passed=(*passed, user))
        if user in passed:
            return
        admit = (*admit, request)
        free -= system.blocks_to_admit(request, live.generated)
    elif system.admission == "max_utilization":
        yield share._replace(
            preempt=(*preempt, request), free=free + live.blocks, passed=(*passed, user)
        )
    yield _Shares(preempt, admit, feed, budget, seats, free, passed)
    if seats:
        if live.phase == DECODING:
            free -= growth(system, live)
        for n in range(1, min(feedable(system, live), budget) + 1):
            fed = (*feed, (request, n))
            yield _Shares(preempt, admit, fed, budget - n, seats - 1, free, passed)


# --- tick: the effect -------------------------------------------------------


def yielding(system: System, state: State, work: Work) -> tuple[int, ...]:
    """Return the requests that yield a token: decodes, and completed prefills (rule 2)."""
    fed = dict(work.feed)
    return tuple(
        live.request
        for live in state.live
        if live.request in fed and completes(system, live, fed[live.request])
    )


def eos_choices(yielded: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield every choice of whose token is EOS: it is the environment's."""
    sizes = range(len(yielded) + 1)
    return chain.from_iterable(combinations(yielded, size) for size in sizes)


def tick(system: System, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
    """Preempt, admit, grow, feed; then everyone who yields a token goes on or ends."""
    fed = dict(work.feed)
    free = state.free
    rest: list[Live] = []
    ended: list[tuple[int, FinishReason]] = []
    for before in state.live:
        request, tokens = before.request, fed.get(before.request, 0)
        live = before
        if request in work.preempt:
            live = preempted(live)
        elif request in work.admit:
            live = admitted(system, live)
        if tokens:
            live = fed_with(system, live, tokens)
            if completes(system, before, tokens):
                reason = finish_reason(system, live, is_eos=request in eos)
                if reason is not None:
                    # Rule 2: it ends in this very tick, and its blocks are free in it.
                    ended.append((request, reason))
                    free += before.blocks
                    continue
        free += before.blocks - live.blocks
        rest.append(live)
    return Tick(work, eos, tuple(ended)), State(tuple(rest), free, state.history)


def preempted(live: Live) -> Live:
    """Rule 5, rule 8: it gives up its blocks and keeps its tokens."""
    return Live(live.request, WAITING, 0, live.generated, 0, live.passed)


def admitted(system: System, live: Live) -> Live:
    """Rule 3: it takes the blocks of its whole known context, and of the token to come, at once.

    Rule 5: from here on nobody passes it.
    """
    blocks = system.blocks_to_admit(live.request, live.generated)
    return Live(live.request, PREFILLING, 0, live.generated, blocks, system.max_passes)


def fed_with(system: System, live: Live, tokens: int) -> Live:
    """Rule 2: a decode yields a token, and so does the last token of a prefill."""
    request, phase, prefilled, generated, blocks, passed = live
    if phase == DECODING:
        return Live(request, DECODING, 0, generated + 1, blocks + growth(system, live), passed)
    if completes(system, live, tokens):
        return Live(request, DECODING, 0, generated + 1, blocks, passed)
    return Live(request, PREFILLING, prefilled + tokens, generated, blocks, passed)


def finish_reason(system: System, live: Live, *, is_eos: bool) -> FinishReason | None:
    """Rule 2: EOS, or the `max_tokens`-th token; None if it goes on."""
    if is_eos:
        return "eos"
    return "length" if live.generated == system.requests[live.request].max_tokens else None
