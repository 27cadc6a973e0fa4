"""Hugging Face transformers' continuous batching on batchproof's scheduler.

`batching_config` makes the configuration to hand to `generate_batch` or
`init_continuous_batching`. The engine's own cache, kernels and sampling run the
model; the verified scheduler owns every block of the cache and decides each
batch. docs/how-to/use-with-transformers.md shows it.
"""

# pyright: reportMissingImports=false

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from batchproof.sched.adapters.engine import (
    ONE_USER,
    STOPPED,
    Answer,
    EngineScheduler,
    PolicyChoice,
    missing_engine,
    refuse_options,
    warn_if_untried,
)
from batchproof.sched.batch import Batch
from batchproof.sched.config import Limits
from batchproof.sched.errors import InvalidRequestError, LimitsError, MisuseError
from batchproof.sched.policy.registry import DEFAULT_POLICY
from batchproof.sched.request import Request
from batchproof.sched.request import Sequence as ScheduledRequest
from batchproof.spec.lifecycle import FinishReason

TRIED: Final = ("5.24.0",)
"""The versions of transformers that the tests ran on."""

try:
    import torch
    import transformers
    from transformers import ContinuousBatchingConfig
    from transformers.generation.continuous_batching.requests import (
        FutureRequestState,
        RequestState,
        RequestStatus,
    )
    from transformers.generation.continuous_batching.scheduler import (
        SCHEDULER_MAPPING,
        Scheduler,
    )
except ModuleNotFoundError as missing:
    raise missing_engine(missing, "transformers", TRIED) from None

ONLY_WITH: Final[Mapping[str, tuple[Any, str]]] = {
    "allow_block_sharing": (False, "prefix sharing gives a block two owners"),
    "use_async_batching": (False, "it schedules a batch before the last one's tokens are known"),
    "cpu_offload_space": (0.0, "a preempted request is recomputed, not copied to the CPU"),
    "safety_margin": (None, "admission follows the policy, which keeps no such reserve"),
}
"""Options of `ContinuousBatchingConfig` -> the one value that is supported, and why."""


def batching_config(
    *,
    name: str = "batchproof",
    policy: PolicyChoice = DEFAULT_POLICY,
    chunk_size: int | None = None,
    **options: Any,
) -> ContinuousBatchingConfig:
    """Return a `ContinuousBatchingConfig` that runs on batchproof's scheduler.

    `options` are those of `ContinuousBatchingConfig`; its `page_size` (tokens),
    `num_blocks`, `max_batch_tokens` and `max_requests_per_batch` are the
    scheduler's limits. The other arguments are those of `register`. Raises
    `LimitsError` naming each option that cannot be honoured.
    """
    refuse_options(
        "transformers",
        (
            (f"{option}={options[option]!r}", f"only {value!r} is supported: {why}")
            for option, (value, why) in ONLY_WITH.items()
            if options.get(option, value) != value
        ),
    )
    register(name=name, policy=policy, chunk_size=chunk_size)
    supported = {option: value for option, (value, _) in ONLY_WITH.items()}
    return ContinuousBatchingConfig(scheduler_type=name, **{**options, **supported})


def user_before_slash(state: RequestState) -> str:
    """Return the user of a request: what comes before the first "/" of its id, else one for all."""
    user, slash, _ = state.request_id.partition("/")
    return str(user) if slash and user else ONE_USER


def register(
    *,
    name: str = "batchproof",
    policy: PolicyChoice = DEFAULT_POLICY,
    chunk_size: int | None = None,
    user_of: Callable[[RequestState], str] = user_before_slash,
) -> None:
    """Make batchproof's scheduler available as `ContinuousBatchingConfig(scheduler_type=name)`.

    `chunk_size` is the most prompt tokens that a request prefills in one tick;
    None: as many as a batch may hold. transformers has no users: `user_of` says
    whose a request is. Raises `LimitsError` if `name` is taken.
    """
    settings: dict[str, Any] = {"policy": policy, "chunk_size": chunk_size, "user_of": user_of}
    taken = SCHEDULER_MAPPING.get(name)
    if taken is not None and getattr(taken, "keywords", None) != settings:
        raise LimitsError(
            f"scheduler type {name!r} is registered already, with other settings; "
            "choose another name for this one"
        )
    SCHEDULER_MAPPING[name] = partial(BatchproofScheduler, **settings)


