"""What is counted while a scheduler runs, and the figures made from it (rule 10).

Everything here is bounded by constants and by the number of live requests, so
that a scheduler may run for months.
"""

from array import array
from collections.abc import Mapping
from math import nan
from typing import Any, Final, cast

from batchproof.sched.request import Sequence

EXACT_SAMPLES_MAX = 10_000
"""Quantiles are exact up to this many samples; a sketch serves from there on."""
SKETCH_RELATIVE_ERROR = 0.01
"""The most by which a sketched quantile may be off, relative to its value."""
USERS_MAX = 1_024
"""Users told apart; beyond it, those without live requests are added up as `OTHERS`."""
USER_SAMPLES_MAX = 2_048
"""As EXACT_SAMPLES_MAX, for the figures of one user."""
OTHERS = "(others)"


class Quantiles:
    """A weighted distribution: exact while short, then DDSketch (Masson et al., VLDB 2019)."""

    __slots__ = ("_exact_max", "_sketch", "_values", "_weights", "count", "max", "total")

    def __init__(self, exact_max: int = EXACT_SAMPLES_MAX) -> None:
        self._exact_max = exact_max
        self._values = array("d")
        self._weights = array("q")
        self._sketch: Any = None
        self.count = 0
        self.total = 0.0
        self.max = nan

    def add(self, value: float, weight: int = 1) -> None:
        """Add `value` as often as `weight` says."""
        self.count += weight
        self.total += value * weight
        if not value <= self.max:
            self.max = value
        self._values.append(value)
        self._weights.append(weight)
        if len(self._values) > self._exact_max:
            self._flush()

    def _flush(self) -> None:
        """Move the samples into the sketch; from here on they are a buffer."""
        if self._sketch is None:
            self._sketch = _new_sketch()
        for value, weight in zip(self._values, self._weights, strict=True):
            self._sketch.add(value, weight)
        del self._values[:], self._weights[:]

    def quantile(self, q: float) -> float:
        """Return the smallest value with a fraction `q` of the weight at or below it; or NaN."""
        return self.quantiles((q,))[0]

    def quantiles(self, fractions: tuple[float, ...]) -> list[float]:
        """Return the quantile of each of these fractions, which ascend."""
        if self._sketch is not None:
            self._flush()
            return [float(self._sketch.get_quantile_value(q)) for q in fractions]
        if not self.count:
            return [nan] * len(fractions)
        samples = iter(sorted(zip(self._values, self._weights, strict=True)))
        value, seen = next(samples)
        found: list[float] = []
        for q in fractions:
            while seen < q * self.count:
                value, weight = next(samples)
                seen += weight
            found.append(value)
        return found

    @property
    def mean(self) -> float:
        """The exact mean; NaN if empty."""
        return self.total / self.count if self.count else nan

    def summary(self) -> dict[str, float]:
        """Return p50, p90, p99, mean and max; NaN where nothing was added."""
        p50, p90, p99 = self.quantiles((0.5, 0.9, 0.99))
        return {"p50": p50, "p90": p90, "p99": p99, "mean": self.mean, "max": self.max}

    def state(self) -> dict[str, Any]:
        """Return everything, as plain data; `restore` is its inverse."""
        return {
            "values": list(self._values),
            "weights": list(self._weights),
            "bins": None if self._sketch is None else _bins(self._sketch),
            "count": self.count,
            "total": self.total,
            "max": None if self.count == 0 else self.max,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become the distribution that `state` was taken of."""
        self._values = array("d", state["values"])
        self._weights = array("q", state["weights"])
        self._sketch = None
        if state["bins"] is not None:
            self._sketch = _new_sketch()
            for value, weight in state["bins"]:
                self._sketch.add(value, weight)
        self.count = state["count"]
        self.total = state["total"]
        self.max = nan if state["max"] is None else state["max"]

    def merge(self, other: "Quantiles") -> None:
        """Add all of `other`."""
        if other._sketch is not None:
            other._flush()
            self._flush()
            self._sketch.merge(other._sketch)
        self.count += other.count
        self.total += other.total
        if other.count and not other.max <= self.max:
            self.max = other.max
        self._values += other._values
        self._weights += other._weights
        if len(self._values) > self._exact_max:
            self._flush()


def _new_sketch() -> Any:
    from ddsketch import LogCollapsingLowestDenseDDSketch

    return LogCollapsingLowestDenseDDSketch(SKETCH_RELATIVE_ERROR)


def _bins(sketch: Any) -> list[tuple[float, float]]:
    """Return the sketch as values and weights that make the same sketch when added again.

    The library has no public way to read its bins but one that needs protobuf.
    """
    store, value_of = sketch._store, sketch._mapping.value
    bins = [(value_of(i + store.offset), n) for i, n in enumerate(store.bins) if n]
    return [(0.0, sketch._zero_count), *bins] if sketch._zero_count else bins


REQUEST_ENDS: Final = ("finished", "cancelled", "expired", "refused")
"""What may become of a request; those that are none of it are live."""


class UserMetrics:
    """The figures of one user."""

    COUNTS = (
        "submitted",
        "finished",
        "cancelled",
        "expired",
        "refused",
        "live",
        "output_tokens",
        "preemptions",
    )
    __slots__ = (*COUNTS, "latency", "ttft")

    def __init__(self) -> None:
        self.submitted = self.finished = self.live = 0
        self.cancelled = self.expired = self.refused = 0
        self.output_tokens = self.preemptions = 0
        self.ttft = Quantiles(USER_SAMPLES_MAX)
        self.latency = Quantiles(USER_SAMPLES_MAX)

    def summary(self) -> dict[str, Any]:
        """Return the figures."""
        counts = {name: getattr(self, name) for name in self.COUNTS}
        return {**counts, "ttft_s": self.ttft.summary(), "latency_s": self.latency.summary()}

    def state(self) -> dict[str, Any]:
        """Return everything, as plain data; `restore` is its inverse."""
        counts = {name: getattr(self, name) for name in self.COUNTS}
        return {**counts, "ttft": self.ttft.state(), "latency": self.latency.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` was taken of."""
        for name in self.COUNTS:
            setattr(self, name, state[name])
        self.ttft.restore(state["ttft"])
        self.latency.restore(state["latency"])

    def merge(self, other: "UserMetrics") -> None:
        """Add all of `other`."""
        for name in self.COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.ttft.merge(other.ttft)
        self.latency.merge(other.latency)


class Metrics:
    """All figures of one scheduler."""

    COUNTERS = (
        "ticks",
        "busy_ticks",
        "preemptions",
        "output_tokens",
        "fed_tokens",
        "recomputed_tokens",
        "sequences",
        "sequences_max",
        "block_ticks",
        "blocks_max",
    )
    QUANTILES = ("ttft", "tbt", "latency", "queue_time")
    __slots__ = (
        *COUNTERS,
        *QUANTILES,
        "_last_tick_at",
        "_max_kv_blocks",
        "_started_at",
        "finish_reasons",
        "users",
    )

    def __init__(self, max_kv_blocks: int) -> None:
        self._max_kv_blocks = max_kv_blocks
        self._started_at = nan
        self._last_tick_at = nan
        self.ticks = self.busy_ticks = self.preemptions = 0
        self.output_tokens = self.fed_tokens = self.recomputed_tokens = 0
        self.sequences = self.sequences_max = self.block_ticks = self.blocks_max = 0
        self.finish_reasons = {"eos": 0, "length": 0, "cancelled": 0, "expired": 0}
        self.ttft, self.tbt, self.latency, self.queue_time = (Quantiles() for _ in range(4))
        self.users: dict[str, UserMetrics] = {}

    def submitted(self, sequence: Sequence) -> None:
        """Count an accepted request."""
        if not self._started_at <= sequence.submitted_at:
            self._started_at = sequence.submitted_at
        user = self._user(sequence.user_id)
        user.submitted += 1
        user.live += 1

    def refused(self, user_id: object) -> None:
        """Count a refused request; a user id that is not a string counts as OTHERS."""
        user = self._user(user_id if isinstance(user_id, str) else OTHERS)
        user.submitted += 1
        user.refused += 1

    def ended(self, sequence: Sequence, now: float) -> None:
        """Count a request that is done; a cancelled or expired one enters no latency (rule 10)."""
        request = sequence.request
        self.finish_reasons[request.finish_reason or "cancelled"] += 1
        user = self._user(sequence.user_id)
        user.live -= 1
        user.output_tokens += len(request.generated)
        user.preemptions += sequence.preemptions
        if request.finish_reason == "cancelled":
            user.cancelled += 1
            return
        if request.finish_reason == "expired":
            user.expired += 1
            return
        user.finished += 1
        latency = now - sequence.submitted_at
        self.latency.add(latency)
        user.latency.add(latency)
        self.queue_time.add(sequence.queued_s)
        first_token_at = cast(float, sequence.first_token_at)  # only tokens end a request
        ttft = first_token_at - sequence.submitted_at
        self.ttft.add(ttft)
        user.ttft.add(ttft)

    def ticked(self, sequences: int, tokens: int, yielded: int, blocks: int, now: float) -> None:
        """Count a tick: its sequences, tokens fed, output tokens, blocks held during it."""
        self._last_tick_at = now
        self.ticks += 1
        self.busy_ticks += sequences > 0
        self.sequences += sequences
        self.fed_tokens += tokens
        self.output_tokens += yielded
        self.block_ticks += blocks
        if sequences > self.sequences_max:
            self.sequences_max = sequences
        if blocks > self.blocks_max:
            self.blocks_max = blocks

    def headline(self) -> dict[str, float]:
        """Return the four figures of `Scheduler.metrics`."""
        elapsed = self.elapsed_s
        return {
            "throughput_tokens_per_sec": self.output_tokens / elapsed if elapsed > 0 else 0.0,
            "avg_latency_s": self.latency.mean,
            "p99_latency_s": self.latency.quantile(0.99),
            "gpu_utilization": self.busy_ticks / self.ticks if self.ticks else 0.0,
        }

    @property
    def elapsed_s(self) -> float:
        """Seconds from the first submission to the end of the last tick; 0 before either."""
        elapsed = self._last_tick_at - self._started_at
        return elapsed if elapsed > 0 else 0.0

    def summary(self) -> dict[str, Any]:
        """Return all figures, JSON-ready but for NaN, where nothing has happened yet."""
        users = self.users.values()
        counts = {name: sum(getattr(user, name) for user in users) for name in UserMetrics.COUNTS}
        ticks = self.ticks or nan
        return {
            "requests": {name: counts[name] for name in ("submitted", *REQUEST_ENDS, "live")},
            "finish_reasons": dict(self.finish_reasons),
            "metrics": self.headline(),
            "elapsed_s": self.elapsed_s,
            "ticks": self.ticks,
            "ttft_s": self.ttft.summary(),
            "tbt_s": self.tbt.summary(),
            "latency_s": self.latency.summary(),
            "queue_time_s": self.queue_time.summary(),
            "tokens": {
                "output": self.output_tokens,
                "fed": self.fed_tokens,
                "recomputed": self.recomputed_tokens,
            },
            "preemptions": self.preemptions,
            "batch": {
                "sequences_mean": self.sequences / ticks,
                "sequences_max": self.sequences_max,
            },
            "kv": {
                "blocks": self._max_kv_blocks,
                "blocks_mean": self.block_ticks / ticks,
                "blocks_max": self.blocks_max,
            },
            "users": {name: user.summary() for name, user in sorted(self.users.items())},
        }

    def state(self) -> dict[str, Any]:
        """Return everything, as plain data; `restore` is its inverse."""
        times = (self._started_at, self._last_tick_at)
        return {
            "times": [None if time != time else time for time in times],
            "counters": {name: getattr(self, name) for name in self.COUNTERS},
            "finish_reasons": dict(self.finish_reasons),
            "quantiles": {name: getattr(self, name).state() for name in self.QUANTILES},
            "users": {name: user.state() for name, user in self.users.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Become what `state` was taken of."""
        times = (nan if time is None else time for time in state["times"])
        self._started_at, self._last_tick_at = times
        for name in self.COUNTERS:
            setattr(self, name, state["counters"][name])
        self.finish_reasons = dict(state["finish_reasons"])
        for name in self.QUANTILES:
            getattr(self, name).restore(state["quantiles"][name])
        for name, user in state["users"].items():
            self.users[name] = UserMetrics()
            self.users[name].restore(user)

    def _user(self, user_id: str) -> UserMetrics:
        user = self.users.get(user_id)
        if user is None:
            if len(self.users) >= USERS_MAX:
                self._forget_a_user()
            user = self.users[user_id] = UserMetrics()
        return user

    def _forget_a_user(self) -> None:
        """Add the user known longest of those without live requests to OTHERS."""
        idle = (name for name, user in self.users.items() if not user.live and name != OTHERS)
        gone = next(idle, None)
        if gone is not None:
            self.users.setdefault(OTHERS, UserMetrics()).merge(self.users.pop(gone))
