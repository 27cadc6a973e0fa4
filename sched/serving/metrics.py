"""The figures of `/metrics`: an observer of the scheduler, under the names that the field uses.

The names, units and labels are those of vLLM's metrics
(https://docs.vllm.ai/en/latest/usage/metrics.html) with `batchproof_` before
them, so that dashboards need another prefix and no more. Times are of the
executor's clock: of the unpaced simulated GPU, virtual seconds.
"""

from collections.abc import Sequence as SequenceOf
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from batchproof.sched.batch import Batch
from batchproof.sched.config import Limits
from batchproof.sched.errors import QueueFullError, RequestError
from batchproof.sched.observer import SilentObserver
from batchproof.sched.request import Request, Sequence
from batchproof.sched.simulation import REFUSALS
from batchproof.spec.lifecycle import FinishReason

FINISHED_REASONS: Final[dict[FinishReason, str]] = {
    "eos": "stop",
    "length": "length",
    "cancelled": "abort",
    "expired": "abort",
}
"""Finish reason -> what OpenAI's API and vLLM's metrics call it."""

_SECONDS: Final = tuple(
    step * 10.0**power for power in (-3, -2, -1, 0, 1, 2) for step in (1, 2.5, 5)
)
_TOKENS: Final = tuple(2.0**power for power in range(14))


class _Kind(NamedTuple):
    """What a metric of this project looks like to the Prometheus client."""

    metric: Any
    describes: str
    options: dict[str, Any]


def _seconds(describes: str) -> _Kind:
    return _Kind(Histogram, f"{describes}, in seconds of the model's clock", {"buckets": _SECONDS})


def _tokens(describes: str) -> _Kind:
    return _Kind(Histogram, describes, {"buckets": _TOKENS})


METRICS: Final = {
    "cache_config": _Kind(Info, "The limits of the scheduler", {}),
    "num_requests_running": _Kind(Gauge, "Requests that hold KV blocks", {}),
    "num_requests_waiting": _Kind(Gauge, "Requests that wait for admission", {}),
    "kv_cache_usage_perc": _Kind(Gauge, "Fraction of the KV blocks in use; 1 is all", {}),
    "num_preemptions": _Kind(Counter, "Preemptions", {}),
    "prompt_tokens": _Kind(Counter, "Prompt tokens of requests with a first token", {}),
    "generation_tokens": _Kind(Counter, "Tokens generated", {}),
    "request_success": _Kind(
        Counter, "Requests that ended, by reason", {"labelnames": ("finished_reason",)}
    ),
    "requests_refused": _Kind(Counter, "Requests refused, by reason", {"labelnames": ("reason",)}),
    "failed_ticks": _Kind(Counter, "Ticks that failed, and changed nothing", {}),
    "iteration_tokens_total": _tokens("Tokens fed in one tick"),
    "request_prompt_tokens": _tokens("Prompt tokens of finished requests"),
    "request_generation_tokens": _tokens("Tokens generated for finished requests"),
    "time_to_first_token_seconds": _seconds("Submission to first token"),
    "inter_token_latency_seconds": _seconds("Gap between two tokens of a request"),
    "request_time_per_output_token_seconds": _seconds("Mean gap of a finished request"),
    "request_queue_time_seconds": _seconds("Time waiting, of finished requests"),
    "e2e_request_latency_seconds": _seconds("Submission to done, of finished requests"),
}
"""Name, without the prefix -> what it is. The client adds `_total` to counters."""


