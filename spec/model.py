"""The specification as a model to be checked: initial state, successors, symmetry, and bounds."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from batchproof.spec import actions
from batchproof.spec.actions import Cancel, Event, Refuse, Submit, Tick, Work
from batchproof.spec.lifecycle import WAITING
from batchproof.spec.state import Live, State, System

_Kind = tuple[int, ...]
"""What makes requests of one user interchangeable: what they ask for, and -1 or who is watched."""


@dataclass(frozen=True)
class Batching:
    """The specification at one size: every legal run of it, whoever decides."""

    system: System
    watched: tuple[int, ...] = ()
    """Requests that properties name, so that `canonical` must not rename them."""

    @property
    def name(self) -> str:
        """What reports call it."""
        return "batching"

    def initial(self) -> Iterable[State]:
        """Nobody is live; all blocks are free."""
        return [State((), self.system.limits.max_kv_blocks)]

    def successors(self, state: State) -> Iterator[tuple[Event, State]]:
        """Users submit and cancel whatever they like; a tick does any legal work."""
        for request in range(len(self.system.requests)):
            yield self.submit(state, request)
        for live in state.live if self.system.cancels else ():
            yield Cancel(live.request), self.cancel(state, live.request)
        if state.live:
            for work in self.works(state):
                for eos in actions.eos_choices(self.yielding(state, work)):
                    yield self.tick(state, work, eos)

    def submit(self, state: State, request: int) -> tuple[Event, State]:
        """Accept a request or refuse it."""
        if actions.objection_to_submit(self.system, state, request) is None:
            return Submit(request), actions.submit(self.system, state, request)
        return Refuse(request), state

    def cancel(self, state: State, request: int) -> State:
        """End a live request."""
        return actions.cancel(state, request)

    def works(self, state: State) -> Iterable[Work]:
        """Return what a tick may do."""
        return actions.works(self.system, state)

    def yielding(self, state: State, work: Work) -> tuple[int, ...]:
        """Return whose token may be EOS."""
        return actions.yielding(self.system, state, work)

    def tick(self, state: State, work: Work, eos: tuple[int, ...]) -> tuple[Tick, State]:
        """Do `work`."""
        return actions.tick(self.system, state, work, eos)

    def fairness(self, event: Event) -> str | None:
        """Ticks go on happening; nobody is obliged to submit or to cancel."""
        return "tick" if isinstance(event, Tick) else None

    def canonical(self, state: State) -> State:
        """Rename interchangeable users and requests, in the order of first submission.

        Users are interchangeable if they may submit the same; requests, if they
        are of one user and ask for the same.
        """
        users: dict[int, int] = {}
        names: dict[int, int] = {}
        for live in state.live:
            user = self.system.requests[live.request].user
            if user not in users:
                alike = self._alike_users[user]
                users[user] = next(other for other in alike if other not in users.values())
            alike = self._alike[users[user], self._kinds[live.request]]
            names[live.request] = next(i for i in alike if i not in names.values())
        renames = [*names.items(), *users.items()]
        if all(old == new for old, new in renames):
            return state
        return _renamed(state, names, users)

    @cached_property
    def _kinds(self) -> list[_Kind]:
        return [
            (*request[1:], i if i in self.watched else -1)
            for i, request in enumerate(self.system.requests)
        ]

    @cached_property
    def _alike(self) -> dict[tuple[int, _Kind], list[int]]:
        """(user, kind) -> the requests that are interchangeable."""
        alike: dict[tuple[int, _Kind], list[int]] = {}
        for i, kind in enumerate(self._kinds):
            alike.setdefault((self.system.requests[i].user, kind), []).append(i)
        return alike

    @cached_property
    def _alike_users(self) -> dict[int, list[int]]:
        """User -> the users that are interchangeable with it, itself among them."""
        kinds: dict[int, list[_Kind]] = {}
        for i, kind in enumerate(self._kinds):
            kinds.setdefault(self.system.requests[i].user, []).append(kind)
        return {
            user: [other for other in sorted(kinds) if sorted(kinds[other]) == sorted(mine)]
            for user, mine in kinds.items()
        }

    def describe(
        self, before: State | None, event: Event | None, after: State
    ) -> Mapping[str, str]:
        """Return one row of a counterexample's table."""
        work = event.work if isinstance(event, Tick) else Work()
        eos = event.eos if isinstance(event, Tick) else ()
        ended = event.ended if isinstance(event, Tick) else ()
        held = sum(live.blocks for live in after.live)
        return {
            "event": _event_text(event),
            "preempts": _ids(work.preempt),
            "admits": _ids(work.admit),
            "feeds": ", ".join(f"r{i}:{tokens}" for i, tokens in work.feed),
            "EOS": _ids(eos),
            "ends": ", ".join(f"r{i} {reason}" for i, reason in ended),
            "queue": _ids(live.request for live in after.in_phase(WAITING)),
            "resident": ", ".join(
                self._text_of(live) for live in after.live if live.phase != WAITING
            ),
            "blocks": f"{held} held, {after.free} free",
        }

    def _text_of(self, live: Live) -> str:
        size = self.system.requests[live.request].prompt + live.generated
        fed = f"{live.prefilled} of {size} fed" if live.phase == "prefilling" else ""
        tokens = f"{live.generated} generated"
        what = ", ".join(part for part in (fed, tokens, f"{live.blocks} blocks") if part)
        return f"r{live.request} {live.phase} ({what})"


def _renamed(state: State, names: Mapping[int, int], users: Mapping[int, int]) -> State:
    history = state.history
    if history is not None:
        history = history._replace(
            decoding=tuple(names[i] for i in history.decoding),
            prefilling=tuple(names[i] for i in history.prefilling),
            users=tuple(users[user] for user in history.users),
        )
    live = tuple(live._replace(request=names[live.request]) for live in state.live)
    return State(live, state.free, history)


def _event_text(event: Event | None) -> str:
    if event is None:
        return "start"
    if isinstance(event, Tick):
        return "tick"
    return f"{type(event).__name__.lower()} r{event.request}"


def _ids(requests: Iterable[int]) -> str:
    return " ".join(f"r{i}" for i in requests)
