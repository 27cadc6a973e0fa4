"""Small models whose answers are known, to check the checker with."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from batchproof.spec.property import Property


@dataclass(frozen=True)
class Die:
    """In hand (0), or showing a face; it is thrown and picked up again."""

    faces: int = 6
    name: str = "die"

    def initial(self) -> list[int]:
        return [0]

    def successors(self, state: int) -> Iterator[tuple[str, int]]:
        if state:
            yield "pick up", 0
        else:
            yield from (("throw", face) for face in range(1, self.faces + 1))


class Thread(NamedTuple):
    """One thread that adds one to a shared counter: read, write, done."""

    at: int
    read: int


class Counter(NamedTuple):
    value: int
    holder: int | None
    threads: tuple[Thread, ...]


@dataclass(frozen=True)
class Increment:
    """Threads that each add one to a counter, in two steps; with a lock, or without.

    Source of the counts: stateright's examples `increment` and `increment_lock`.
    """

    locked: bool
    threads: int = 2
    name: str = "increment"

    def initial(self) -> list[Counter]:
        return [Counter(0, None, (Thread(0, 0),) * self.threads)]

    def successors(self, state: Counter) -> Iterator[tuple[tuple[str, int], Counter]]:
        for i, thread in enumerate(state.threads):
            if self.locked and thread.at == 0:
                if state.holder is None:
                    yield ("lock", i), self._moved(state, i, Thread(1, 0), holder=i)
            elif self.locked and thread.at == 3:
                yield ("release", i), self._moved(state, i, Thread(4, thread.read), holder=None)
            elif thread.at == (1 if self.locked else 0):
                after = Thread(thread.at + 1, state.value)
                yield ("read", i), self._moved(state, i, after, holder=state.holder)
            elif thread.at == (2 if self.locked else 1):
                moved = self._moved(state, i, Thread(thread.at + 1, thread.read), state.holder)
                yield ("write", i), moved._replace(value=thread.read + 1)

    def _moved(self, state: Counter, i: int, thread: Thread, holder: int | None) -> Counter:
        threads = (*state.threads[:i], thread, *state.threads[i + 1 :])
        return Counter(state.value, holder, threads)

    def may_end(self, state: Counter) -> bool:
        return all(thread.at == (4 if self.locked else 2) for thread in state.threads)

    def canonical(self, state: Counter) -> Counter:
        order = sorted(range(self.threads), key=lambda i: (state.threads[i], state.holder != i))
        holder = None if state.holder is None else order.index(state.holder)
        return Counter(state.value, holder, tuple(state.threads[i] for i in order))


def counts_writes(locked: bool) -> Property:
    written = 3 if locked else 2
    return Property(
        name="counts-writes",
        claim="the counter is the number of threads that have written",
        source="stateright's example increment",
        kind="invariant",
        predicate=lambda s: s.value == sum(t.at >= written for t in s.threads),
    )


class Commit(NamedTuple):
    managers: tuple[str, ...]
    coordinator: str
    prepared: frozenset[int]
    messages: frozenset[object]


@dataclass(frozen=True)
class TwoPhaseCommit:
    """Gray and Lamport's TwoPhase; 288 states with 3 resource managers.

    Source of the counts: the TLA+ Examples (`transaction_commit`), stateright's `2pc`.
    """

    managers: int
    name: str = "two-phase commit"

    def initial(self) -> list[Commit]:
        return [Commit(("working",) * self.managers, "init", frozenset(), frozenset())]

    def successors(self, state: Commit) -> Iterator[tuple[tuple[str, int], Commit]]:
        everyone = frozenset(range(self.managers))
        if state.coordinator == "init" and state.prepared == everyone:
            messages = state.messages | {"commit"}
            yield ("tm commit", -1), state._replace(coordinator="committed", messages=messages)
        if state.coordinator == "init":
            messages = state.messages | {"abort"}
            yield ("tm abort", -1), state._replace(coordinator="aborted", messages=messages)
        for i, manager in enumerate(state.managers):
            if state.coordinator == "init" and ("prepared", i) in state.messages:
                yield ("tm notes", i), state._replace(prepared=state.prepared | {i})
            if manager == "working":
                prepared = self._set(state, i, "prepared")
                messages = state.messages | {("prepared", i)}
                yield ("prepare", i), prepared._replace(messages=messages)
                yield ("choose to abort", i), self._set(state, i, "aborted")
            if "commit" in state.messages:
                yield ("commit", i), self._set(state, i, "committed")
            if "abort" in state.messages:
                yield ("abort", i), self._set(state, i, "aborted")

    def _set(self, state: Commit, i: int, to: str) -> Commit:
        managers = (*state.managers[:i], to, *state.managers[i + 1 :])
        return state._replace(managers=managers)

    def canonical(self, state: Commit) -> Commit:
        order = sorted(
            range(self.managers),
            key=lambda i: (
                state.managers[i],
                i in state.prepared,
                ("prepared", i) in state.messages,
            ),
        )
        place = {old: new for new, old in enumerate(order)}
        return Commit(
            tuple(state.managers[i] for i in order),
            state.coordinator,
            frozenset(place[i] for i in state.prepared),
            frozenset(
                ("prepared", place[m[1]]) if isinstance(m, tuple) else m for m in state.messages
            ),
        )


CONSISTENT = Property(
    name="consistent",
    claim="no manager has committed while another has aborted",
    source="Gray and Lamport, Consensus on Transaction Commit",
    kind="invariant",
    predicate=lambda s: not {"committed", "aborted"} <= set(s.managers),
)


@dataclass(frozen=True)
class Philosophers:
    """Dining philosophers: each takes two forks, one at a time, then puts both down.

    A state is, per philosopher, how many forks it holds. With `one_other_way`
    the last takes its right fork first, and nobody can be stuck.
    """

    seats: int
    one_other_way: bool = False
    name: str = "philosophers"

    def initial(self) -> list[tuple[int, ...]]:
        return [(0,) * self.seats]

    def forks(self, i: int) -> tuple[int, int]:
        first, second = i, (i + 1) % self.seats
        return (second, first) if self.one_other_way and i == self.seats - 1 else (first, second)

    def successors(self, state: tuple[int, ...]) -> Iterator[tuple[tuple[str, int], tuple]]:
        taken = {fork for i, n in enumerate(state) for fork in self.forks(i)[:n]}
        for i, held in enumerate(state):
            if held == 2:
                yield ("put down", i), self._set(state, i, 0)
            elif self.forks(i)[held] not in taken:
                yield ("take", i), self._set(state, i, held + 1)

    def _set(self, state: tuple[int, ...], i: int, held: int) -> tuple[int, ...]:
        return (*state[:i], held, *state[i + 1 :])


@dataclass(frozen=True)
class Drawn:
    """A graph drawn by hand: node -> its steps, each `label>target`; labels in `fair` are fair."""

    steps: Mapping[str, str]
    start: str = "a"
    fair: frozenset[str] = frozenset({"t"})
    ends: str = ""
    name: str = "drawn"

    def initial(self) -> Iterable[str]:
        return [self.start]

    def successors(self, state: str) -> Iterator[tuple[str, str]]:
        for step in self.steps.get(state, "").split():
            label, _, target = step.partition(">")
            yield label, target

    def may_end(self, state: str) -> bool:
        return state in self.ends

    def fairness(self, event: str) -> str | None:
        return event if event in self.fair else None


def eventually(*goals: str, after: str | None = None) -> Property:
    """Return the claim that one of the nodes `goals` is reached (after one of `after`)."""
    return Property(
        name="eventually",
        claim=f"{' or '.join(goals)} is reached",
        source="toy",
        kind="liveness",
        predicate=lambda state: state in goals,
        trigger=None if after is None else lambda state: state in after,
    )


@dataclass
class Flaky:
    """A model whose successors depend on how often they were asked for."""

    name: str = "flaky"

    def __post_init__(self) -> None:
        self._asked = count()

    def initial(self) -> list[int]:
        return [0]

    def successors(self, state: int) -> list[tuple[str, int]]:
        return [("step", next(self._asked) % 5)]
