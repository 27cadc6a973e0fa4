"""The least time in which any scheduler could serve a workload: what throughput is a fraction of.

Whatever the policy, each request costs at least the tokens that it feeds, the
ticks that it takes part in, the blocks that it holds in them and the context
that it reads; preemption only adds to these. From their sums follows how many
ticks there must be and, with a latency model, how long they take
(docs/explanation/limit.md).
"""

from collections.abc import Iterable
from typing import NamedTuple

from batchproof.sched.config import Limits
from batchproof.sched.latency import LatencyModel


class KnownRequest(NamedTuple):
    """A request whose output is known beforehand; lengths are in tokens."""

    at_s: float
    prompt: int
    max_tokens: int
    output: int


class Work(NamedTuple):
    """The least that requests cost, whoever schedules them."""

    tokens: int = 0
    """Tokens fed."""
    sequences: int = 0
    """Scheduled sequences, added up over all batches."""
    block_ticks: int = 0
    """Blocks held, added up over all ticks."""
    context: int = 0
    """Tokens of context read, added up over all batches."""
    ticks_of_one: int = 0
    """The most ticks that one of the requests takes part in."""

    def and_also(self, other: "Work") -> "Work":
        """Return the work of both."""
        return Work(
            self.tokens + other.tokens,
            self.sequences + other.sequences,
            self.block_ticks + other.block_ticks,
            self.context + other.context,
            max(self.ticks_of_one, other.ticks_of_one),
        )


def least_work(limits: Limits, request: KnownRequest) -> Work:
    """Return the least that one request costs.

    Its last chunk yields the first output token (rule 2), its last token is
    never fed, and it holds the blocks of rule 3 in every tick that it takes part in.
    """
    prompt, output = request.prompt, request.output
    chunk = min(limits.chunk_size, limits.token_budget)
    chunks = -(-prompt // chunk)
    ticks = chunks + output - 1
    # The j-th chunk from the end can end no earlier than j chunks before the prompt does.
    read_by_chunks = chunks * prompt - chunk * chunks * (chunks - 1) // 2
    read_by_decodes = (output - 1) * prompt + output * (output - 1) // 2
    held_by_chunks = chunks * limits.blocks_at_admission(prompt, 0, request.max_tokens)
    return Work(
        tokens=prompt + output - 1,
        sequences=ticks,
        block_ticks=held_by_chunks + _blocks_of_decodes(limits, prompt, output),
        context=read_by_chunks + read_by_decodes,
        ticks_of_one=ticks,
    )


def _blocks_of_decodes(limits: Limits, prompt: int, output: int) -> int:
    """Return the blocks held, added up over the decodes: the i-th has `prompt` + i tokens."""
    return _blocks_up_to(limits, prompt + output - 1) - _blocks_up_to(limits, prompt)


def _blocks_up_to(limits: Limits, tokens: int) -> int:
    """Return the sum of `blocks_for(n)` for n from 1 to `tokens`."""
    full, rest = divmod(tokens, limits.block_size)
    return limits.block_size * full * (full + 1) // 2 + rest * (full + 1)


def least_ticks(limits: Limits, work: Work) -> int:
    """Return the least number of ticks: those of one request, or until a limit is used up."""
    return max(
        work.ticks_of_one,
        -(-work.tokens // limits.token_budget),
        -(-work.sequences // limits.max_batch_size),
        -(-work.block_ticks // limits.max_kv_blocks),
    )


def least_seconds(limits: Limits, latency: LatencyModel, work: Work) -> float:
    """Return the least time in seconds that the work takes once all of it is there."""
    ticks = least_ticks(limits, work)
    linear_ms = max(
        latency.floor_ms * ticks,
        latency.base_ms * ticks + latency.token_ms * work.tokens,
    )
    per_batch_ms = latency.sequence_ms * work.sequences + latency.context_ms * work.context
    return (latency.fixed_ms * ticks + linear_ms + per_batch_ms) / 1e3


def earliest_end(limits: Limits, latency: LatencyModel, requests: Iterable[KnownRequest]) -> float:
    """Return the earliest second at which all requests can be done; 0 if there are none.

    Those that arrive from any moment on cannot be begun before it, so that each
    arrival gives a bound; the latest of all counts.
    """
    work = Work()
    end_s = 0.0
    for request in sorted(requests, key=lambda request: request.at_s, reverse=True):
        work = work.and_also(least_work(limits, request))
        end_s = max(end_s, request.at_s + least_seconds(limits, latency, work))
    return end_s
