"""A workload known in advance, outputs included, that can be offered at any rate."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from batchproof.sched.bound import KnownRequest
from batchproof.sched.errors import InputError
from batchproof.sched.prompts import PromptRing
from batchproof.sched.request import Request
from batchproof.sched.request_gen import Arrival
from batchproof.sched.simulation import Setup


class Planned(NamedTuple):
    """A request of a workload: small, so that it is cheap to hand to another process."""

    at_s: float
    user_id: str
    prompt_start: int
    """Where its prompt starts in the workload's ring."""
    prompt_len: int
    max_tokens: int
    output: int
    """Tokens that it will generate, on the simulated GPU that it was planned for."""
    request_id: str
    priority: int = 0
    deadline_after_s: float | None = None
    """Seconds from its arrival to its deadline: kept when it is offered at another rate."""
    max_queue_time_s: float | None = None

    @property
    def known(self) -> KnownRequest:
        """What the bound needs to know of it."""
        return KnownRequest(self.at_s, self.prompt_len, self.max_tokens, self.output)


@dataclass(frozen=True)
class KnownWorkload:
    """Requests in order of arrival, none of which is refused by the machine it is for."""

    name: str
    source: str
    requests: tuple[Planned, ...]
    refused: int
    """Requests left out because they would not fit even alone."""
    seed: int
    """Of the prompts, and of the simulated GPU."""
    eos_rate: float

    def arrivals(self) -> Iterator[Arrival]:
        """Yield new requests, to be run once."""
        ring = PromptRing(self.seed)
        for planned in self.requests:
            prompt = ring.prompt(planned.prompt_start, planned.prompt_len)
            after_s = planned.deadline_after_s
            request = Request(
                planned.user_id,
                prompt,
                planned.max_tokens,
                planned.request_id,
                priority=planned.priority,
                deadline_s=None if after_s is None else planned.at_s + after_s,
                max_queue_time_s=planned.max_queue_time_s,
            )
            yield Arrival(planned.at_s, request)

    @property
    def users(self) -> list[str]:
        """The users, sorted."""
        return sorted({planned.user_id for planned in self.requests})

    @property
    def has_times(self) -> bool:
        """Whether a request may expire, so that what is delivered depends on the policy."""
        times = ((planned.deadline_after_s, planned.max_queue_time_s) for planned in self.requests)
        return any(time is not None for both in times for time in both)

    @property
    def output_tokens(self) -> int:
        """Tokens that all requests generate together."""
        return sum(planned.output for planned in self.requests)

    def of(self, user_id: str) -> "KnownWorkload":
        """Return the workload of one user alone, arriving when it did."""
        return replace(self, requests=tuple(r for r in self.requests if r.user_id == user_id))

    def all_at_once(self) -> "KnownWorkload":
        """Return the workload with all requests there from the start."""
        return replace(self, requests=tuple(r._replace(at_s=0.0) for r in self.requests))

    def at_rate(self, rate: float) -> "KnownWorkload":
        """Return the workload with gaps stretched alike, so that `rate` requests come a second.

        The rate is that from the first arrival to the last. Raises `InputError`
        for a workload without gaps.
        """
        first_s, last_s = self.requests[0].at_s, self.requests[-1].at_s
        if first_s == last_s:
            raise InputError(
                f"{self.name}: all {len(self.requests)} requests arrive at the same moment, "
                "so that there is no rate to change; give a workload with more arrivals"
            )
        scale = (len(self.requests) - 1) / rate / (last_s - first_s)
        moved = (r._replace(at_s=round((r.at_s - first_s) * scale, 6)) for r in self.requests)
        return replace(self, requests=tuple(moved))


def known_workload(
    name: str, source: str, arrivals: Iterable[Arrival], setup: Setup
) -> KnownWorkload:
    """Return a workload as it will go on the machine of `setup`, whatever the policy.

    Its prompts are those of a ring of the set-up's seed. Raises `InputError` if
    no request is left that fits.
    """
    gpu, limits = setup.gpu(), setup.limits
    ring = PromptRing(setup.seed)
    planned: list[Planned] = []
    refused = 0
    for at_s, request in arrivals:
        start = ring.find(request.prompt)
        if start is None:
            raise InputError(f"{name}: request {request.request_id!r} has a prompt of another seed")
        length = len(request.prompt)
        if limits.blocks_at_peak(length, request.max_tokens) > limits.max_kv_blocks:
            refused += 1
            continue
        output = len(gpu.expected_output(request)) if setup.eos_rate else request.max_tokens
        planned.append(
            Planned(
                at_s,
                request.user_id,
                start,
                length,
                request.max_tokens,
                output,
                request.request_id,
                request.priority,
                None if request.deadline_s is None else request.deadline_s - at_s,
                request.max_queue_time_s,
            )
        )
    if not planned:
        raise InputError(
            f"{name}: is an empty workload: none of its {refused} requests fits even alone "
            f"in {limits.max_kv_blocks} blocks; --max-kv-blocks gives more"
        )
    return KnownWorkload(name, source, tuple(planned), refused, setup.seed, setup.eos_rate)
