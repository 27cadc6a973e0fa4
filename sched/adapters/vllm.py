"""vLLM (engine V1) on batchproof's scheduler: `LLM(scheduler_cls=BatchproofScheduler)`.

vLLM's own workers, cache and sampling run the model; the verified scheduler
owns every block of the cache but vLLM's null block 0, so that its block b is
vLLM's block b + 1. docs/how-to/use-with-vllm.md shows it.
"""

# pyright: reportMissingImports=false

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from batchproof.sched.adapters.engine import (
    ONE_USER,
    STOPPED,
    Answer,
    EngineScheduler,
    missing_engine,
    refuse_options,
    warn_if_untried,
)
from batchproof.sched.adapters.vllm_options import POLICY_OPTIONS, unsupported_options
from batchproof.sched.batch import Batch
from batchproof.sched.config import Limits
from batchproof.sched.errors import ExecutorError, InvalidRequestError, MisuseError, RequestError
from batchproof.sched.policy.registry import DEFAULT_POLICY
from batchproof.sched.request import Request
from batchproof.sched.request import Sequence as ScheduledRequest
from batchproof.spec.lifecycle import FinishReason

TRIED: Final = ("0.32.0",)
"""The versions of vLLM that the tests ran on."""

try:
    from vllm.v1.core.sched.interface import PauseState, SchedulerInterface
    from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
    from vllm.v1.core.sched.utils import check_stop
    from vllm.v1.engine import (
        EngineCoreEventType,
        EngineCoreOutput,
        EngineCoreOutputs,
    )
    from vllm.v1.metrics.stats import SchedulerStats
    from vllm.v1.request import Request as EngineRequest
    from vllm.v1.request import RequestStatus
    from vllm.version import __version__ as engine_version
except ModuleNotFoundError as missing:
    raise missing_engine(missing, "vllm", TRIED) from None

UNSUPPORTED_OF_A_REQUEST: Final[Mapping[str, str]] = {
    "lora_request": "LoRA",
    "mm_features": "multimodal input",
    "pooling_params": "pooling",
    "prompt_embeds": "prompt embeddings",
    "resumable": "streaming input",
    "structured_output_request": "structured output",
}
"""Attributes of vLLM's request that must be empty -> what they ask for."""

ENDED_BY: Final[Mapping[RequestStatus, FinishReason]] = {
    RequestStatus.FINISHED_STOPPED: "eos",
    RequestStatus.FINISHED_REPETITION: "eos",
    RequestStatus.FINISHED_LENGTH_CAPPED: "length",
}
"""How vLLM says that a request has ended -> the scheduler's word for it."""

logger = logging.getLogger(__name__)


def user_of(request: EngineRequest) -> str:
    """Return whose request it is: `extra_args["user_id"]`, else its session, else one for all."""
    extra = getattr(request.sampling_params, "extra_args", None) or {}
    return extra.get("user_id") or request.session_id or ONE_USER


