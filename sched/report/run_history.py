"""A recording of a run, read into what pictures of it need: lives, ticks, and who held which block.

A phase is entered when what leads to it happens: admission and preemption when
the tick's batch is scheduled, first token and finish when it is completed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from batchproof.sched.errors import InputError
from batchproof.sched.run_recording import (
    Cancel,
    End,
    Expire,
    Header,
    PromptSlice,
    Refuse,
    RequestRecord,
    RunRecording,
    Submit,
    Tick,
)
from batchproof.spec.lifecycle import INITIAL, WAITING, Event, Phase, dest


class Move(NamedTuple):
    """One edge of the lifecycle, taken."""

    event: Event
    source: Phase
    dest: Phase
    tick: int
    """The tick in which, or before which, it happened."""
    at: float
    """Seconds."""


class Stay(NamedTuple):
    """The time between two moves."""

    phase: Phase
    start: float
    end: float | None
    """None if it was not over when the run was."""


@dataclass(slots=True)
class Life:
    """One request from submission to its end, or the run's."""

    name: str
    """Its id; of a later request with the same id, `id#2`, and so on."""
    user: str
    prompt: int
    """Tokens."""
    max_tokens: int
    tick: int
    """The tick before which it was submitted."""
    submitted_at: float
    phase: Phase = INITIAL
    moves: list[Move] = field(default_factory=list)
    generated: int = 0
    """Output tokens."""
    preemptions: int = 0
    first_token_at: float | None = None
    finish_reason: str | None = None
    blocks: list[int] = field(default_factory=list)

    def stays(self) -> Iterator[Stay]:
        """Yield its phases, in order, but for `done`, in which nothing happens."""
        phase, start = INITIAL, self.submitted_at
        for move in self.moves:
            yield Stay(phase, start, move.at)
            phase, start = move.dest, move.at
        if phase != "done":
            yield Stay(phase, start, None)

    @property
    def ended_at(self) -> float | None:
        """When it was done; None if it was not."""
        return self.moves[-1].at if self.phase == "done" else None


class Share(NamedTuple):
    """What a tick fed of one user."""

    decodes: int
    chunks: int
    chunk_tokens: int
    yielded: int
    """Output tokens."""


def _share(decodes: int, chunks: int, chunk_tokens: int, first_tokens: int) -> Share:
    return Share(decodes, chunks, chunk_tokens, decodes + first_tokens)


class TickRow(NamedTuple):
    """One tick."""

    start: float
    end: float
    waiting: int
    """Requests that wait while it runs."""
    free: int
    """Free blocks after it."""
    preempted: int
    shares: dict[str, Share]
    """User -> what the batch held of it; users without a share are left out."""

    @property
    def sequences(self) -> int:
        """Sequences in its batch."""
        return sum(share.decodes + share.chunks for share in self.shares.values())

    @property
    def tokens(self) -> int:
        """Tokens that its batch fed."""
        return sum(share.decodes + share.chunk_tokens for share in self.shares.values())


class Holding(NamedTuple):
    """A block that a request held, from one tick to before another."""

    block: int
    life: int
    """Index in `RunHistory.lives`."""
    start: int
    end: int


