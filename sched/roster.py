"""The live requests by phase, and the memory that they hold: where every phase changes."""

from collections.abc import Iterable

from batchproof.sched import lifecycle
from batchproof.sched.blocks import BlockPool
from batchproof.sched.config import Admission, Limits
from batchproof.sched.planning import SchedulerView
from batchproof.sched.request import Sequence
from batchproof.sched.waiting import WaitingQueue
from batchproof.spec.lifecycle import DECODING, INITIAL, PREFILLING, WAITING


class Roster:
    """Who is live, in which phase, and in which order policies see them.

    The dicts are ordered sets: their order is the policy's view, and leaving
    one costs O(1).
    """

    __slots__ = (
        "decoding",
        "growing",
        "limits",
        "live",
        "pool",
        "prefilling",
        "users",
        "view",
        "waiting",
    )

    def __init__(self, limits: Limits, admission: Admission) -> None:
        self.limits = limits
        self.pool = BlockPool(limits.max_kv_blocks)
        self.live: dict[str, Sequence] = {}
        self.waiting = WaitingQueue()
        self.prefilling: dict[Sequence, None] = {}
        """In order of admission."""
        self.decoding: dict[Sequence, None] = {}
        """Least recently scheduled first."""
        self.growing: dict[Sequence, None] = {}
        """Those of them that need a block before their next token."""
        self.view = SchedulerView(
            limits, self.pool, self.waiting, self.prefilling.keys(), admission
        )
        self.users = self.view.users

    def look(self) -> SchedulerView:
        """Return the view of this moment."""
        view, growing = self.view, self.growing
        view.decoding = tuple(self.decoding)
        view.growing = _oldest_first(growing) if growing else ()
        return view

    def enter(self, sequence: Sequence) -> None:
        """Begin a request's life here: waiting, in its place."""
        sequence.request.phase = INITIAL
        sequence.admission_blocks = self.view.admission_blocks(sequence)
        self.live[sequence.request_id] = sequence
        if sequence.preemptions:
            self.waiting.put_back(sequence)
        else:
            self.waiting.append(sequence)
        self.users.submitted(sequence)

    def advance(self, sequence: Sequence) -> None:
        """Let a request that was just submitted take the place that its priority gives it."""
        self.waiting.advance(sequence, self.limits.max_passes)

    def admit(self, sequence: Sequence) -> None:
        """Make a waiting request, its blocks taken, a resident."""
        self._move(sequence, lifecycle.admit)
        self.users.admitted(sequence)

    def start_decoding(self, sequence: Sequence) -> None:
        """Move a request whose prefill is complete on to its decodes."""
        self._move(sequence, lifecycle.first_token)

    def grow(self, sequence: Sequence) -> None:
        """Note the block that a decode has taken."""
        del self.growing[sequence]
        self._aim(sequence)
        self.users.grown(sequence)

    def preempt(self, sequence: Sequence, blocks: int, at: float) -> None:
        """Make a resident, its `blocks` blocks given up, wait for its recomputation."""
        sequence.computed_max = max(sequence.computed_max, sequence.position)
        sequence.preemptions += 1
        sequence.context_len = sequence.prompt_len + len(sequence.generated)
        sequence.prefilled = 0
        sequence.admission_blocks = self.view.admission_blocks(sequence)
        sequence.waiting_since = at
        self._move(sequence, lifecycle.preempt)
        self.users.preempted(sequence, blocks)

    def end(self, sequence: Sequence, event: lifecycle.Trigger) -> bool:
        """End a request by `event`, its blocks free at once; tell whether its user has left."""
        self._move(sequence, event)
        left = self.users.ended(sequence)
        self.pool.give(sequence.blocks)
        sequence.blocks = []
        del self.live[sequence.request_id]
        return left

    def rotate(self, scheduled: list[Sequence]) -> None:
        """Put the decodes that were scheduled behind those that were not (rule 6)."""
        for sequence in scheduled:
            del self.decoding[sequence]
            self.decoding[sequence] = None

    def _move(self, sequence: Sequence, event: lifecycle.Trigger) -> None:
        """Change a request's phase, and what follows from it: the one place where that happens."""
        request = sequence.request
        source = request.phase
        event(request)
        if source == WAITING:
            self.waiting.remove(sequence)
        elif source == PREFILLING:
            del self.prefilling[sequence]
        else:
            del self.decoding[sequence]
            self.growing.pop(sequence, None)

        dest = request.phase
        if dest == PREFILLING:
            self.prefilling[sequence] = None
        elif dest == DECODING:
            self.decoding[sequence] = None
            self._aim(sequence)
        elif dest == WAITING:
            self.waiting.put_back(sequence)

    def _aim(self, sequence: Sequence) -> None:
        """Count the decode steps until the request ends by length or its blocks are full."""
        covered = len(sequence.blocks) * self.limits.block_size - sequence.prompt_len
        last = sequence.max_tokens if covered >= sequence.max_tokens - 1 else covered
        sequence.steps_left = last - len(sequence.generated)
        if not sequence.steps_left:
            self.growing[sequence] = None


def _oldest_first(sequences: Iterable[Sequence]) -> tuple[Sequence, ...]:
    return tuple(sorted(sequences, key=lambda sequence: sequence.number))
