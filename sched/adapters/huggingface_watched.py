"""transformers' own continuous-batching schedulers, watched while they run.

`watched(SchedulerClass)` is a class to put into transformers' `SCHEDULER_MAPPING`.
What it schedules is not changed; a `Watch` is told of it in batchproof's words.
"""

# pyright: reportMissingImports=false

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from batchproof.sched.adapters.engine import missing_engine, refuse_options
from batchproof.sched.adapters.huggingface import (
    TRIED,
    ended_by,
    limits_of,
    unsupported,
    user_before_slash,
)
from batchproof.sched.adapters.watched import Scheduled, Watch
from batchproof.sched.config import Limits
from batchproof.sched.errors import LimitsError

try:
    import transformers
    from transformers.generation.continuous_batching.requests import RequestState, RequestStatus
    from transformers.generation.continuous_batching.scheduler import Scheduler
except ModuleNotFoundError as missing:
    raise missing_engine(missing, "transformers", TRIED) from None

NOT_TRANSFORMERS_RULES: Final[Mapping[str, str]] = {
    "blocks-cover-context": "transformers takes the blocks of a prompt chunk by chunk",
}
"""Properties that transformers' schedulers do not set out to have, and why."""


def watched(
    scheduler_class: Any, *, record: str | None = None, exempt: Collection[str] = ()
) -> Any:
    """Return a subclass of a scheduler of transformers that is watched: see its `watch`.

    `record` is the path of a recording to write; it appears when `watch.end()` is
    called, at the latest when the process ends. `exempt` names properties not to
    check besides `NOT_TRANSFORMERS_RULES`. The class raises, when it is made,
    `LimitsError` for options under which it cannot be watched, `InputError` for a
    recording that cannot be written.
    """
    settings = {"record": record, "exempt": frozenset(exempt)}
    return type(f"Watched{scheduler_class.__name__}", (Watched, scheduler_class), settings)


class Watched(Scheduler):  # type: ignore[misc]
    """What `watched` puts in front of a scheduler of transformers."""

    record: str | None
    exempt: frozenset[str]

    def __init__(
        self, cache: Any, safety_margin: float | None, max_requests_per_batch: int
    ) -> None:
        refuse_options("transformers, for its scheduler to be watched", unsupported(cache, None))
        (self._allocator,) = cache.cache_allocators.values()
        limits = limits_of(cache, max_requests_per_batch)
        name = type(self).__name__.removeprefix(Watched.__name__)
        self.watch = Watch(
            limits,
            f"{name} of transformers {transformers.__version__}",
            self.exempt.union(NOT_TRANSFORMERS_RULES),
            self.record,
        )
        self._limits = limits
        self._watched: dict[str, RequestState] = {}
        self._blocks_known: dict[str, int] = {}
        self._batch: list[tuple[Any, int]] = []  # shares, and tokens generated before
        super().__init__(cache, safety_margin, max_requests_per_batch)

    def reset(self) -> None:
        """Forget everything, for a new generation loop: what is live ends with the old one."""
        # What failed gave its blocks back, whatever came of the batch that is out.
        self._cancel([i for i, s in self._watched.items() if s.status == RequestStatus.FAILED])
        self._complete()
        self._cancel(list(self._watched))
        super().reset()

    def add_waiting_request(self, state: RequestState) -> None:
        """Tell of a request that is new, or comes back preempted."""
        _refuse_unwatchable(state)
        super().add_waiting_request(state)
        if state._true_initial_tokens:  # it comes back, with what it generated as its prompt
            self.watch.preempted(state.request_id)
            del self._blocks_known[state.request_id]
        else:
            self.watch.submitted(
                state.request_id,
                user_before_slash(state),
                state.initial_tokens,
                _max_tokens(state, self._limits),
            )
        self._watched[state.request_id] = state

    def schedule_batch(self, token_budget: int, cache_budget: int) -> Any:
        """Tell of the batch that the scheduler makes."""
        answer = super().schedule_batch(token_budget, cache_budget)
        shares = answer[0]
        if shares is not None:  # else the engine preempts, and asks again
            self._batch = [(share, len(share.state.generated_tokens)) for share in shares]
            self.watch.scheduled(self._scheduled(shares))
        return answer

    def _scheduled(self, shares: list[Any]) -> Scheduled:
        """Return a batch in batchproof's words."""
        grow: list[tuple[str, int]] = []
        admit: list[tuple[str, list[int]]] = []
        fed: list[tuple[str, int, int]] = []
        for share in shares:
            request_id = share.state.request_id
            table = self._allocator.block_table[request_id]
            known = self._blocks_known.get(request_id)
            self._blocks_known[request_id] = len(table)
            blocks = [self._block(block) for block in table[known:]]
            if known is None:
                admit.append((request_id, blocks))
            else:
                grow.extend((request_id, block) for block in blocks)
            fed.append((request_id, share.state.position_offset, share.query_length))
        return Scheduled((), grow, admit, fed)

    def _block(self, block: int) -> int:
        """Return batchproof's number of a block: the engine's first ones are reserved."""
        reserved = self.cache.pool.num_reserved_sectors * self._allocator.blocks_per_sector
        return block - int(reserved)

    def clear_cancelled_requests(self) -> list[RequestState]:
        """Tell what came of the last batch, and of what is cancelled; the engine calls it first."""
        self._complete()
        cancelled: list[RequestState] = super().clear_cancelled_requests()
        self._cancel([state.request_id for state in cancelled])
        return cancelled

    def _cancel(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self._forget(request_id)
            self.watch.cancelled(request_id)

    def _complete(self) -> None:
        """Tell what came of the batch that is out, now that the engine has run it."""
        tokens, ended = {}, {}
        for share, generated_before in self._batch:
            state = share.state
            if state.status == RequestStatus.FAILED:
                continue
            if len(state.generated_tokens) > generated_before:
                tokens[state.request_id] = state.generated_tokens[-1]
            elif share.has_new_token:
                raise LimitsError(
                    "transformers: a batch is asked for before the tokens of the last one are "
                    "there; use_async_batching=True cannot be watched: set it to False"
                )
            if state.status == RequestStatus.FINISHED:
                ended[state.request_id] = ended_by(state)
        pool = self.cache.pool
        free = pool.count_free_blocks(self._allocator.index)
        free += pool.num_free_sectors * self._allocator.blocks_per_sector
        self.watch.ran(tokens, ended, free)
        self._batch = []
        for request_id in ended:
            self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        del self._watched[request_id]
        self._blocks_known.pop(request_id, None)


def _refuse_unwatchable(state: RequestState) -> None:
    """Raise `LimitsError` for a request whose blocks a `Watch` could not follow."""
    if state.num_children:
        raise LimitsError(
            f"request {state.request_id!r}: num_return_sequences={state.num_children + 1} shares "
            "blocks between requests and cannot be watched; submit it several times"
        )
    if state.is_cpu_offloaded:
        raise LimitsError(
            f"request {state.request_id!r}: its blocks were copied to the CPU; "
            "cpu_offload_space cannot be watched: set it to 0.0"
        )


def _max_tokens(state: RequestState, limits: Limits) -> int:
    """Return the limit of a request; of one without, as much as fits in the whole cache."""
    if state.max_new_tokens is not None:
        return int(state.max_new_tokens)
    capacity = limits.max_kv_blocks * limits.block_size
    return max(1, capacity - len(state.initial_tokens) + 1)
