"""How much slower each user of a run is served than if it were alone.

Alone means its own requests at their own times, on the same limits, policy and
latency model: what it waits longer for is other users.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from batchproof.sched.errors import InputError
from batchproof.sched.parallel import Stop, Workers
from batchproof.sched.request_gen import Arrival
from batchproof.sched.run_result import tidied
from batchproof.sched.simulation import Setup, Simulation

TIMES: Final = {
    "ttft_p50": ("ttft_s", "p50"),
    "ttft_p99": ("ttft_s", "p99"),
    "latency_p50": ("latency_s", "p50"),
    "latency_p99": ("latency_s", "p99"),
}
"""Name of each time that is compared -> where it is among a user's figures."""


def isolation(
    setup: Setup,
    workload: Callable[[], Iterable[Arrival]],
    users: Mapping[str, Any],
    *,
    jobs: int = 1,
    stop: Stop = lambda: False,
    finished: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Any]]:
    """Return each user's times with everybody, alone, and the one over the other; null for none.

    `workload` makes the workload anew, `users` are the figures of the run with
    everybody. Those whom `stop` prevented are left out. Raises `InputError` where
    no request finished.
    """
    served = [user for user, figures in users.items() if figures["finished"]]
    if not served:
        raise InputError(
            "--isolation compares the users' times, and no request finished: give a workload "
            "with requests that fit"
        )
    calls = [partial(alone, setup, workload, user) for user in served]
    with Workers(jobs) as workers:
        results = workers.run(calls, stop=stop, finished=finished)
    compared = {
        user: {name: _compared(users[user], by_itself, *where) for name, where in TIMES.items()}
        for user, by_itself in zip(served, results, strict=True)
        if by_itself is not None
    }
    tidy: dict[str, dict[str, Any]] = tidied(compared)
    return tidy


def alone(
    setup: Setup, workload: Callable[[], Iterable[Arrival]], user: str, stop: Stop
) -> dict[str, Any] | None:
    """Return the figures of a user that has the machine to itself; None if `stop` ended it."""
    gpu = setup.gpu()
    arrivals = (arrival for arrival in workload() if arrival.request.user_id == user)
    simulation = Simulation(setup.scheduler(gpu), gpu, arrivals)
    if not simulation.run(stop=stop):
        return None
    figures: dict[str, Any] = simulation.scheduler.stats()["users"][user]
    return figures


def _compared(
    together: Mapping[str, Any], by_itself: Mapping[str, Any], time: str, quantile: str
) -> dict[str, float | None]:
    crowd, own = together[time][quantile], by_itself[time][quantile]
    return {"together_s": crowd, "alone_s": own, "slowdown": crowd / own if own else None}
