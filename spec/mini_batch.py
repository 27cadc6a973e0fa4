"""The reference model `mini-batch`: small enough to check anywhere, known to other checkers.

N identical requests, each of `prompt` tokens and at most `max_tokens` new
ones, first come first served, memory for the whole life taken at admission.
TLC, SPIN, stateright and rumur agree on its state counts (`BOUNDS`), which
makes it the yardstick of this checker's trust and speed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal, NamedTuple

NEW: Final = 0
WAITING: Final = 1
PREFILLING: Final = 2
DECODING: Final = 3
DONE: Final = 4
STATUS_NAMES: Final = ("new", "waiting", "prefilling", "decoding", "done")

Reduction = Literal["none", "symmetry", "symmetry+finished"]


@dataclass(frozen=True, slots=True)
class Size:
    """The constants of the model; tokens, except where said."""

    requests: int
    cap: int
    """Blocks of memory."""
    budget: int
    max_batch: int
    """Requests admitted at a time."""
    prompt: int = 4
    max_tokens: int = 4
    block: int = 2
    chunk: int = 2

    @property
    def need(self) -> int:
        """Blocks that one request takes at admission."""
        return -(-(self.prompt + self.max_tokens) // self.block)


class Request(NamedTuple):
    """One request: where it is in its life, prompt tokens fed, tokens generated."""

    status: int
    prefilled: int
    generated: int


class State(NamedTuple):
    """Everything there is: the requests, and who waits and runs, in order."""

    requests: tuple[Request, ...]
    queue: tuple[int, ...]
    """Waiting requests, first come first."""
    running: tuple[int, ...]
    """Admitted requests, in order of admission."""


class Submit(NamedTuple):
    """A new request joins the queue's end."""

    request: int


class Tick(NamedTuple):
    """One iteration: who was fed how many tokens, in order, and whose output was EOS."""

    fed: tuple[tuple[int, int], ...]
    eos: tuple[int, ...]


Event = Submit | Tick

_NEW_REQUEST: Final = Request(NEW, 0, 0)


@dataclass(frozen=True)
class MiniBatch:
    """The model at one size, with none, one or both of its reductions."""

    size: Size
    reduction: Reduction = "symmetry+finished"

    @property
    def name(self) -> str:
        """What reports call it."""
        return "mini-batch"

    def initial(self) -> Iterable[State]:
        """Nothing is submitted yet."""
        return [State((_NEW_REQUEST,) * self.size.requests, (), ())]

    def successors(self, state: State) -> Iterator[tuple[Event, State]]:
        """Any new request may be submitted; a tick may happen when some request is live."""
        for i, request in enumerate(state.requests):
            if request.status == NEW:
                yield Submit(i), submit(state, i)
        if state.queue or state.running:
            yield from self._ticks(state)

    def _ticks(self, state: State) -> Iterator[tuple[Event, State]]:
        fed, admitted = schedule(self.size, state)
        requests = list(state.requests)
        emitting: list[int] = []
        for i, tokens in fed:
            requests[i], emits = feed(self.size, requests[i], tokens)
            if emits:
                emitting.append(i)
        running = state.running + state.queue[:admitted]
        queue = state.queue[admitted:]
        for choices in product((False, True), repeat=len(emitting)):
            after = list(requests)
            for i, is_eos in zip(emitting, choices, strict=True):
                after[i] = emit(self.size, after[i], is_eos=is_eos)
            eos = tuple(i for i, is_eos in zip(emitting, choices, strict=True) if is_eos)
            still = tuple(i for i in running if after[i].status != DONE)
            yield Tick(fed, eos), State(tuple(after), queue, still)

    def may_end(self, state: State) -> bool:
        """Allow a run to end when every request is done."""
        return all(request.status == DONE for request in state.requests)

    def fairness(self, event: Event) -> str | None:
        """Ticks go on happening; nobody is obliged to submit."""
        return "tick" if isinstance(event, Tick) else None

    def canonical(self, state: State) -> State:
        """Rename the requests, which are identical: running first, then waiting, new, done.

        With "finished", what a finished request generated is forgotten: nothing
        reads it again.
        """
        if self.reduction == "none":
            return state
        running = [state.requests[i] for i in state.running]
        waiting = [state.requests[i] for i in state.queue]
        new = [r for r in state.requests if r.status == NEW]
        done = sorted(r for r in state.requests if r.status == DONE)
        if self.reduction == "symmetry+finished":
            done = [Request(DONE, 0, 0)] * len(done)
        split = len(running)
        return State(
            tuple(running + waiting + new + done),
            tuple(range(split, split + len(waiting))),
            tuple(range(split)),
        )

    def describe(
        self, before: State | None, event: Event | None, after: State
    ) -> Mapping[str, str]:
        """Return one row of a counterexample's table."""
        fed = event.fed if isinstance(event, Tick) else ()
        return {
            "event": _event_text(event),
            "fed": ", ".join(f"r{i}:{tokens}" for i, tokens in fed),
            "eos": ", ".join(f"r{i}" for i in event.eos) if isinstance(event, Tick) else "",
            "queue": " ".join(f"r{i}" for i in after.queue),
            "running": " ".join(_request_text(i, after.requests[i]) for i in after.running),
            "blocks": f"{len(after.running) * self.size.need}/{self.size.cap}",
            "done": " ".join(f"r{i}" for i, r in enumerate(after.requests) if r.status == DONE),
        }


def submit(state: State, request: int) -> State:
    """Return the state after `request`, which is new, was submitted."""
    requests = list(state.requests)
    requests[request] = Request(WAITING, 0, 0)
    return State(tuple(requests), (*state.queue, request), state.running)


def schedule(size: Size, state: State) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return who is fed how many tokens in the next tick, and how many are admitted for it."""
    budget = size.budget
    fed: list[tuple[int, int]] = []
    for status, most in ((DECODING, 1), (PREFILLING, size.chunk)):
        for i in state.running:
            request = state.requests[i]
            left = 1 if status == DECODING else size.prompt - request.prefilled
            tokens = min(most, left, budget)
            if request.status == status and tokens:
                fed.append((i, tokens))
                budget -= tokens
    admitted = 0
    for i in state.queue:
        residents = len(state.running) + admitted + 1
        if residents > size.max_batch or residents * size.need > size.cap or not budget:
            break
        tokens = min(size.chunk, size.prompt, budget)
        fed.append((i, tokens))
        budget -= tokens
        admitted += 1
    return tuple(fed), admitted


def feed(size: Size, request: Request, tokens: int) -> tuple[Request, bool]:
    """Return `request` after it was fed, and whether it now emits a token."""
    if request.status == DECODING:
        return request, True
    prefilled = request.prefilled + tokens
    if prefilled < size.prompt:
        return Request(PREFILLING, prefilled, 0), False
    return Request(DECODING, prefilled, 0), True


def emit(size: Size, request: Request, *, is_eos: bool) -> Request:
    """Return `request` after it generated a token, which may be the last."""
    generated = request.generated + 1
    ends = is_eos or generated == size.max_tokens
    return Request(DONE if ends else DECODING, request.prefilled, generated)


def _event_text(event: Event | None) -> str:
    if event is None:
        return "start"
    return f"submit r{event.request}" if isinstance(event, Submit) else "tick"


def _request_text(i: int, request: Request) -> str:
    return f"r{i}:{STATUS_NAMES[request.status]} {request.prefilled}+{request.generated}"
