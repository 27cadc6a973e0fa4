"""The shipped scheduler as a model: every step is one that the real code takes.

A state holds all that the scheduler needs to go on, so that it can be rebuilt;
what the specification sees of it is read off the rebuilt object, never worked
out. The environment chooses what users do and whose output is EOS, as in the
specification, so that the same properties are decided of the code that ships.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from batchproof.sched import snapshot
from batchproof.sched.batch import Batch
from batchproof.sched.bookkeeping import Books, books, drift
from batchproof.sched.errors import RequestError
from batchproof.sched.observer import SilentObserver
from batchproof.sched.policy.protocol import stateful
from batchproof.sched.policy.registry import make_policy
from batchproof.sched.refinement import limits_of
from batchproof.sched.request import Request
from batchproof.sched.request import Sequence as LiveRequest
from batchproof.sched.roster import Roster
from batchproof.sched.scheduler import Scheduler
from batchproof.spec import actions
from batchproof.spec.actions import Cancel, Event, Refuse, Submit, Tick, Work
from batchproof.spec.history import remembered
from batchproof.spec.lifecycle import DECODING, PREFILLING, FinishReason
from batchproof.spec.model import Batching
from batchproof.spec.state import History, Live, State, System

EOS, OTHER = 0, 1
"""The two tokens that there are at this scale."""


class Kept(NamedTuple):
    """What is kept of a live request: all that decides how it goes on."""

    request: int
    phase: str
    generated: int
    prefilled: int
    context_len: int
    was_preempted: bool
    passed: int
    blocks: tuple[int, ...]


class Core(NamedTuple):
    """What is kept of a scheduler. Blocks, places and turns are renamed: only order counts."""

    requests: tuple[Kept, ...] = ()
    free_blocks: tuple[int, ...] = ()
    prefilling: tuple[int, ...] = ()
    decoding: tuple[int, ...] = ()
    """Places in `requests`, as `prefilling`."""
    turns: tuple[tuple[str, int], ...] = ()
    admissions: int = 0
    waiting_users: tuple[str, ...] = ()
    policy: Hashable = None
    drift: tuple[str, ...] = ()
    """What was worked out step by step and has gone wrong: nothing, unless there is a fault."""


class Disturbance(NamedTuple):
    """What comes from outside and must leave no trace."""

    what: Literal["the executor fails", "restored from a snapshot"]
    request: int = -1
    """Whom it concerns: nobody."""


class Scripted:
    """An executor that yields EOS for those whom the environment chose."""

    def __init__(self, eos: frozenset[str] = frozenset(), *, fails: bool = False) -> None:
        self.eos = eos
        self.fails = fails

    def forward(self, batch: Sequence[Any]) -> list[int]:
        """Answer; an unfinished prefill gets an EOS that a scheduler must throw away."""
        if self.fails:
            raise ConnectionError("the executor is gone")
        return [
            EOS if not share.yields or share.request_id in self.eos else OTHER for share in batch
        ]

    def now(self) -> float:
        """Return 0: nothing that decides reads the time."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class Shipped(Batching):
    """The scheduler that ships, under one of its policies, at one size."""

    policy: str
    weights: tuple[int, ...] = ()
    """Each user's weight; 1 for all if there are none."""
    _known_books: dict[Core, Books] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known_books", {})

    @property
    def name(self) -> str:
        """What reports call it."""
        return "scheduler"

    def initial(self) -> Iterable[State]:
        """Return the scheduler as it is made."""
        sched = self.make()
        return [State((), sched.stats()["live"]["free_blocks"], History(memory=capture(sched)))]

    def successors(self, state: State) -> Iterator[tuple[Any, State]]:
        """Let users submit and cancel whatever they like, and every choice of EOS be made."""
        if not one_owner_each(self.system, state):
            return  # it cannot be rebuilt, and the property has said why
        for request in range(len(self.system.requests)):
            yield self._step(state, partial(self._submit, request))
        for live in state.live if self.system.cancels else ():
            yield self._step(state, partial(_cancel, live.request))
        yield self._restored(state)
        if state.live:
            yield self._step(state, _failed_tick)
            for eos in actions.eos_choices(self._yielding(state)):
                yield self._step(state, partial(_tick, eos))

    def canonical(self, state: State) -> State:
        """Return the state itself: that the code takes all names alike is not assumed."""
        return state

    def rebuild(self, state: State) -> Scheduler:
        """Return the scheduler that `state` was read off."""
        return self._rebuilt(core_of(state))

    def _rebuilt(self, core: Core) -> Scheduler:
        sched = self.make()
        policy = stateful(sched.policy)
        if policy is not None:
            policy.restore(core.policy)
        snapshot.fill(sched, self._content(core))
        return sched

    def make(self) -> Scheduler:
        """Return the scheduler as it is made."""
        policy = make_policy(self.policy, self.system.admission)
        weights = {f"u{user}": weight for user, weight in enumerate(self.weights)}
        return Scheduler(limits_of(self.system), policy, Scripted(), weights=weights)

    def perform(self, event: Any, sched: Scheduler) -> tuple[Any, Scheduler]:
        """Let an event happen; return what did happen, and the scheduler to go on with."""
        if isinstance(event, Tick):
            return _tick(event.eos, sched), sched
        if isinstance(event, Cancel):
            return _cancel(event.request, sched), sched
        if isinstance(event, Submit | Refuse):
            return self._submit(event.request, sched), sched
        if event.what == "the executor fails":
            return _failed_tick(sched), sched
        return event, Scheduler.restore(sched.snapshot(), executor=Scripted())

    def describe(self, before: State | None, event: Any | None, after: State) -> Mapping[str, str]:
        """Return one row of a counterexample's table."""
        if isinstance(event, Disturbance):
            return {**super().describe(before, None, after), "event": event.what}
        return super().describe(before, event, after)

    def _step(self, state: State, act: Callable[[Scheduler], Any]) -> tuple[Any, State]:
        sched = self.rebuild(state)
        event = act(sched)
        return event, self._read_off(sched, state, event)

    def _restored(self, state: State) -> tuple[Any, State]:
        sched = self.rebuild(state)
        again = Scheduler.restore(sched.snapshot(), executor=Scripted())
        event = Disturbance("restored from a snapshot")
        return event, self._read_off(again, state, event)

    def _read_off(self, sched: Scheduler, before: State, event: Any) -> State:
        after, core = observed(sched), capture(sched)
        if has_one_owner_each(self.system, core):  # else it cannot be rebuilt
            core = core._replace(drift=drift(books(sched._roster), self._books_anew(core)))
        history = remembered(self.system, before, event, after, core)
        return after._replace(history=history)

    def _books_anew(self, core: Core) -> Books:
        """Return the books of a scheduler rebuilt from what is kept; it is done once a state."""
        known = self._known_books.get(core)
        if known is None:
            known = self._known_books[core] = books(self._rebuilt(core)._roster)
        return known

    def _submit(self, request: int, sched: Scheduler) -> Event:
        user, prompt, max_tokens, priority = self.system.requests[request]
        asked = Request(f"u{user}", [OTHER] * prompt, max_tokens, f"r{request}", priority=priority)
        try:
            sched.submit(asked)
        except RequestError:
            return Refuse(request)
        return Submit(request)

    def _yielding(self, state: State) -> tuple[int, ...]:
        batch = self.rebuild(state).schedule()
        return tuple(_id(share) for share in batch if share.yields)

    def _content(self, core: Core) -> dict[str, Any]:
        """Return the core as the content of a snapshot, as far as `snapshot.fill` reads it."""
        return {
            "requests": [self._request(place, kept) for place, kept in enumerate(core.requests)],
            "expired": (),
            "free_blocks": list(core.free_blocks),
            "prefilling": core.prefilling,
            "decoding": core.decoding,
            "users": {"turns": core.turns, "admissions": core.admissions},
            "waiting_users": core.waiting_users,
            "submissions": len(core.requests),
            "last_tick_at": 0.0,
        }

    def _request(self, place: int, kept: Kept) -> dict[str, Any]:
        user, prompt, max_tokens, priority = self.system.requests[kept.request]
        return {
            "request_id": f"r{kept.request}",
            "user_id": f"u{user}",
            "prompt": [OTHER] * prompt,
            "max_tokens": max_tokens,
            "phase": kept.phase,
            "generated": [OTHER] * kept.generated,
            "priority": priority,
            "number": place,
            "passed": kept.passed,
            "blocks": list(kept.blocks),
            "context_len": kept.context_len,
            "prefilled": kept.prefilled,
            "preemptions": int(kept.was_preempted),
            **dict.fromkeys(_IRRELEVANT, 0),
            **dict.fromkeys(_WITHOUT_CLOCKS),
        }


