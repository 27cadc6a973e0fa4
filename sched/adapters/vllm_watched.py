"""vLLM's own schedulers, watched: every step held against the rules while they run.

`watched(SchedulerClass)` is a class to hand to `LLM(scheduler_cls=...)`. What it
schedules is not changed; a `Watch` is told of it in batchproof's words.
"""

# pyright: reportMissingImports=false

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from batchproof.sched.adapters.engine import STOPPED, missing_engine, refuse_options
from batchproof.sched.adapters.vllm import ENDED_BY, TRIED, user_of
from batchproof.sched.adapters.vllm_options import OPTIONS
from batchproof.sched.adapters.watched import Scheduled, Watch
from batchproof.sched.config import Limits

try:
    from vllm.v1.core.sched.interface import SchedulerInterface
    from vllm.version import __version__ as engine_version
except ModuleNotFoundError as missing:
    raise missing_engine(missing, "vllm", TRIED) from None

NOT_VLLMS_RULES: Final[Mapping[str, str]] = {
    "blocks-cover-context": "vLLM takes the blocks of a prompt chunk by chunk, not at admission",
}
"""Properties that vLLM's schedulers do not set out to have, and why."""

UNWATCHED: Final = frozenset(
    {
        "async_scheduling",
        "enable_prefix_caching",
        "kv_transfer_config",
        "pipeline_parallel_size",
        "speculative_config",
    }
)
"""Options of vLLM under which what happens in a step is not what a `Watch` is told."""


def watched(
    scheduler_class: Any, *, record: str | None = None, exempt: Collection[str] = ()
) -> Any:
    """Return a subclass of a scheduler of vLLM that is watched: its `watch` says what was seen.

    `record` is the path of a recording to write; it appears when the engine shuts
    down. `exempt` names properties not to check besides `NOT_VLLMS_RULES`. The
    class raises, when it is made, `LimitsError` for options under which it cannot
    be watched, `InputError` for a recording that cannot be written.
    """
    settings = {"record": record, "exempt": frozenset(exempt)}
    return type(f"Watched{scheduler_class.__name__}", (Watched, scheduler_class), settings)


class Watched(SchedulerInterface):  # type: ignore[misc]
    """What `watched` puts in front of a scheduler of vLLM."""

    record: str | None
    exempt: frozenset[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        refuse_options("vLLM, for its scheduler to be watched", _asked_for(self.vllm_config))
        name = type(self).__name__.removeprefix(Watched.__name__)
        self.watch = Watch(
            _limits_of(self),
            f"{name} of vllm {engine_version}",
            self.exempt.union(NOT_VLLMS_RULES),
            self.record,
        )

    def add_request(self, request: Any) -> None:
        """Tell of a new request."""
        super().add_request(request)
        room = self.max_model_len - request.num_prompt_tokens
        self.watch.submitted(
            request.request_id,
            user_of(request),
            request.prompt_token_ids,
            max(1, min(request.max_tokens, room)),
        )

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: Any) -> Any:
        """Tell of requests that were aborted."""
        ended = super().finish_requests(request_ids, finished_status)
        for request in ended:
            self.watch.cancelled(request.request_id)
        return ended

    def schedule(self, throttle_prefills: bool = False) -> Any:
        """Tell of the batch that the scheduler makes."""
        output = super().schedule(throttle_prefills)
        self.watch.scheduled(_scheduled(output))
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Tell what came of the batch."""
        # A request that was aborted while the batch was out is not there any more.
        in_batch = {
            i: self.requests[i] for i in scheduler_output.num_scheduled_tokens if i in self.requests
        }
        before = {i: request.num_output_tokens for i, request in in_batch.items()}
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        self.watch.ran(
            {
                i: request.output_token_ids[-1]
                for i, request in in_batch.items()
                if request.num_output_tokens > before[i]
            },
            {
                i: ENDED_BY[request.status]
                for i, request in in_batch.items()
                if request.is_finished()
            },
            self.kv_cache_manager.block_pool.get_num_free_blocks(),
        )
        return outputs

    def shutdown(self) -> None:
        """Complete the recording, if there is one."""
        super().shutdown()
        self.watch.end()


def _asked_for(vllm_config: Any) -> Iterable[tuple[str, str]]:
    for option in OPTIONS:
        if option.name in UNWATCHED and option.is_asked_for(vllm_config):
            yield option.name, option.remedy


def _limits_of(scheduler: Any) -> Limits:
    """Return the limits that one of vLLM's schedulers keeps."""
    return Limits(
        max_kv_blocks=scheduler.kv_cache_config.num_blocks - 1,
        block_size=scheduler.block_size,
        chunk_size=scheduler.max_num_scheduled_tokens,
        token_budget=scheduler.max_num_scheduled_tokens,
        max_batch_size=scheduler.scheduler_config.max_num_seqs,
        eos_token=STOPPED,
    )


def _scheduled(output: Any) -> Scheduled:
    """Return a `SchedulerOutput` in batchproof's words."""
    cached = output.scheduled_cached_reqs
    taken = {new.req_id: _blocks(new.block_ids) for new in output.scheduled_new_reqs}
    positions = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    grow: list[tuple[str, int]] = []
    for request_id, blocks, position in zip(
        cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
    ):
        positions[request_id] = position
        if request_id in cached.resumed_req_ids:
            taken[request_id] = _blocks(blocks)
        elif blocks is not None:
            grow += [(request_id, block) for block in _blocks(blocks)]
    return Scheduled(
        preempt=sorted(output.preempted_req_ids or ()),
        grow=grow,
        # The output lists new requests before resumed ones; the order of scheduling is kept here.
        admit=[(i, taken[i]) for i in output.num_scheduled_tokens if i in taken],
        fed=[(i, positions[i], tokens) for i, tokens in output.num_scheduled_tokens.items()],
    )


def _blocks(block_ids: Any) -> list[int]:
    """Return batchproof's numbers of the blocks: vLLM's block 0 is its null block."""
    (of_the_only_group,) = block_ids
    return [block - 1 for block in of_the_only_group]
