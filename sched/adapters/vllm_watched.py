"""vLLM's own schedulers, watched: every step held against the rules while they run.

`watched(SchedulerClass)` is a class to hand to `LLM(scheduler_cls=...)`. What it
schedules is not changed; a `Monitor` is told of it in batchproof's words.
"""

# pyright: reportMissingImports=false

from collections.abc import Iterable
from typing import Any, Final

from batchproof.sched.adapters.engine import STOPPED
from batchproof.sched.adapters.vllm import ENDED_BY, user_of
from batchproof.sched.config import Limits
from batchproof.sched.monitor import Monitor
from batchproof.sched.monitor_facts import TickFacts, Violation
from batchproof.spec.lifecycle import FinishReason

NOT_VLLMS_RULES: Final = {
    "blocks-cover-context": "vLLM takes the blocks of a prompt chunk by chunk, not at admission",
}
"""Properties that vLLM does not set out to have, and why."""


class Watch:
    """Tells a monitor of each step of a vLLM scheduler."""

    def __init__(self, limits: Limits) -> None:
        self.monitor = Monitor(limits, on_violation="record")
        self.preemptions = 0
        self.tokens_fed = 0
        self._decoding: set[str] = set()
        self._facts = TickFacts()
        self._fed: list[tuple[str, int, int]] = []

    @property
    def violations(self) -> list[Violation]:
        """What was violated of the properties that vLLM sets out to have, in order."""
        return [found for found in self.monitor.violations if found.property not in NOT_VLLMS_RULES]

    def scheduled(self, output: Any) -> None:
        """Hear of a `SchedulerOutput`, before the model runs it."""
        preempted = output.preempted_req_ids or ()
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
        # The output lists new requests before resumed ones; the order of scheduling is kept here.
        admit = [(i, taken[i]) for i in output.num_scheduled_tokens if i in taken]
        self._decoding.difference_update(preempted)
        self._facts = TickFacts(preempt=sorted(preempted), grow=grow, admit=admit)
        self._fed = [(i, positions[i], tokens) for i, tokens in output.num_scheduled_tokens.items()]
        self.preemptions += len(preempted)
        self.tokens_fed += output.total_num_scheduled_tokens

    def ran(self, tokens: dict[str, int], ended: dict[str, FinishReason], free: int) -> None:
        """Hear what the step yielded, what ended with it, and how many blocks are free then."""
        decode, chunks = [], []
        for request_id, position, fed in self._fed:
            token = tokens.get(request_id)
            if token is not None and ended.get(request_id) == "eos":
                token = STOPPED
            if request_id in self._decoding and fed == 1 and token is not None:
                decode.append((request_id, token))
            else:
                chunks.append((request_id, position, fed, token))
            if token is not None:
                self._decoding.add(request_id)
        self._decoding.difference_update(ended)
        self.monitor.ticked(
            self._facts._replace(decode=decode, chunks=chunks, ended=list(ended.items()), free=free)
        )


def watched(scheduler_class: Any) -> Any:
    """Return a subclass of a scheduler of vLLM that is watched: its `watch` says what was seen.

    Prefix caching, asynchronous scheduling and speculative decoding must be off.
    """

    class Watched(scheduler_class):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            config = self.scheduler_config
            self.watch = Watch(
                Limits(
                    max_kv_blocks=self.kv_cache_config.num_blocks - 1,
                    block_size=self.block_size,
                    chunk_size=self.max_num_scheduled_tokens,
                    token_budget=self.max_num_scheduled_tokens,
                    max_batch_size=config.max_num_seqs,
                    eos_token=STOPPED,
                )
            )

        def add_request(self, request: Any) -> None:
            super().add_request(request)
            room = self.max_model_len - request.num_prompt_tokens
            self.watch.monitor.submitted(
                request.request_id,
                user_of(request),
                request.num_prompt_tokens,
                max(1, min(request.max_tokens, room)),
            )

        def finish_requests(
            self, request_ids: str | Iterable[str] | None, finished_status: Any
        ) -> Any:
            ended = super().finish_requests(request_ids, finished_status)
            for request in ended:
                self.watch.monitor.cancelled(request.request_id)
            return ended

        def schedule(self, throttle_prefills: bool = False) -> Any:
            output = super().schedule(throttle_prefills)
            self.watch.scheduled(output)
            return output

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            in_batch = {i: self.requests[i] for i in scheduler_output.num_scheduled_tokens}
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

    return Watched


def _blocks(block_ids: Any) -> list[int]:
    """Return batchproof's numbers of the blocks: vLLM's block 0 is its null block."""
    (of_the_only_group,) = block_ids
    return [block - 1 for block in of_the_only_group]