_IRRELEVANT = (
    "submitted_at",
    "waiting_since",
    "queued_s",
    "first_token_at",
    "last_token_at",
    "computed_max",
)
"""Times, and what is only counted: nothing that decides reads them."""
_WITHOUT_CLOCKS = ("deadline_s", "max_queue_time_s")
"""Nobody has any: that a request expires is, to the rules, that it is cancelled."""


def core_of(state: State) -> Core:
    """Return what is kept of the scheduler in a state of `Shipped`."""
    assert state.history is not None
    return cast(Core, state.history.memory)


def one_owner_each(system: System, state: State) -> bool:
    """Say whether every block, by number, is free or in one block table."""
    return has_one_owner_each(system, core_of(state))


def has_one_owner_each(system: System, core: Core) -> bool:
    """Say the same of what is kept."""
    blocks = [*core.free_blocks, *(block for kept in core.requests for block in kept.blocks)]
    return sorted(blocks) == list(range(system.limits.max_kv_blocks))


def observed(sched: Scheduler) -> State:
    """Return the scheduler as the specification sees it, without a history."""
    roster = sched._roster
    live = tuple(
        Live(
            _id(sequence),
            sequence.request.phase or PREFILLING,
            0 if sequence.request.phase == DECODING else sequence.prefilled,
            len(sequence.generated),
            len(sequence.blocks),
            roster.limits.max_passes if sequence.was_admitted else sequence.passed,
        )
        for sequence in in_order(roster)
    )
    return State(live, roster.pool.free)


