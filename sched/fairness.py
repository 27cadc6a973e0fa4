"""How much slower a user is served in a crowd than alone: workloads, runs, ratios.

A run here is of lengths and times only: the executor yields the same token for
ever and keeps the time of a latency model.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from math import ceil
from random import Random
from statistics import median
from typing import Final, NamedTuple

from batchproof.sched.batch import Batch
from batchproof.sched.config import Limits
from batchproof.sched.errors import RequestError
from batchproof.sched.executor import ScheduledSequence
from batchproof.sched.latency import LatencyModel, latency_model
from batchproof.sched.observer import SilentObserver
from batchproof.sched.policy.protocol import Policy
from batchproof.sched.request import Request, Sequence
from batchproof.sched.scheduler import Scheduler
from batchproof.spec.lifecycle import WAITING

HEAVY: Final = "A"
LIGHT: Final = "B"
HEAVY_REQUESTS: Final = 100
LIGHT_REQUESTS: Final = 5


class Job(NamedTuple):
    """A request by its lengths, and when it arrives."""

    at_s: float
    user: str
    prompt: int
    output: int


@dataclass(frozen=True)
class Workload:
    """Jobs in order of arrival, and the machine that they come to."""

    jobs: tuple[Job, ...]
    latency: LatencyModel
    limits: Limits = field(default_factory=Limits)
    light_when_full: bool = False
    """Whether the light user's times count from the tick that leaves no memory to admit into."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """User -> weight, where it is not 1."""

    def of(self, user: str) -> "Workload":
        """Return the workload of one user alone."""
        jobs = tuple(job for job in self.jobs if job.user == user)
        return Workload(jobs, self.latency, self.limits, weights=self.weights)

    @property
    def users(self) -> list[str]:
        """The users, in order of arrival."""
        return list(dict.fromkeys(job.user for job in self.jobs))

    def prompt_blocks(self, user: str) -> int:
        """Return the blocks that all prompts of a user take together."""
        return sum(self.limits.blocks_for(job.prompt + 1) for job in self.jobs if job.user == user)


@dataclass
class Outcome:
    """What a run came to."""

    ttft_s: dict[str, list[float]]
    latency_s: dict[str, list[float]]
    throughput: float
    """Output tokens a second, from the first submission to the end of the last tick."""
    preemptions: int
    ticks: int


class Clock:
    """An executor that yields the token 1 for ever, in the time of a latency model."""

    def __init__(self, latency: LatencyModel) -> None:
        self._latency = latency
        self._now = 0.0

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def wait_until(self, seconds: float) -> None:
        """Let virtual time pass until `seconds`, if that is later than now."""
        self._now = max(self._now, seconds)

    def forward(self, batch: SequenceOf[ScheduledSequence]) -> list[int]:
        """Return one token each, and let the batch's time pass."""
        fed = context = 0
        for sequence in batch:
            tokens = len(sequence.tokens)
            fed += tokens
            context += sequence.position + tokens
        self._now += self._latency.seconds(fed, len(batch), context)
        return [1] * len(batch)


class Recorder(SilentObserver):
    """An observer that keeps when each user's requests got their first token and ended."""

    def __init__(self, max_kv_blocks: int) -> None:
        self._max_kv_blocks = max_kv_blocks
        self._live: dict[Sequence, None] = {}
        self.ttft_s: dict[str, list[float]] = {}
        self.latency_s: dict[str, list[float]] = {}

    @property
    def memory_is_full(self) -> bool:
        """Whether less than a 32nd of the blocks is free."""
        free = self._max_kv_blocks - sum(sequence.block_count for sequence in self._live)
        return free * 32 < self._max_kv_blocks

    def submitted(self, sequence: Sequence) -> None:
        """Hear of an accepted request."""
        self._live[sequence] = None

    def refused(self, request: Request, error: RequestError) -> None:
        """Pass on the refusal of a request: a workload of this file has none."""
        raise error

    def cancelled(self, sequence: Sequence, now: float) -> None:
        """Hear of a cancelled request."""
        del self._live[sequence]

    def expired(self, sequence: Sequence, now: float) -> None:
        """Hear of a request that has expired."""
        del self._live[sequence]

    def ticked(
        self, batch: Batch, tokens: SequenceOf[int], ended: SequenceOf[Sequence], now: float
    ) -> None:
        """Keep the times of the requests that ended."""
        for sequence in ended:
            del self._live[sequence]
            first = sequence.first_token_at or now
            self.ttft_s.setdefault(sequence.user_id, []).append(first - sequence.submitted_at)
            self.latency_s.setdefault(sequence.user_id, []).append(now - sequence.submitted_at)