class BatchproofScheduler(SchedulerInterface):  # type: ignore[misc]
    """The verified scheduler, in the place of vLLM's own.

    Made by the engine when it starts; raises `LimitsError` then, naming every
    option that it cannot honour. The policy is chosen by
    `additional_config={"batchproof": {"policy": "fair-lane"}}`. A request that is
    refused (rule 4) ends with `finish_reason="error"` and the reason as its
    `stop_reason`.
    """

    connector = None
    ec_connector = None

    def __init__(
        self,
        vllm_config: Any,
        kv_cache_config: Any,
        structured_output_manager: Any,
        block_size: int,
        hash_block_size: int | None = None,
        log_stats: bool = False,
        **_others: Any,
    ) -> None:
        warn_if_untried("vllm", engine_version, TRIED)
        refuse_options("vLLM", unsupported_options(vllm_config, kv_cache_config, block_size))
        options = {**POLICY_OPTIONS, **(vllm_config.additional_config or {}).get("batchproof", {})}
        config = vllm_config.scheduler_config
        budget = config.max_num_scheduled_tokens or config.max_num_batched_tokens
        self.limits = Limits(
            max_kv_blocks=kv_cache_config.num_blocks - 1,
            block_size=block_size,
            chunk_size=config.long_prefill_token_threshold or budget,
            token_budget=budget,
            max_batch_size=config.max_num_seqs,
            eos_token=STOPPED,
        )
        self._engine = EngineScheduler(self.limits, options["policy"] or DEFAULT_POLICY)
        self._max_model_len: int = vllm_config.model_config.max_model_len
        self._log_stats = log_stats
        self._pause_state = PauseState.UNPAUSED
        self._requests: dict[str, EngineRequest] = {}
        # How many blocks of a request the workers know; only of those that they run.
        self._blocks_sent: dict[str, int] = {}
        self._finished_ids: set[str] = set()
        self._refused: list[tuple[EngineRequest, str]] = []

    def add_request(self, request: EngineRequest) -> None:
        """Accept a request, or refuse it: its one output, in the next step, says why."""
        try:
            asked = [
                name
                for attribute, name in UNSUPPORTED_OF_A_REQUEST.items()
                if getattr(request, attribute)
            ]
            if asked:
                raise InvalidRequestError(
                    f"request {request.request_id!r} asks for {', '.join(asked)}: not supported"
                )
            room = self._max_model_len - request.num_prompt_tokens
            self._engine.core.submit(
                Request(
                    user_id=user_of(request),
                    prompt=request.prompt_token_ids,
                    max_tokens=max(1, min(request.max_tokens, room)),
                    request_id=request.request_id,
                )
            )
        except RequestError as error:
            logger.warning("refused: %s", error)
            request.status = RequestStatus.FINISHED_ERROR
            self._refused.append((request, str(error)))
            return
        self._requests[request.request_id] = request
        self._record(request, EngineCoreEventType.QUEUED)

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        """Return the next batch in vLLM's form; empty while paused or when no request is live."""
        output = SchedulerOutput.make_empty()
        output.finished_req_ids, self._finished_ids = self._finished_ids, set()
        if self.has_unfinished_requests():
            batch = self._engine.schedule()
            self._preempt(batch, output)
            for sequence in batch:
                self._schedule(sequence, output)
            output.total_num_scheduled_tokens = batch.tokens
        return output

    def _preempt(self, batch: Batch, output: SchedulerOutput) -> None:
        output.preempted_req_ids = {sequence.request_id for sequence in batch.preempted}
        for request_id in output.preempted_req_ids:
            if self._blocks_sent.pop(request_id, None) is None:
                continue  # admitted, but not run before it was preempted: the workers missed it
            request = self._requests[request_id]
            request.status = RequestStatus.PREEMPTED
            request.num_computed_tokens = 0
            request.num_preemptions += 1
            self._record(request, EngineCoreEventType.PREEMPTED)

    def _schedule(self, sequence: ScheduledRequest, output: SchedulerOutput) -> None:
        """Add a scheduled sequence to vLLM's form of the batch."""
        request_id = sequence.request_id
        request = self._requests[request_id]
        table = sequence.block_table
        known = self._blocks_sent.get(request_id, 0)
        self._blocks_sent[request_id] = len(table)
        new_blocks = [self._engine_block(block) for block in table[known:]]
        request.num_computed_tokens = sequence.position

        if request.status == RequestStatus.WAITING:
            new = NewRequestData.from_request(request, (new_blocks,))
            output.scheduled_new_reqs.append(new)
        else:
            cached: CachedRequestData = output.scheduled_cached_reqs
            if request.status == RequestStatus.PREEMPTED:
                cached.resumed_req_ids.add(request_id)
            cached.req_ids.append(request_id)
            cached.new_block_ids.append((new_blocks,) if new_blocks else None)
            cached.num_computed_tokens.append(sequence.position)
            cached.num_output_tokens.append(request.num_output_tokens)
        if request.status != RequestStatus.RUNNING:
            request.status = RequestStatus.RUNNING
            self._record(request, EngineCoreEventType.SCHEDULED)

        tokens = len(sequence.tokens)
        output.num_scheduled_tokens[request_id] = tokens
        request.num_computed_tokens += tokens

    def _engine_block(self, block: int) -> int:
        """Return the engine's number of a block: 0 is its null block."""
        return block + 1

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: Any
    ) -> dict[int, EngineCoreOutputs]:
        """Take what the model sampled; return each client's outputs."""
        outputs: dict[int, list[EngineCoreOutput]] = defaultdict(list)
        for request, error in self._refused:
            outputs[request.client_index].append(
                EngineCoreOutput(
                    request.request_id,
                    [],
                    finish_reason=request.get_finished_reason(),
                    stop_reason=error,
                )
            )
        self._refused.clear()
        if scheduler_output.num_scheduled_tokens:
            self._complete(model_runner_output, outputs)

        by_client = {
            client: EngineCoreOutputs(outputs=of_client) for client, of_client in outputs.items()
        }
        stats = self.make_stats()
        if stats is not None:
            by_client.setdefault(0, EngineCoreOutputs()).scheduler_stats = stats
        return by_client

    def _complete(
        self, model_runner_output: Any, outputs: Mapping[int, list[EngineCoreOutput]]
    ) -> None:
        """Complete the batch that is out, and add an output for each token that counts."""
        batch = self._engine.batch
        if batch is None:
            raise MisuseError("update_from_output: no batch is out; call schedule first")
        answers = []
        for sequence in batch:
            index = model_runner_output.req_id_to_index[sequence.request_id]
            sampled = model_runner_output.sampled_token_ids
            token = _only(sampled[index] if sampled else [], sequence)
            request = self._requests.get(sequence.request_id)
            if request is None or token is None:
                answers.append(Answer.while_live(sequence, token))
                continue
            request.append_output_token_ids(token)
            stopped = check_stop(request, self._max_model_len)
            answers.append(Answer(token, ENDED_BY[request.status] if stopped else None))
            outputs[request.client_index].append(
                _output_of(request, token, index, model_runner_output)
            )
        for ended in self._engine.complete(answers):
            self._forget(ended.request_id)

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus
    ) -> list[EngineRequest]:
        """End these requests, or all, now; return those that were live.

        Those in the batch that is out keep their blocks until it is back.
        """
        if request_ids is None:
            request_ids = tuple(self._requests)
        elif isinstance(request_ids, str):
            request_ids = (request_ids,)
        ended = [self._requests[i] for i in dict.fromkeys(request_ids) if i in self._requests]
        for request in ended:
            request.status = finished_status
            self._engine.cancel(request.request_id)
            self._forget(request.request_id)
        return ended

    def _forget(self, request_id: str) -> None:
        self._finished_ids.add(request_id)
        self._blocks_sent.pop(request_id, None)
        self._requests.pop(request_id, None)

    def get_num_unfinished_requests(self) -> int:
        """Return how many requests are live and may run: none while paused."""
        return len(self._requests) if self._pause_state == PauseState.UNPAUSED else 0

    def has_finished_requests(self) -> bool:
        """Tell whether a step is due that tells workers and clients of requests that ended."""
        return bool(self._finished_ids or self._refused)

    def get_request_counts(self) -> tuple[int, int]:
        """Return how many requests the workers know, and how many wait."""
        running = len(self._blocks_sent)
        return running, len(self._requests) - running

    def get_kv_cache_usage(self) -> float:
        """Return the fraction of the blocks that running requests hold."""
        return sum(self._blocks_sent.values()) / self.limits.max_kv_blocks

    def make_stats(self) -> SchedulerStats | None:
        """Return what vLLM logs and exports each step; None if it does not want it."""
        if not self._log_stats:
            return None
        running, waiting = self.get_request_counts()
        return SchedulerStats(
            num_running_reqs=running,
            num_waiting_reqs=waiting,
            kv_cache_usage=self.get_kv_cache_usage(),
        )

    def stats(self) -> dict[str, Any]:
        """Return every figure since the start; docs/reference/figures.md."""
        return self._engine.core.stats()

    @property
    def pause_state(self) -> PauseState:
        """Whether scheduling is paused."""
        return self._pause_state

    def set_pause_state(self, pause_state: PauseState) -> None:
        """Pause or go on; raise `MisuseError` if requests would have to be drained first."""
        if pause_state == PauseState.PAUSED_NEW and self._requests:
            raise MisuseError(
                f"pausing in mode 'wait' with {len(self._requests)} requests live is not "
                "supported: use mode 'keep' or 'abort'"
            )
        self._pause_state = pause_state

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Tell whether no request holds memory; nothing else does, for no prefix is kept."""
        if reset_running_requests and self._blocks_sent:
            raise MisuseError(
                f"{len(self._blocks_sent)} requests hold memory; preempting them all at once "
                "(pause mode 'keep' with clear_cache=True) is not supported: abort them"
            )
        return not self._blocks_sent

    def reset_encoder_cache(self) -> None:
        """Do nothing: models with an encoder are refused when the engine starts."""

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> None:
        """Return None: structured output is refused."""

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        """Raise `MisuseError`: speculative decoding is refused when the engine starts."""
        raise MisuseError("draft tokens arrived, but speculative decoding is not supported")

    def update_draft_token_ids_in_output(self, draft_token_ids: Any, scheduler_output: Any) -> None:
        """Raise `MisuseError`: speculative decoding is refused when the engine starts."""
        self.update_draft_token_ids(draft_token_ids)

    def shutdown(self) -> None:
        """Do nothing: the scheduler holds no resources outside of memory."""

    def _record(self, request: EngineRequest, event: EngineCoreEventType) -> None:
        if self._log_stats:
            request.record_event(event, time.monotonic())


def _only(sampled: list[int], sequence: ScheduledRequest) -> int | None:
    if len(sampled) > 1:
        raise ExecutorError(
            f"engine: {len(sampled)} tokens sampled for request {sequence.request_id!r}, not one"
        )
    return sampled[0] if sampled else None


def _output_of(
    request: EngineRequest, token: int, index: int, model_runner_output: Any
) -> EngineCoreOutput:
    """Return what the client hears of one token; `index` is the request's in the model's output."""
    logprobs = None
    if request.sampling_params.num_logprobs is not None and model_runner_output.logprobs:
        logprobs = model_runner_output.logprobs.slice_request(index, 1)
    request_id = request.request_id
    prompt_logprobs = model_runner_output.prompt_logprobs_dict.get(request_id)
    scored = model_runner_output.prompt_token_id_logprobs_dict.get(request_id)
    prefill = request.take_prefill_stats()
    if prefill is not None:
        prefill.set(request.num_prompt_tokens, 0, 0)
    return EngineCoreOutput(
        request_id,
        [token],
        new_logprobs=logprobs,
        new_prompt_logprobs_tensors=prompt_logprobs,
        prompt_token_id_logprobs=scored,
        finish_reason=request.get_finished_reason(),
        stop_reason=request.stop_reason,
        events=request.take_events(),
        prefill_stats=prefill,
        trace_headers=request.trace_headers,
        num_nans_in_logits=(model_runner_output.num_nans_in_logits or {}).get(request_id, 0),
    )