def in_order(roster: Roster) -> list[LiveRequest]:
    """Return the live requests in order of place."""
    return sorted(roster.live.values(), key=lambda sequence: sequence.number)


def capture(sched: Scheduler) -> Core:
    """Return all that decides how a scheduler without a batch out goes on."""
    roster = sched._roster
    places = {sequence: place for place, sequence in enumerate(in_order(roster))}
    free = roster.pool.stack()
    names: dict[int, int] = {}
    for block in (*(block for sequence in places for block in sequence.blocks), *free):
        names.setdefault(block, len(names))
    users = roster.users.state()
    ranks = sorted({users["admissions"], *(turn for _, turn in users["turns"])})
    policy = stateful(sched.policy)
    return Core(
        requests=tuple(_kept(sequence, names) for sequence in places),
        free_blocks=tuple(names[block] for block in free),
        prefilling=tuple(places[sequence] for sequence in roster.prefilling),
        decoding=tuple(places[sequence] for sequence in roster.decoding),
        turns=tuple((user_id, ranks.index(turn)) for user_id, turn in users["turns"]),
        admissions=ranks.index(users["admissions"]),
        waiting_users=tuple(roster.waiting.by_user),
        policy=None if policy is None else policy.state(),
    )


def _kept(sequence: LiveRequest, names: dict[int, int]) -> Kept:
    return Kept(
        request=_id(sequence),
        phase=sequence.request.phase or "",
        generated=len(sequence.generated),
        # A decode reads neither of the two.
        prefilled=0 if sequence.request.phase == DECODING else sequence.prefilled,
        context_len=0 if sequence.request.phase == DECODING else sequence.context_len,
        was_preempted=sequence.preemptions > 0,
        passed=0 if sequence.was_admitted else sequence.passed,
        blocks=tuple(names[block] for block in sequence.blocks),
    )


def _id(sequence: LiveRequest) -> int:
    return int(sequence.request_id.removeprefix("r"))


def _cancel(request: int, sched: Scheduler) -> Event:
    sched.cancel(f"r{request}")
    return Cancel(request)


def _tick(eos: tuple[int, ...], sched: Scheduler) -> Event:
    """Tick, and return what the scheduler was seen to do, oldest request first."""
    watch = Watch()
    sched._observer = watch
    sched.executor = Scripted(frozenset(f"r{request}" for request in eos))
    order = {_id(sequence): place for place, sequence in enumerate(in_order(sched._roster))}
    ended: list[tuple[int, FinishReason]] = [
        (int(r.request_id[1:]), cast(FinishReason, r.finish_reason)) for r in sched.tick()
    ]
    ended.sort(key=lambda end: order[end[0]])
    return Tick(watch.work, eos, tuple(ended))


def _failed_tick(sched: Scheduler) -> Disturbance:
    sched.executor = Scripted(fails=True)
    with suppress(ConnectionError):
        sched.tick()
    return Disturbance("the executor fails")


class Watch(SilentObserver):
    """An observer that reads the work of a tick off its batch."""

    work = Work()

    def ticked(
        self, batch: Batch, tokens: Sequence[int], ended: Sequence[LiveRequest], now: float
    ) -> None:
        """Note who was preempted, admitted and fed."""
        fed = [(_id(sequence), 1) for sequence in batch[: batch.chunks_from]]
        fed += [(_id(sequence), sequence.scheduled) for sequence in batch[batch.chunks_from :]]
        self.work = Work(
            tuple(map(_id, batch.preempted)), tuple(map(_id, batch.admitted)), tuple(fed)
        )
