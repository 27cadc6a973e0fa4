"""`mini-batch` as `batchproof check` sees it: its bounds, their state counts, and its claims."""

from collections.abc import Callable
from typing import Final

from batchproof.spec.mini_batch import (
    DECODING,
    DONE,
    NEW,
    PREFILLING,
    WAITING,
    Event,
    MiniBatch,
    Reduction,
    Size,
    State,
    Submit,
    Tick,
)
from batchproof.spec.mini_batch_packed import PackedMiniBatch
from batchproof.spec.property import Kind, Property
from batchproof.spec.registry import Bound, ModelFamily

_SOURCE: Final = "mini-batch"
_LIFE: Final = frozenset(
    {
        (NEW, WAITING),
        (WAITING, PREFILLING),
        (WAITING, DECODING),
        (WAITING, DONE),
        (PREFILLING, DECODING),
        (PREFILLING, DONE),
        (DECODING, DONE),
    }
)
"""Legal changes of status in one step; a short prompt may be fed whole when admitted."""


def _lists_match(state: State) -> bool:
    lists = {WAITING: state.queue, PREFILLING: state.running, DECODING: state.running}
    return all(
        [*state.queue, *state.running].count(i) == (i in lists.get(request.status, ()))
        and (request.status in lists) == (i in lists.get(request.status, ()))
        for i, request in enumerate(state.requests)
    )


def _life_is_legal(before: State, event: Event, after: State) -> bool:
    return all(
        old == new or (old.status, new.status) in _LIFE or old.status == new.status != DONE
        for old, new in zip(before.requests, after.requests, strict=True)
    )


def _first_come_first_served(before: State, event: Event, after: State) -> bool:
    order = before.running + before.queue
    if isinstance(event, Submit):
        order += (event.request,)
    left = after.running + after.queue
    return left == tuple(i for i in order if i in left)


def _nobody_live(state: State) -> bool:
    return not state.queue and not state.running


def _somebody_live(state: State) -> bool:
    return not _nobody_live(state)


def _all_done(state: State) -> bool:
    return all(request.status == DONE for request in state.requests)


def _tick_feeds(before: State, event: Event, after: State) -> bool:
    return isinstance(event, Submit) or bool(event.fed)


def _ends_early(before: State, event: Event, after: State) -> bool:
    return isinstance(event, Tick) and any(after.requests[i].generated == 1 for i in event.eos)


def _chunks_a_prompt(before: State, event: Event, after: State) -> bool:
    return any(request.status == PREFILLING for request in after.requests)


def _waits_though_running(before: State, event: Event, after: State) -> bool:
    return isinstance(event, Tick) and bool(after.queue and after.running)


def _property(name: str, claim: str, kind: Kind, predicate: Callable[..., bool]) -> Property:
    return Property(name=name, claim=claim, source=_SOURCE, kind=kind, predicate=predicate)


PROPERTIES: Final = (
    _property(
        "lists-match",
        "a request is in the queue exactly once if it waits, among the running exactly once "
        "if it prefills or decodes, and in neither otherwise",
        "invariant",
        _lists_match,
    ),
    _property(
        "life-is-legal",
        "a request goes from new through waiting, prefilling and decoding to done, never back",
        "step",
        _life_is_legal,
    ),
    _property(
        "first-come-first-served",
        "requests are admitted in the order of submission",
        "step",
        _first_come_first_served,
    ),
    _property("tick-feeds", "a tick feeds at least one token", "step", _tick_feeds),
    Property(
        name="all-end",
        claim="whenever requests are live, there comes a moment when none is",
        source=_SOURCE,
        kind="liveness",
        predicate=_nobody_live,
        trigger=_somebody_live,
    ),
    _property("can-end-at-once", "a request can end with its first token", "witness", _ends_early),
    _property(
        "can-chunk", "a prompt can be fed in more than one tick", "witness", _chunks_a_prompt
    ),
    _property("can-wait", "a request can wait while others run", "witness", _waits_though_running),
)
CAN_ALL_END: Final = _property(
    "all-can-end", "from every state, every request can still be done", "liveness", _all_done
)


def properties_of(size: Size) -> tuple[Property, ...]:
    """Return the claims whose predicate depends on the constants."""
    return (
        _property(
            "memory-within-cap",
            "the blocks taken by the running requests are at most CAP",
            "invariant",
            lambda state: len(state.running) * size.need <= size.cap,
        ),
        _property(
            "batch-within-max",
            "at most MAXBATCH requests run",
            "invariant",
            lambda state: len(state.running) <= size.max_batch,
        ),
        _property(
            "tokens-within-budget",
            "a tick feeds at most BUDGET tokens, and at most CHUNK to one request",
            "step",
            lambda before, event, after: (
                isinstance(event, Submit)
                or (
                    sum(tokens for _, tokens in event.fed) <= size.budget
                    and all(0 < tokens <= size.chunk for _, tokens in event.fed)
                )
            ),
        ),
    )


def _bound(name: str, size: Size, states: int | None, folded: int) -> Bound:
    return Bound(
        name=name,
        about=f"{size.requests} requests, CAP {size.cap}, BUDGET {size.budget}, "
        f"MAXBATCH {size.max_batch}",
        parameters=size,
        states=states,
        folded_states=folded,
        properties=properties_of(size),
    )


BOUNDS: Final = {
    bound.name: bound
    for bound in (
        _bound("C1", Size(requests=3, cap=8, budget=4, max_batch=2), 1_040, 64),
        _bound("C2", Size(requests=5, cap=16, budget=4, max_batch=4), 157_885, 322),
        _bound("C3", Size(requests=6, cap=16, budget=4, max_batch=4), 1_680_451, 515),
        _bound("C4", Size(requests=7, cap=16, budget=3, max_batch=4), 11_209_861, 504),
        _bound("R30", Size(requests=30, cap=16, budget=3, max_batch=4), None, 10_739),
    )
}
SYMMETRIC_STATES: Final = {"C1": 200, "C2": 2_071, "C3": 4_787, "C4": 7_242}
"""Distinct states up to renaming requests alone, as other checkers count them."""


def build(
    bound: Bound, policy: str | None, reduction: Reduction = "symmetry+finished"
) -> MiniBatch:
    """Return the model at a bound; it has no policies."""
    return MiniBatch(bound.parameters, reduction)


MODEL_FAMILY: Final = ModelFamily(
    name="mini-batch",
    bounds=BOUNDS,
    default_bounds=("C1", "C2"),
    build=build,
    properties=PROPERTIES,
    recoverable=(CAN_ALL_END,),
    packed=lambda bound: PackedMiniBatch(bound.parameters),
)
