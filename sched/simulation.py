"""A workload driven through a scheduler on the simulated GPU, in virtual time."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from batchproof.sched.config import Admission, Limits
from batchproof.sched.errors import (
    DuplicateRequestError,
    InfeasibleRequestError,
    InvalidRequestError,
    LimitsError,
    QueueFullError,
    RequestError,
)
from batchproof.sched.executor import Executor
from batchproof.sched.inference_stub import EOS_RATE, SimulatedGPU
from batchproof.sched.latency import LATENCY_MODELS, LatencyModel
from batchproof.sched.observer import Observer
from batchproof.sched.policy.registry import DEFAULT_POLICY, make_policy
from batchproof.sched.request_gen import Arrival
from batchproof.sched.scheduler import Scheduler

REFUSALS: Final[dict[type[RequestError], str]] = {
    InfeasibleRequestError: "infeasible",
    DuplicateRequestError: "duplicate",
    InvalidRequestError: "invalid",
    QueueFullError: "queue_full",
}
"""Why a request is refused, in one word (rule 4)."""

SIMULATED_TOKENS_MAX: Final = 2**26
"""The most tokens of KV memory that are simulated: half a gigabyte of ours."""
TICKS_BETWEEN_PROGRESS: Final = 256


@dataclass(frozen=True)
class Setup:
    """All that a run depends on besides its workload: the same set-up gives the same run."""

    limits: Limits = field(default_factory=Limits)
    policy: str = DEFAULT_POLICY
    admission: Admission | None = None
    """None: the policy's own."""
    latency: LatencyModel = LATENCY_MODELS["linear"]
    seed: int = 0
    """The simulated GPU's: another seed is another model."""
    eos_rate: float = EOS_RATE
    """The fraction of tokens that are EOS; 0 where the workload says how long outputs are."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """User -> weight, where it is not 1."""

    def gpu(self) -> SimulatedGPU:
        """Return a new simulated GPU; raise `LimitsError` for more memory than it simulates."""
        tokens = self.limits.max_kv_blocks * self.limits.block_size
        if tokens > SIMULATED_TOKENS_MAX:
            raise LimitsError(
                f"limits: {self.limits.max_kv_blocks} blocks of {self.limits.block_size} tokens "
                f"are {tokens} tokens, the simulated GPU has room for {SIMULATED_TOKENS_MAX}"
            )
        return SimulatedGPU(self.limits, self.latency, seed=self.seed, eos_rate=self.eos_rate)

    def scheduler(
        self, executor: Executor, observer: Observer | None = None, *, monitor: bool = False
    ) -> Scheduler:
        """Return a new scheduler; raise `LimitsError` for options that make no sense."""
        return Scheduler(
            self.limits,
            make_policy(self.policy, self.admission),
            executor,
            observer=observer,
            monitor=monitor,
            weights=self.weights,
        )


class Simulation:
    """One run: each request is submitted when virtual time has passed its arrival.

    `scheduler` must run on `gpu`, directly or through a recorder.
    """

    def __init__(
        self, scheduler: Scheduler, gpu: SimulatedGPU, arrivals: Iterable[Arrival]
    ) -> None:
        self.scheduler = scheduler
        self.gpu = gpu
        self.submitted = 0
        """Requests handed to the scheduler so far, refused ones included."""
        self.ended = 0
        """Requests that ended so far."""
        self.ticks = 0
        self.refusals: Counter[str] = Counter()
        """Refused requests by reason: the words of `REFUSALS`."""
        self.all_arrived = False
        """Whether the workload is exhausted."""
        self._arrivals = iter(arrivals)
        self._next = self._next_arrival()

    def run(
        self,
        *,
        stop: Callable[[], bool] = lambda: False,
        progress: Callable[["Simulation"], None] = lambda _: None,
    ) -> bool:
        """Run the workload to its end; return False if `stop`, asked before each tick, ended it.

        `progress` is called now and then. Whatever the workload, the policy or
        the executor raises passes through.
        """
        while not stop():
            self._submit_arrived()
            if self.scheduler.has_active():
                self.ended += len(self.scheduler.tick())
                self.ticks += 1
            elif self._next is not None:
                self.gpu.wait_until(self._next.at_s)
            else:
                return True
            if self.ticks % TICKS_BETWEEN_PROGRESS == 0:
                progress(self)
        return False

    def _submit_arrived(self) -> None:
        now = self.gpu.now()
        while self._next is not None and self._next.at_s <= now:
            at_s, request = self._next
            self.submitted += 1
            try:
                self.scheduler.submit(request, submitted_at=at_s)
            except RequestError as error:
                self.refusals[REFUSALS[type(error)]] += 1
            self._next = self._next_arrival()

    def _next_arrival(self) -> Arrival | None:
        arrival = next(self._arrivals, None)
        self.all_arrived = arrival is None
        return arrival