def run(workload: Workload, policy: str | Policy, *, wall_clock: bool = False) -> Outcome:
    """Run a workload to its end.

    A request that arrives while a tick runs counts from the end of that tick or,
    by the `wall_clock`, from its arrival.
    """
    clock = Clock(workload.latency)
    recorder = Recorder(workload.limits.max_kv_blocks)
    sched = Scheduler(workload.limits, policy, clock, observer=recorder, weights=workload.weights)
    pending = deque(workload.jobs)
    held_back: list[Job] = []
    if workload.light_when_full:
        pending = deque(job for job in workload.jobs if job.user != LIGHT)
        held_back = [job for job in workload.jobs if job.user == LIGHT]
    submitted = 0
    while pending or held_back or sched.has_active():
        if held_back and (recorder.memory_is_full or not (pending or sched.has_active())):
            late = [job._replace(at_s=clock.now() + job.at_s) for job in held_back]
            pending = deque(sorted((*pending, *late), key=lambda job: job.at_s))
            held_back = []
        if not sched.has_active():
            clock.wait_until(pending[0].at_s)
        while pending and pending[0].at_s <= clock.now():
            job = pending.popleft()
            request = Request(job.user, (1,) * job.prompt, job.output, str(submitted))
            sched.submit(request, submitted_at=job.at_s if wall_clock else None)
            submitted += 1
        sched.tick()
    stats = sched.stats()
    return Outcome(
        recorder.ttft_s,
        recorder.latency_s,
        stats["metrics"]["throughput_tokens_per_sec"],
        stats["preemptions"],
        stats["ticks"],
    )


def tokens_while_all_wait(workload: Workload, policy: str) -> dict[str, int]:
    """Return the output tokens that users get until one of them has nothing waiting.

    All requests are there from the start: users who want more than there is.
    """
    clock = Clock(workload.latency)
    sched = Scheduler(workload.limits, policy, clock, weights=workload.weights)
    requests = [
        Request(job.user, (1,) * job.prompt, job.output, str(number))
        for number, job in enumerate(workload.jobs)
    ]
    for request in requests:
        sched.submit(request)
    while len({r.user_id for r in requests if r.phase == WAITING}) == len(workload.users):
        sched.tick()
    tokens = dict.fromkeys(workload.users, 0)
    for request in requests:
        tokens[request.user_id] += len(request.generated)
    return tokens


def ttft_ratio(
    workload: Workload,
    policy: str,
    together: Outcome,
    user: str = LIGHT,
    *,
    wall_clock: bool = False,
) -> float:
    """Return a user's median TTFT in the run `together`, over that of a run of it alone."""
    alone = run(workload.of(user), policy, wall_clock=wall_clock)
    return median(together.ttft_s[user]) / median(alone.ttft_s[user])


def quantile(values: Iterable[float], fraction: float) -> float:
    """Return the smallest value with `fraction` of them at or below it."""
    ordered = sorted(values)
    return ordered[max(ceil(fraction * len(ordered)) - 1, 0)]


class Lengths(NamedTuple):
    """Uniform lengths in tokens, both ends included."""

    prompt: tuple[int, int]
    output: tuple[int, int]


class Scenario(NamedTuple):
    """Two users within one second: 100 requests of A and 5 of B."""

    name: str
    heavy_at: tuple[float, float]
    """Between which seconds A's requests arrive."""
    light_at: tuple[float, float]
    heavy: Lengths
    light: Lengths
    light_when_full: bool = False


_CHAT: Final = Lengths((32, 512), (32, 256))
_LONG: Final = Lengths((512, 1536), (128, 512))
_HALF_OF_MEMORY: Final = Lengths((256, 384), (128, 512))
"""Five prompts of these take at most half of the memory: more is not light."""
_SHORT: Final = Lengths((16, 64), (16, 64))

SCENARIOS: Final = (
    Scenario("A first", (0.0, 0.5), (0.5, 1.0), _CHAT, _CHAT),
    Scenario("mixed", (0.0, 1.0), (0.0, 1.0), _CHAT, _CHAT),
    Scenario("A holds all memory", (0.0, 0.0), (0.0, 0.5), _CHAT, _CHAT, light_when_full=True),
    Scenario("A long, B short", (0.0, 0.5), (0.5, 1.0), _LONG, _SHORT),
    Scenario("A short, B long", (0.0, 0.5), (0.5, 1.0), _SHORT, _HALF_OF_MEMORY),
)
"""The course's fairness test, and harder."""