def scheduler_of(manager: Any) -> "BatchproofScheduler":
    """Return the scheduler of a running `ContinuousBatchingManager`.

    Raises `MisuseError` if it is another: for a `scheduler_type` that it does not
    know, transformers takes its own first-come-first-served scheduler, with only
    a warning.
    """
    scheduler = getattr(manager.batch_processor, "scheduler", None)
    if not isinstance(scheduler, BatchproofScheduler):
        asked = manager.continuous_batching_config.scheduler_type
        raise MisuseError(
            f"transformers runs {type(scheduler).__name__}, not batchproof's scheduler: "
            f"scheduler_type is {asked!r}; registered: {', '.join(SCHEDULER_MAPPING)}"
        )
    return scheduler


class BatchproofScheduler(Scheduler):  # type: ignore[misc]
    """The verified scheduler, in the place of one of transformers' own.

    Made by the engine when it starts. Raises `LimitsError` naming what it cannot
    honour. A request is refused (rule 4) by the engine's own way: it ends with
    the message as its `error`.
    """

    def __init__(
        self,
        cache: Any,
        safety_margin: float | None,
        max_requests_per_batch: int,
        *,
        policy: PolicyChoice = DEFAULT_POLICY,
        chunk_size: int | None = None,
        user_of: Callable[[RequestState], str] = user_before_slash,
    ) -> None:
        warn_if_untried("transformers", transformers.__version__, TRIED)
        refuse_options("transformers", unsupported(cache, safety_margin))
        (self._allocator,) = cache.cache_allocators.values()
        self.limits = limits_of(cache, max_requests_per_batch, chunk_size)
        self._policy = policy
        self._user_of = user_of
        self._blocks: list[int] = []
        super().__init__(cache, 0.0, max_requests_per_batch)

    def reset(self) -> None:
        """Forget everything, for a new generation loop, and give the engine its blocks back."""
        super().reset()
        self._engine = EngineScheduler(self.limits, self._policy)
        self._states: dict[str, RequestState] = {}
        self._allocator.block_table.clear()
        self.cache.pool.free_blocks(self._allocator.index, self._blocks)
        self.cache.pool.try_to_free_sectors()
        self._blocks = []

    def add_waiting_request(self, state: RequestState) -> None:
        """Accept a request; raise a `RequestError` for one that is refused (rule 4)."""
        if state.num_children:
            raise InvalidRequestError(
                f"request {state.request_id!r}: num_return_sequences={state.num_children + 1} "
                "shares blocks between requests, which is not supported; submit it several times"
            )
        if state.max_new_tokens is None:
            raise InvalidRequestError(
                f"request {state.request_id!r}: max_new_tokens is not set; "
                "its memory cannot be bounded without it"
            )
        self._engine.core.submit(
            Request(
                user_id=self._user_of(state),
                prompt=state.initial_tokens,
                max_tokens=state.max_new_tokens,
                request_id=state.request_id,
            )
        )
        self._states[state.request_id] = state
        self.waiting_requests[state.request_id] = state

    def schedule_batch(
        self, token_budget: int, cache_budget: int
    ) -> tuple[list[FutureRequestState], bool, int, int]:
        """Return the next batch, whether all of it are short decodes, its tokens, its context."""
        self._complete_batch()
        if not self._engine.core.has_active():
            return [], False, 0, 0
        self._claim_blocks()
        batch = self._engine.schedule()
        self._follow(batch)
        shares = [self._share_of(sequence) for sequence in batch]
        fast = all(
            share.query_length == 1
            and share.state.position_offset < self.cache.max_decode_fast_path_length
            for share in shares
        )
        return shares, fast, batch.tokens, sum(share.state.position_offset for share in shares)

    def clear_cancelled_requests(self) -> list[RequestState]:
        """Cancel what was asked to be; the engine calls this first, between two batches."""
        self._complete_batch()
        with self._cancellation_lock:
            asked = self._requests_to_cancel.copy()
            self._requests_to_cancel.clear()
        cancelled = [self._states[request_id] for request_id in asked if request_id in self._states]
        for state in cancelled:
            self._engine.cancel(state.request_id)
            self._forget(state.request_id)
        return cancelled

    def finish_request(self, request_id: str) -> None:
        """Hear that the engine is done with a request; its blocks are free once the batch is."""
        self.active_requests.pop(request_id, None)

    def stats(self) -> dict[str, Any]:
        """Return every figure of this generation loop; docs/reference/figures.md."""
        return self._engine.core.stats()

    def _claim_blocks(self) -> None:
        """Take all blocks out of the engine's pool, so that nobody else can hand one out."""
        if self._blocks:
            return
        pool, index = self.cache.pool, self._allocator.index
        pool.try_to_free_sectors()
        while pool.num_free_sectors:
            pool.allocate_sector(index)
        if pool.count_free_blocks(index) != self.limits.max_kv_blocks:
            raise MisuseError(
                f"transformers: {pool.count_free_blocks(index)} of {self.limits.max_kv_blocks} "
                "blocks are free at the start; the cache is used by something else"
            )
        self._blocks = sorted(pool.get_free_blocks(index, self.limits.max_kv_blocks))

    def _follow(self, batch: Batch) -> None:
        """Make the engine's queues and block tables what the batch says."""
        tables = self._allocator.block_table
        for sequence in batch.preempted:
            request_id = sequence.request_id
            del tables[request_id]
            self.waiting_requests[request_id] = self.active_requests.pop(request_id)
        for sequence in batch.admitted:
            request_id = sequence.request_id
            self.active_requests[request_id] = self.waiting_requests.pop(request_id)
        for sequence in (*batch.admitted, *batch.grown):
            tables[sequence.request_id] = [self._engine_block(b) for b in sequence.block_table]

    def _engine_block(self, block: int) -> int:
        """Return the engine's number of a block."""
        return self._blocks[block]

    def _share_of(self, sequence: ScheduledRequest) -> FutureRequestState:
        """Return the engine's form of a scheduled sequence."""
        state = self._states[sequence.request_id]
        state.tokens_to_process = list(sequence.tokens)
        state.position_offset = sequence.position
        state.status = RequestStatus.DECODING if sequence.yields else RequestStatus.PREFILLING
        return FutureRequestState(state, sequence.yields, {}, len(state.tokens_to_process))

    def _complete_batch(self) -> None:
        """Tell the scheduler what came of the batch that is out, now that the engine has run it."""
        batch = self._engine.batch
        if batch is None:
            return
        for request in self._engine.complete([self._answer_for(sequence) for sequence in batch]):
            self._forget(request.request_id)

    def _answer_for(self, sequence: ScheduledRequest) -> Answer:
        state = self._states[sequence.request_id]
        generated = state.generated_tokens
        new = generated[len(sequence.generated) :]
        if sequence.yields and not new:
            raise LimitsError(
                "transformers: a batch is asked for before the tokens of the last one are there; "
                "use_async_batching=True is not supported: set it to False"
            )
        if not new:
            return Answer()
        if state.status != RequestStatus.FINISHED:
            return Answer(new[0])
        return Answer(new[0], ended_by(state))

    def _forget(self, request_id: str) -> None:
        del self._states[request_id]
        self._allocator.block_table.pop(request_id, None)
        self.active_requests.pop(request_id, None)
        self.waiting_requests.pop(request_id, None)