class RunHistory:
    """All of a recording. Raises `InputError` for one that is malformed or contradicts itself."""

    def __init__(self, recording: RunRecording) -> None:
        self.path = recording.path
        self.header: Header = recording.header
        self.lives: list[Life] = []
        self.ticks: list[TickRow] = []
        self.holdings: list[Holding] = []
        self.refusals: list[Refuse] = []
        self.complete = False
        """Whether the run came to its end."""
        self._line = 0
        self._live: dict[str, int] = {}
        self._times_used: dict[str, int] = {}
        self._held: dict[int, tuple[int, int]] = {}  # block -> life, tick
        self._waiting = 0
        for self._line, record in recording:
            match record:
                case Submit():
                    self._submit(record.at, record.request)
                case Refuse():
                    self.refusals.append(record)
                case Cancel():
                    self._end_between_ticks(record, "cancel", "cancelled")
                case Expire():
                    self._end_between_ticks(record, "expire", "expired")
                case Tick():
                    self._tick(record)
                case End():
                    self.complete = record.complete
        for life in self._live.values():
            self._release(life, len(self.ticks))
        self.ended_at = self._last_time()
        """When the last thing happened, in seconds; 0 if nothing did."""

    @property
    def users(self) -> list[str]:
        """The users, in order of first submission."""
        return list(dict.fromkeys(life.user for life in self.lives))

    def find(self, name: str) -> Life:
        """Return the life of a request; raise `InputError` if there is none."""
        for life in self.lives:
            if life.name == name:
                return life
        some = ", ".join(life.name for life in self.lives[:3])
        raise InputError(
            f"{self.path}: has no request {name!r}; it has {len(self.lives):,}: {some}, ..."
            if self.lives
            else f"{self.path}: has no request {name!r}, nor any other"
        )

    def _submit(self, at: float, request: RequestRecord) -> None:
        if request.id in self._live:
            raise self._contradiction(f"request {request.id!r} is live already")
        used = self._times_used[request.id] = self._times_used.get(request.id, 0) + 1
        given = request.prompt
        self._live[request.id] = len(self.lives)
        self._waiting += 1
        self.lives.append(
            Life(
                name=request.id if used == 1 else f"{request.id}#{used}",
                user=request.user,
                prompt=given.length if isinstance(given, PromptSlice) else len(given),
                max_tokens=request.max_tokens,
                tick=len(self.ticks),
                submitted_at=at,
            )
        )

    def _end_between_ticks(self, record: Cancel | Expire, event: Event, reason: str) -> None:
        index = self._index(record.id)
        self._waiting -= self.lives[index].phase == WAITING
        self._end(record.id, event, reason, record.at)
        self._release(index, len(self.ticks))

    def _tick(self, record: Tick) -> None:
        if record.tick != len(self.ticks):
            raise self._contradiction(f"tick {record.tick} comes after {len(self.ticks)} ticks")
        now = record.tick
        for request_id in record.preempt:
            index = self._index(request_id)
            self._move(index, "preempt", record.start)
            self.lives[index].preemptions += 1
            self._release(index, now)
        for request_id, block in record.grow:
            self._take(self._index(request_id), block, now)
        for request_id, blocks in record.admit:
            index = self._index(request_id)
            self._move(index, "admit", record.start)
            for block in blocks:
                self._take(index, block, now)
        self._waiting += len(record.preempt) - len(record.admit)
        ending = dict(record.ended)
        shares = self._feed(record, ending)
        for request_id, reason in record.ended:
            index = self._index(request_id)
            self._end(request_id, "finish", reason, record.end)
            self._release(index, now + 1)
        self.ticks.append(
            TickRow(
                record.start, record.end, self._waiting, record.free, len(record.preempt), shares
            )
        )

    def _feed(self, record: Tick, ending: dict[str, str]) -> dict[str, Share]:
        """Count what the batch fed of each user, and move on those that got their first token."""
        decodes: dict[str, int] = {}
        chunks: dict[str, tuple[int, int, int]] = {}
        for request_id, _token in record.decode:
            life = self.lives[self._index(request_id)]
            life.generated += 1
            decodes[life.user] = decodes.get(life.user, 0) + 1
        for request_id, _position, fed, token in record.chunks:
            index = self._index(request_id)
            life = self.lives[index]
            count, tokens, yielded = chunks.get(life.user, (0, 0, 0))
            chunks[life.user] = count + 1, tokens + fed, yielded + (token is not None)
            if token is None:
                continue
            life.generated += 1
            if life.first_token_at is None:
                life.first_token_at = record.end
            if request_id not in ending:
                self._move(index, "first_token", record.end)
        return {
            user: _share(decodes.get(user, 0), *chunks.get(user, (0, 0, 0)))
            for user in dict.fromkeys((*decodes, *chunks))
        }

    def _index(self, request_id: str) -> int:
        index = self._live.get(request_id)
        if index is None:
            raise self._contradiction(f"request {request_id!r} is not live")
        return index

    def _move(self, index: int, event: Event, at: float) -> None:
        life = self.lives[index]
        after = dest(event, life.phase)
        if after is None:
            raise self._contradiction(f"request {life.name!r} cannot {event} when {life.phase}")
        life.moves.append(Move(event, life.phase, after, len(self.ticks), at))
        life.phase = after

    def _end(self, request_id: str, event: str, reason: str, at: float) -> None:
        index = self._index(request_id)
        self._move(index, cast(Event, event), at)
        self.lives[index].finish_reason = reason
        del self._live[request_id]

    def _take(self, index: int, block: int, tick: int) -> None:
        if not 0 <= block < self.header.limits.max_kv_blocks:
            raise self._contradiction(f"block {block} is not in the pool")
        if block in self._held:
            owner = self.lives[self._held[block][0]].name
            raise self._contradiction(f"block {block} is held by request {owner!r} already")
        self._held[block] = index, tick
        self.lives[index].blocks.append(block)

    def _release(self, index: int, tick: int) -> None:
        for block in self.lives[index].blocks:
            life, since = self._held.pop(block)
            self.holdings.append(Holding(block, life, since, tick))
        self.lives[index].blocks.clear()

    def _last_time(self) -> float:
        ends = [life.moves[-1].at if life.moves else life.submitted_at for life in self.lives]
        return max((*ends, *(tick.end for tick in self.ticks[-1:])), default=0.0)

    def _contradiction(self, what: str) -> InputError:
        return InputError(f"{self.path}: line {self._line}: {what}; the recording is at fault")
