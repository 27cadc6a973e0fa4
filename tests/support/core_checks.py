"""What must hold between any two ticks, and of every batch: asserted, not explained.

The only place in the tests that looks at the scheduler's private parts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from batchproof import Request, Scheduler
from batchproof.sched.batch import Batch
from batchproof.sched.errors import RequestError
from batchproof.sched.observer import SilentObserver
from batchproof.spec.lifecycle import DECODING, PREFILLING, RESIDENT, WAITING


def live_sequences(scheduler: Scheduler) -> list[Any]:
    """Return what the scheduler keeps of each live request."""
    return list(scheduler._roster.live.values())


def blocks_of(scheduler: Scheduler) -> dict[str, list[int]]:
    """Return the block table of each live request."""
    return {seq.request_id: list(seq.block_table) for seq in live_sequences(scheduler)}


def preemptions_of(scheduler: Scheduler) -> dict[str, int]:
    """Return how often each live request was preempted."""
    return {seq.request_id: seq.preemptions for seq in live_sequences(scheduler)}


def waiting_ids(scheduler: Scheduler) -> list[str]:
    """Return the waiting requests in the order that policies see."""
    return [seq.request_id for seq in scheduler._roster.view.waiting]


def assert_invariants(scheduler: Scheduler) -> None:
    """Assert what rules 1, 3 and 5 say of every state between two ticks."""
    _assert_blocks(scheduler)
    _assert_phases(scheduler)
    _assert_order(scheduler)
    _assert_users(scheduler)


def _assert_blocks(scheduler: Scheduler) -> None:
    limits, free = scheduler.limits, list(scheduler._roster.pool._free)
    assert scheduler._roster.pool.free == len(free)
    assert scheduler._roster.pool.held == limits.max_kv_blocks - len(free)
    owned = [block for blocks in blocks_of(scheduler).values() for block in blocks]
    assert sorted(owned + free) == list(range(limits.max_kv_blocks)), "each block has one place"
    peak_at_once = scheduler.policy.admission == "guaranteed_no_evict"
    for seq in live_sequences(scheduler):
        held, prompt, generated = len(seq.block_table), seq.prompt_len, len(seq.generated)
        if seq.phase not in RESIDENT:
            assert not held, f"{seq} waits and holds {held} blocks"
            continue
        peak = limits.blocks_at_peak(prompt, seq.max_tokens)
        ceiling = limits.blocks_at_admission(prompt, generated, seq.max_tokens)
        assert held >= limits.blocks_for(prompt + generated), f"{seq}: context not covered"
        assert held <= peak if peak_at_once else held <= ceiling, f"{seq} holds too much: {held}"


def _assert_phases(scheduler: Scheduler) -> None:
    phases = [seq.phase for seq in live_sequences(scheduler)]
    counted = {
        WAITING: len(scheduler._roster.waiting),
        PREFILLING: len(scheduler._roster.prefilling),
        DECODING: len(scheduler._roster.decoding),
    }
    assert counted == {phase: phases.count(phase) for phase in counted}
    assert sum(counted.values()) == len(phases) == len(scheduler._roster.live)
    assert scheduler.has_active() == bool(phases)
    for seq in live_sequences(scheduler):
        assert seq.phase == seq.request.phase
        assert seq.request.finish_reason is None
        assert len(seq.generated) < seq.max_tokens
        assert scheduler.limits.eos_token not in seq.generated[-1:]
        assert seq.phase != DECODING or seq.generated, f"{seq} decodes without a first token"


def _assert_order(scheduler: Scheduler) -> None:
    numbers = [seq.number for seq in scheduler._roster.view.waiting]
    assert numbers == sorted(numbers), "the waiting line is not in order of first submission"
    waiting = [seq.number for seq in live_sequences(scheduler) if seq.phase == WAITING]
    assert sorted(waiting) == numbers
    by_user = [
        seq.number for line in scheduler._roster.view.waiting_by_user.values() for seq in line
    ]
    assert sorted(by_user) == numbers, "the lines by user do not add up to the whole line"


def _assert_users(scheduler: Scheduler) -> None:
    """What policies are shown of each user is what one finds by looking at the requests."""
    limits, users = scheduler.limits, scheduler._roster.users
    peak_at_once = scheduler.policy.admission == "guaranteed_no_evict"
    assert set(users) == {seq.user_id for seq in live_sequences(scheduler)}
    for user in users.values():
        own = [seq for seq in live_sequences(scheduler) if seq.user_id == user.user_id]
        waiting = [seq for seq in own if seq.phase == WAITING]
        residents = [seq for seq in own if seq.phase != WAITING]
        assert sorted(residents, key=_number) == list(user.residents)
        assert sorted(waiting, key=_number) == list(user.waiting)
        assert user.live == len(own)
        assert user.held == sum(len(seq.block_table) for seq in residents)
        to_admit = sum(
            limits.blocks_at_peak(seq.prompt_len, seq.max_tokens)
            if peak_at_once
            else limits.blocks_at_admission(seq.prompt_len, len(seq.generated), seq.max_tokens)
            for seq in waiting
        )
        assert user.outstanding == user.held + to_admit
    loads = [user.load for user in users.by_load]
    assert loads == sorted(user.load for user in users.values())
    assert users.heaviest == max(loads, default=0)
    quarter = max(limits.max_kv_blocks // 4, 1)
    oldest = {user.user_id: next(iter(user.waiting), None) for user in users.values()}
    assert [user.user_id for user in users.waiting_by_usage] == sorted(
        (user_id for user_id, first in oldest.items() if first is not None),
        key=lambda user_id: (users[user_id].held // quarter, oldest[user_id].number),
    )


def _number(sequence: Any) -> int:
    return int(sequence.number)


class Recorder(SilentObserver):
    """An observer that keeps what was fed, and asserts the limits of rule 6 of every batch."""

    def __init__(self) -> None:
        self.scheduler: Scheduler | None = None
        self.log: list[dict[str, int]] = []
        """Of each tick: id -> tokens fed."""
        self.events: list[tuple[int, str, str]] = []
        """(tick, id, what happened); a submission or cancel has the tick before it."""

    def watch(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def submitted(self, sequence: Any) -> None:
        self._note(sequence.request_id, "submit")

    def refused(self, request: Request, error: RequestError) -> None:
        self._note(request.request_id, "refuse")

    def cancelled(self, sequence: Any, now: float) -> None:
        self._note(sequence.request_id, "cancel")

    def ticked(self, batch: Batch, tokens: Sequence[int], ended: Sequence[Any], now: float) -> None:
        fed = dict(_fed(batch))
        assert len(fed) == len(batch) == len(tokens), "a request is in a batch once"
        self.log.append(fed)
        for what, sequences in (
            ("preempt", batch.preempted),
            ("admit", batch.admitted),
            ("grow", batch.grown),
            ("end", ended),
        ):
            for sequence in sequences:
                self._note(sequence.request_id, what)
        if self.scheduler is not None:
            _assert_limits(self.scheduler, batch, fed)

    def _note(self, request_id: str, what: str) -> None:
        self.events.append((len(self.log), request_id, what))


def _fed(batch: Batch) -> Iterator[tuple[str, int]]:
    for index, sequence in enumerate(batch):
        yield sequence.request_id, 1 if index < batch.chunks_from else sequence.scheduled


def _assert_limits(scheduler: Scheduler, batch: Batch, fed: dict[str, int]) -> None:
    limits = scheduler.limits
    assert sum(fed.values()) == batch.tokens <= limits.token_budget
    assert len(fed) <= limits.max_batch_size
    assert all(1 <= tokens <= limits.chunk_size for tokens in fed.values())
    assert not {seq.request_id for seq in batch.preempted} & fed.keys(), "preempted and fed"