class ServingMetrics(SilentObserver):
    """Hears of everything that happens in a scheduler: an `Observer`.

    What it keeps is bounded by the live requests.
    """

    def __init__(self, limits: Limits, model: str) -> None:
        self.registry = CollectorRegistry()
        self._pool = limits.max_kv_blocks
        self._live: dict[str, Sequence] = {}
        self._resident: set[str] = set()
        self._token_counts: dict[str, int] = {}
        self._token_times: dict[str, float] = {}
        self._metrics = {name: self._made(name, kind, model) for name, kind in METRICS.items()}
        self._metrics["num_requests_running"].set_function(lambda: self.running)
        self._metrics["num_requests_waiting"].set_function(lambda: self.waiting)
        self._metrics["kv_cache_usage_perc"].set_function(lambda: self.blocks_held / self._pool)
        self._metrics["cache_config"].info(
            {"block_size": str(limits.block_size), "num_gpu_blocks": str(limits.max_kv_blocks)}
        )

    @property
    def waiting(self) -> int:
        """Requests in `waiting`."""
        return len(self._live) - len(self._resident)

    @property
    def running(self) -> int:
        """Requests that hold blocks, as of the last completed tick."""
        return len(self._resident)

    @property
    def blocks_held(self) -> int:
        """Blocks held now, those of a batch that is out included."""
        return sum(sequence.block_count for sequence in self._live.values())

    def exposition(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self.registry)

    def queue_was_full(self, requests: int) -> None:
        """Count requests that were turned away because too many wait."""
        self._metrics["requests_refused"].labels(reason=REFUSALS[QueueFullError]).inc(requests)

    def tick_failed(self) -> None:
        """Count a tick that raised."""
        self._metrics["failed_ticks"].inc()

    def submitted(self, sequence: Sequence) -> None:
        """Hear of an accepted request."""
        self._live[sequence.request_id] = sequence
        self._token_counts[sequence.request_id] = 0

    def refused(self, request: Request, error: RequestError) -> None:
        """Hear of a refused request, and why."""
        self._metrics["requests_refused"].labels(reason=REFUSALS[type(error)]).inc()

    def cancelled(self, sequence: Sequence, now: float) -> None:
        """Hear of a cancelled request."""
        self._forget(sequence, "cancelled")

    def expired(self, sequence: Sequence, now: float) -> None:
        """Hear of a request that has expired."""
        self._forget(sequence, "expired")

    def ticked(
        self, batch: Batch, tokens: SequenceOf[int], ended: SequenceOf[Sequence], now: float
    ) -> None:
        """Hear of a completed tick."""
        self._metrics["iteration_tokens_total"].observe(batch.tokens)
        self._metrics["num_preemptions"].inc(len(batch.preempted))
        self._resident.difference_update(sequence.request_id for sequence in batch.preempted)
        self._resident.update(sequence.request_id for sequence in batch.admitted)
        for sequence in batch:
            if len(sequence.generated) > self._token_counts[sequence.request_id]:
                self._yielded(sequence, now)
        for sequence in ended:
            self._finished(sequence, now)

    def _made(self, name: str, kind: _Kind, model: str) -> Any:
        """Return the metric of this name, its `model_name` filled in where that is the only one."""
        options = dict(kind.options)
        labels = options.pop("labelnames", ())
        metric = kind.metric(
            f"batchproof_{name}",
            kind.describes,
            ("model_name", *labels),
            registry=self.registry,
            **options,
        )
        return _Labelled(metric, model) if labels else metric.labels(model)

    def _yielded(self, sequence: Sequence, now: float) -> None:
        request_id = sequence.request_id
        self._token_counts[request_id] += 1
        self._metrics["generation_tokens"].inc()
        before = self._token_times.get(request_id)
        if before is None:
            self._metrics["prompt_tokens"].inc(sequence.prompt_len)
            self._metrics["time_to_first_token_seconds"].observe(now - sequence.submitted_at)
        else:
            self._metrics["inter_token_latency_seconds"].observe(now - before)
        self._token_times[request_id] = now

    def _finished(self, sequence: Sequence, now: float) -> None:
        generated, latency = len(sequence.generated), now - sequence.submitted_at
        observed = {
            "request_prompt_tokens": sequence.prompt_len,
            "request_generation_tokens": generated,
            "request_queue_time_seconds": sequence.queued_s,
            "e2e_request_latency_seconds": latency,
        }
        if sequence.first_token_at is not None and generated > 1:
            mean_gap = (now - sequence.first_token_at) / (generated - 1)
            observed["request_time_per_output_token_seconds"] = mean_gap
        for name, value in observed.items():
            self._metrics[name].observe(value)
        self._forget(sequence, sequence.request.finish_reason or "cancelled")

    def _forget(self, sequence: Sequence, reason: FinishReason) -> None:
        request_id = sequence.request_id
        self._metrics["request_success"].labels(finished_reason=FINISHED_REASONS[reason]).inc()
        del self._live[request_id], self._token_counts[request_id]
        self._token_times.pop(request_id, None)
        self._resident.discard(request_id)


class _Labelled:
    """A metric with one more label than the model's name."""

    def __init__(self, metric: Any, model: str) -> None:
        self._metric = metric
        self._model = model

    def labels(self, **labels: str) -> Any:
        """Return the metric with these labels, and the model's name."""
        return self._metric.labels(model_name=self._model, **labels)
