"""Options that commands share: what to run, and under what."""

import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import isnan, nan
from typing import Annotated, Any, Final

from cyclopts import Parameter

from batchproof.sched.config import Admission, Limits
from batchproof.sched.errors import InputError
from batchproof.sched.inference_stub import EOS_RATE
from batchproof.sched.latency import latency_model
from batchproof.sched.policy.registry import DEFAULT_POLICY
from batchproof.sched.recordings import Trace
from batchproof.sched.request_gen import (
    DEFAULT_RATE,
    DEFAULT_REQUESTS,
    DEFAULT_USERS,
    Assignment,
    PoissonWorkload,
)
from batchproof.sched.simulation import Setup
from batchproof.sched.weights import checked_weight, plain

WEIGHT: Final = Parameter(
    negative=(), help="A user's weight, USER=NUMBER, 1 if left out; may be given again."
)


def parse_weights(texts: Iterable[str]) -> dict[str, float]:
    """Return user -> weight from texts like `u1=3`; raise `InputError` for others."""
    weights: dict[str, float] = {}
    for text in texts:
        user_id, _, number = text.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = nan
        if not user_id or isnan(weight):
            raise InputError(f"--weight {text!r} is not USER=NUMBER; give it like u1=3")
        if user_id in weights:
            raise InputError(
                f"--weight {text!r}: user {user_id!r} has a weight already; leave out one"
            )
        weights[user_id] = plain(checked_weight(user_id, weight))
    return weights


def checked_jobs(jobs: int | None) -> int:
    """Return how many processes to use, all cores' if None; raise `InputError` below 1."""
    if jobs is None:
        return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if jobs < 1:
        raise InputError(f"jobs is {jobs}, not an int of at least 1")
    return jobs


@dataclass(frozen=True)
class WorkloadOptions:
    """Which workload: a trace file, or a generated one."""

    seed: int = 0
    """Of everything that is drawn: the same seed gives the same output."""
    users: int = DEFAULT_USERS
    """How many users the requests are of."""
    assign: Assignment = "zipf"
    """Whose each request is: user k in proportion to 1/k, or each in turn."""
    time_scale: float = 1.0
    """What the gaps between arrivals are multiplied by: 0.5 doubles the load."""
    limit: int | None = None
    """Of a FILE, only its first so many requests."""
    skip_bad_rows: Annotated[bool, Parameter(negative=())] = False
    """Of a FILE, leave out and count bad rows instead of stopping."""
    requests: int | None = None
    """Without a FILE, how many requests to generate; 2000 if left out."""
    rate: float | None = None
    """Without a FILE, how many requests arrive a second, on average; 12 if left out."""

    def workload(self, file: str | None) -> PoissonWorkload | Trace:
        """Return the workload; raise `InputError` for options that do not fit it or each other."""
        of_files = {"--limit": self.limit is not None, "--skip-bad-rows": self.skip_bad_rows}
        generated = {"--requests": self.requests is not None, "--rate": self.rate is not None}
        for option, given in (generated if file is not None else of_files).items():
            if given:
                what = (
                    "a generated workload, and a FILE" if file is not None else "a FILE, and none"
                )
                raise InputError(f"{option} is for {what} was given; leave one of them out")
        if file is not None:
            return Trace(
                file,
                users=self.users,
                assign=self.assign,
                seed=self.seed,
                limit=self.limit,
                time_scale=self.time_scale,
                skip_bad_rows=self.skip_bad_rows,
            )
        return PoissonWorkload(
            requests=DEFAULT_REQUESTS if self.requests is None else self.requests,
            rate=DEFAULT_RATE if self.rate is None else self.rate,
            users=self.users,
            assign=self.assign,
            seed=self.seed,
            time_scale=self.time_scale,
        )


@dataclass(frozen=True)
class SetupOptions:
    """Under what it runs."""

    policy: str = DEFAULT_POLICY
    """Which policy schedules."""
    admission: Admission | None = None
    """How much memory an admission takes; the policy's own way if left out."""
    latency: str = "linear"
    """The latency model of an iteration: linear, a100-llama3-8b or h100-llama2-7b."""
    eos_rate: float | None = None
    """The fraction of tokens that are EOS; 1/64 if left out, 0 for a FILE, which says lengths."""
    weight: Annotated[tuple[str, ...], WEIGHT] = ()

    def setup(self, limits: Limits, workload: PoissonWorkload | Trace, seed: int) -> Setup:
        """Return the set-up; raise `LimitsError` for an unknown latency model."""
        own = 0.0 if isinstance(workload, Trace) else EOS_RATE
        return Setup(
            limits=limits,
            policy=self.policy,
            admission=self.admission,
            latency=latency_model(self.latency),
            seed=seed,
            eos_rate=own if self.eos_rate is None else self.eos_rate,
            weights=parse_weights(self.weight),
        )


def workload_facts(options: WorkloadOptions, workload: PoissonWorkload | Trace) -> dict[str, Any]:
    """Return what a result says of its workload, once it has been run."""
    if isinstance(workload, Trace):
        return {
            "source": workload.format,
            "requests": workload.requests,
            "bad_rows": workload.bad_rows,
            "users": options.users,
            "assign": options.assign,
            "time_scale": options.time_scale,
        }
    facts = {"source": "generated", **asdict(workload)}
    del facts["seed"]
    return facts