def limits_of(cache: Any, max_requests_per_batch: int, chunk_size: int | None = None) -> Limits:
    """Return the limits that a cache of transformers and its batches set."""
    (allocator,) = cache.cache_allocators.values()
    return Limits(
        max_kv_blocks=allocator.num_blocks,
        block_size=allocator.tokens_per_page,
        chunk_size=chunk_size or cache.max_batch_tokens,
        token_budget=cache.max_batch_tokens,
        max_batch_size=max_requests_per_batch,
        eos_token=STOPPED,
    )


def ended_by(state: RequestState) -> FinishReason:
    """Return why a finished request ended."""
    return "eos" if state.generated_tokens[-1] in state._eos_token_ids else "length"


def unsupported(cache: Any, safety_margin: float | None) -> list[tuple[str, str]]:
    """Return what the engine was started with and this scheduler cannot honour."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    found = {
        "allow_block_sharing=True": (cache.use_prefix_sharing, "set it to False"),
        f"safety_margin={safety_margin!r}": (safety_margin is not None, "leave it unset"),
        "a model with sliding-window layers": (
            list(cache.cache_allocators) != ["full_attention"],
            "use one whose layers all attend to the whole context",
        ),
        "tensor parallelism": (
            distributed and torch.distributed.get_world_size() > 1,
            "run the model on one device",
        ),
    }
    return [(option, remedy) for option, (asked, remedy) in found.items() if asked]