MODELS: Final = (
    latency_model("linear"),
    LatencyModel("linear 1+1", fixed_ms=1.0, sequence_ms=1.0),
    latency_model("a100-llama3-8b"),
)
"""The latency models that the scenarios are run with."""


def two_users(scenario: Scenario, latency: LatencyModel, seed: int) -> Workload:
    """Return a scenario's workload."""
    rng = Random(seed)
    jobs = [
        *_jobs(rng, HEAVY, HEAVY_REQUESTS, scenario.heavy_at, scenario.heavy),
        *_jobs(rng, LIGHT, LIGHT_REQUESTS, scenario.light_at, scenario.light),
    ]
    return Workload(_in_order(jobs), latency, light_when_full=scenario.light_when_full)


def random_trial(seed: int) -> Workload:
    """Return one of endlessly many trials: constants, budgets, lengths and arrivals at random.

    B's prompts may take more than the memory that any light user can be promised.
    """
    rng = Random(1_000_003 * seed + 17)
    latency = LatencyModel(
        f"trial {seed}",
        fixed_ms=rng.uniform(0.5, 10),
        floor_ms=rng.choice((0.0, rng.uniform(0, 15))),
        token_ms=rng.choice((0.0, rng.uniform(0, 0.1))),
        sequence_ms=rng.choice((0.0, rng.uniform(0, 2))),
        context_ms=rng.choice((0.0, rng.uniform(0, 1e-3))),
    )
    limits = Limits(token_budget=rng.choice((128, 256, 512, 1024, 2048)))
    heavy, light = (
        Lengths((16, rng.choice((64, 256, 1024, 2048))), (8, rng.choice((32, 128, 512))))
        for _ in range(2)
    )
    heavy_ends, light_starts = rng.choice(((0.0, 0.0), (0.5, 0.5), (1.0, 0.0)))
    jobs = [
        *_jobs(rng, HEAVY, HEAVY_REQUESTS, (0.0, heavy_ends), heavy),
        *_jobs(rng, LIGHT, LIGHT_REQUESTS, (light_starts, 1.0), light),
    ]
    return Workload(_in_order(jobs), latency, limits, light_when_full=not heavy_ends)


def equal_users(rate: float, seed: int, latency: LatencyModel, *, users: int = 8) -> Workload:
    """Return 400 chats of equal users, `rate` a second on average; none is heavy for long."""
    rng = Random(seed)
    jobs = []
    at_s = 0.0
    for _ in range(EQUAL_REQUESTS):
        at_s += rng.expovariate(rate)
        jobs += _jobs(rng, f"u{rng.randrange(users) + 1}", 1, (at_s, at_s), _CHAT)
    return Workload(tuple(jobs), latency)


EQUAL_REQUESTS: Final = 400

BACKLOGS: Final = {
    "chats": _CHAT,
    "long": _LONG,
    "short": _SHORT,
    "a token or few": Lengths((1, 8), (1, 8)),
}
"""Lengths that memory holds ten of at a time, three, many, and more than there are seats."""


def backlog(
    weights: Mapping[str, float], lengths: Lengths, requests: int, latency: LatencyModel, seed: int
) -> Workload:
    """Return users who all have so many requests for each unit of weight, from the start."""
    rng = Random(seed)
    jobs = [
        job
        for user, weight in weights.items()
        for job in _jobs(rng, user, round(requests * weight), (0.0, 0.0), lengths)
    ]
    return Workload(tuple(jobs), latency, weights=weights)


def capacity(latency: LatencyModel, seed: int = 0) -> float:
    """Return the requests a second that stall-free serves of `equal_users`, all there at once."""
    workload = equal_users(1e9, seed, latency)
    tokens = sum(job.output for job in workload.jobs)
    return run(workload, "stall-free").throughput * len(workload.jobs) / tokens


def _jobs(
    rng: Random, user: str, count: int, between_s: tuple[float, float], lengths: Lengths
) -> list[Job]:
    return [
        Job(
            rng.uniform(*between_s),
            user,
            rng.randint(*lengths.prompt),
            rng.randint(*lengths.output),
        )
        for _ in range(count)
    ]


def _in_order(jobs: Iterable[Job]) -> tuple[Job, ...]:
    return tuple(sorted(jobs, key=lambda job: job.at_s))
