"""Policies side by side: the same workloads, at the same loads, on the same machines.

Load 1.0 is the capacity of a machine for a workload: the requests a second that
`REFERENCE` serves when all of them are there at once. A user alone, which
slowdowns are against, is served by `REFERENCE` too, so that they compare.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from statistics import fmean, median
from typing import Any, Final, NamedTuple

from batchproof.sched.batch import Batch
from batchproof.sched.bound import earliest_end
from batchproof.sched.config import Limits
from batchproof.sched.known_workload import KnownWorkload
from batchproof.sched.latency import latency_model
from batchproof.sched.observer import SilentObserver
from batchproof.sched.parallel import Stop, Workers
from batchproof.sched.request import Sequence
from batchproof.sched.simulation import Setup, Simulation
from batchproof.sched.slo import Objective

REFERENCE: Final = "stall-free"
"""The policy that capacity is measured with, and that serves a user alone."""
LOAD_STEPS: Final = 50
"""A search tries loads that are multiples of one capacity divided by this."""
LOAD_SEARCHED_MAX: Final = 2
"""The highest load that a search tries, in capacities."""
WINDOWS: Final = 24
"""Windows of time that a run without any delay would have for the users' shares."""


@dataclass(frozen=True)
class Plan:
    """What to compare: every policy on every workload, latency model and load."""

    workloads: tuple[KnownWorkload, ...]
    policies: tuple[str, ...]
    latencies: tuple[str, ...]
    loads: tuple[float, ...]
    limits: Limits = field(default_factory=Limits)
    slo: tuple[Objective, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    """User -> weight, where it is not 1."""

    def setup(self, workload: KnownWorkload, latency: str, policy: str = REFERENCE) -> Setup:
        """Return the set-up of one run."""
        return Setup(
            limits=self.limits,
            policy=policy,
            latency=latency_model(latency),
            seed=workload.seed,
            eos_rate=workload.eos_rate,
            weights=self.weights,
        )

    @property
    def calls(self) -> int:
        """How many calls it takes, long and short."""
        runs_of_pair = len(self.loads) * (len(self.policies) + 1) + 1
        searches = len(self.policies) if self.slo else 0
        return len(self.workloads) * len(self.latencies) * (runs_of_pair + searches)


class Pair(NamedTuple):
    """A workload and the latency model that it runs with, by name."""

    workload: str
    latency: str


class Case(NamedTuple):
    """One run of a comparison."""

    pair: Pair
    load: float
    """In capacities."""
    policy: str


class Times(NamedTuple):
    """How long the requests of one user took, in seconds."""

    ttft_s: list[float]
    latency_s: list[float]


class Run(NamedTuple):
    """What one run came to."""

    stats: dict[str, Any]
    users: dict[str, Times]
    fed: list[Counter[str]]
    """User -> tokens fed, in each window of time."""
    window_s: float
    limit_s: float
    """The least time from the first arrival to the end, for any scheduler."""


class Found(NamedTuple):
    """The highest rate at which a policy meets an SLO."""

    load: float
    """In capacities; 0 if not even the lowest tried meets it."""
    stats: dict[str, Any] | None
    """The figures at that rate."""


@dataclass
class Comparison:
    """All that was found out; parts are missing if it was interrupted."""

    plan: Plan
    capacities: dict[Pair, float] = field(default_factory=dict)
    """Requests a second."""
    alone: dict[tuple[Pair, float], dict[str, Times]] = field(default_factory=dict)
    runs: dict[Case, Run] = field(default_factory=dict)
    found: dict[tuple[Pair, str], Found] = field(default_factory=dict)
    complete: bool = False


def compare(
    plan: Plan,
    *,
    jobs: int = 1,
    stop: Stop = lambda: False,
    finished: Callable[[], None] = lambda: None,
) -> Comparison:
    """Run everything, in `jobs` processes; what comes out does not depend on how many.

    `finished` is called after each of `plan.calls` calls. Raises `InputError`
    for a workload whose requests all arrive at once.
    """
    pairs = {
        Pair(workload.name, latency): (workload, latency)
        for workload, latency in product(plan.workloads, plan.latencies)
    }
    result = Comparison(plan)
    for workload in plan.workloads:
        workload.at_rate(1.0)  # refuses it before anything has been run
    with Workers(jobs) as workers:
        measured = workers.run(
            [partial(capacity, plan.setup(*of), of[0]) for of in pairs.values()],
            stop=stop,
            finished=finished,
        )
        result.capacities = _present(zip(pairs, measured, strict=True))
        calls: dict[Any, Callable[[Stop], Any]] = {}
        for pair, rate in result.capacities.items():
            calls.update(_calls(plan, pair, *pairs[pair], rate))
        results = workers.run(list(calls.values()), stop=stop, finished=finished)
    present = _present(zip(calls, results, strict=True))
    for (kind, key), value in present.items():
        getattr(result, kind)[key] = value
    result.complete = len(present) == len(calls) and len(result.capacities) == len(pairs)
    return result


def _present(results: Any) -> dict[Any, Any]:
    return {key: value for key, value in results if value is not None}


def _calls(
    plan: Plan, pair: Pair, workload: KnownWorkload, latency: str, rate: float
) -> Iterator[tuple[tuple[str, Any], Callable[[Stop], Any]]]:
    """Yield what is to be run of one pair: the part of a comparison and its key, and the call."""
    for load in plan.loads:
        offered = workload.at_rate(load * rate)
        yield ("alone", (pair, load)), partial(serve_alone, plan.setup(workload, latency), offered)
        for policy in plan.policies:
            setup = plan.setup(workload, latency, policy)
            yield ("runs", Case(pair, load, policy)), partial(serve, setup, offered)
    for policy in plan.policies if plan.slo else ():
        setup = plan.setup(workload, latency, policy)
        yield ("found", (pair, policy)), partial(search, setup, workload, rate, plan.slo)


def capacity(setup: Setup, workload: KnownWorkload, stop: Stop) -> float | None:
    """Return the requests a second that are served when all are there at once."""
    run = serve(setup, workload.all_at_once(), stop)
    return None if run is None else len(workload.requests) / run.stats["elapsed_s"]


def serve_alone(setup: Setup, workload: KnownWorkload, stop: Stop) -> dict[str, Times] | None:
    """Return how long each user's requests take without anybody else's."""
    alone: dict[str, Times] = {}
    for user in workload.users:
        run = serve(setup, workload.of(user), stop)
        if run is None:
            return None
        alone[user] = run.users[user]
    return alone


def serve(setup: Setup, workload: KnownWorkload, stop: Stop = lambda: False) -> Run | None:
    """Run a workload to its end; return None if `stop` ended it.

    Raises `RuntimeError` if the tokens are not as many as they should be.
    """
    known = [request.known for request in workload.requests]
    limit_s = earliest_end(setup.limits, setup.latency, known) - known[0].at_s
    gpu = setup.gpu()
    watch = _Watch(limit_s / WINDOWS, known[0].at_s)
    simulation = Simulation(setup.scheduler(gpu, watch), gpu, workload.arrivals())
    if not simulation.run(stop=stop):
        return None
    stats = simulation.scheduler.stats()
    if stats["tokens"]["output"] != workload.output_tokens:
        raise RuntimeError(
            f"{setup.policy} on {workload.name} delivered {stats['tokens']['output']} tokens, "
            f"not {workload.output_tokens}"
        )
    return Run(stats, watch.users, watch.fed, watch.window_s, limit_s)


class _Watch(SilentObserver):
    """Keeps when each user's requests got their first token and ended, and who was fed when."""

    def __init__(self, window_s: float, first_s: float) -> None:
        self.users: dict[str, Times] = {}
        self.fed: list[Counter[str]] = []
        self.window_s = window_s
        self._first_s = first_s

    def ticked(
        self, batch: Batch, tokens: SequenceOf[int], ended: SequenceOf[Sequence], now: float, /
    ) -> None:
        window = int((batch.scheduled_at - self._first_s) / self.window_s)
        while len(self.fed) <= window:
            self.fed.append(Counter())
        fed = self.fed[window]
        for place, sequence in enumerate(batch):
            fed[sequence.user_id] += 1 if place < batch.chunks_from else sequence.scheduled
        for sequence in ended:
            times = self.users.setdefault(sequence.user_id, Times([], []))
            assert sequence.first_token_at is not None
            times.ttft_s.append(sequence.first_token_at - sequence.submitted_at)
            times.latency_s.append(now - sequence.submitted_at)


def search(
    setup: Setup,
    workload: KnownWorkload,
    rate: float,
    slo: SequenceOf[Objective],
    stop: Stop = lambda: False,
) -> Found | None:
    """Return the highest load that meets the SLO, by bisection; None if `stop` ended it.

    `rate` is load 1.0, in requests a second. It is taken for granted that what a load does
    not meet, no higher load does.
    """
    meets, fails = 0, LOAD_SEARCHED_MAX * LOAD_STEPS + 1
    found = Found(0.0, None)
    while fails - meets > 1:
        step = (meets + fails) // 2
        run = serve(setup, workload.at_rate(step / LOAD_STEPS * rate), stop)
        if run is None:
            return None
        if all(objective.is_met(run.stats) for objective in slo):
            meets, found = step, Found(step / LOAD_STEPS, run.stats)
        else:
            fails = step
    return found


class Slowdown(NamedTuple):
    """How much longer than alone the users wait."""

    by_user: dict[str, float]

    @property
    def worst(self) -> str:
        """The user who fares worst."""
        return max(self.by_user, key=self.by_user.__getitem__)

    @property
    def max(self) -> float:
        """That of this user."""
        return self.by_user[self.worst]

    @property
    def median(self) -> float:
        """That of the user in the middle."""
        return median(self.by_user.values())

    @property
    def jain(self) -> float:
        """Jain's index of the users' speeds relative to alone: 1 if all alike, 1/users at worst.

        Jain, Chiu and Hawe, "A quantitative measure of fairness" (1984).
        """
        speeds = [1 / slowdown for slowdown in self.by_user.values()]
        return sum(speeds) ** 2 / (len(speeds) * sum(speed**2 for speed in speeds))


def ttft_slowdown(together: Mapping[str, Times], alone: Mapping[str, Times]) -> Slowdown:
    """Return each user's median TTFT over that alone."""
    return Slowdown(
        {
            user: median(times.ttft_s) / median(alone[user].ttft_s)
            for user, times in sorted(together.items())
        }
    )


def latency_slowdown(together: Mapping[str, Times], alone: Mapping[str, Times]) -> Slowdown:
    """Return each user's mean latency over that alone."""
    return Slowdown(
        {
            user: fmean(times.latency_s) / fmean(alone[user].latency_s)
            for user, times in sorted(together.items())
        }
    )
