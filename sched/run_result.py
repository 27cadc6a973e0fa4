"""The result of a run as one JSON-ready object; docs/reference/figures.md names its figures."""

from dataclasses import asdict
from math import isfinite
from typing import Any, Final

from batchproof.sched.simulation import Setup, Simulation

DIGITS: Final = 6
"""Decimals kept of every figure: microseconds. Their last bits are the C library's business."""
_FIGURES: Final = (
    "finish_reasons",
    "metrics",
    "elapsed_s",
    "ticks",
    "ttft_s",
    "tbt_s",
    "latency_s",
    "queue_time_s",
    "tokens",
    "preemptions",
    "batch",
    "kv",
    "users",
)


def run_result(
    version: str, setup: Setup, workload: dict[str, Any], simulation: Simulation, *, complete: bool
) -> dict[str, Any]:
    """Return everything there is to say of a run; null stands where there is no figure.

    `requests` counts each submitted request once; `unfinished` are those still
    live when the run was interrupted, 0 when it is complete. `lost` is the
    difference between the requests handed to the scheduler, counted outside of
    it, and all that it accounts for: 0, unless it has a fault.
    """
    stats = simulation.scheduler.stats()
    counts = stats["requests"]
    requests = {name: count for name, count in counts.items() if name != "live"}
    unfinished = sum(stats["live"][phase] for phase in ("waiting", "prefilling", "decoding"))
    accounted = sum(requests.values()) - requests["submitted"] + unfinished
    result = {
        "version": version,
        "policy": setup.policy,
        "admission": simulation.scheduler.policy.admission,
        "latency": setup.latency.name,
        "seed": setup.seed,
        "eos_rate": setup.eos_rate,
        "weights": dict(setup.weights),
        "limits": asdict(setup.limits),
        "workload": workload,
        "complete": complete,
        "requests": requests,
        "unfinished": unfinished,
        "lost": simulation.submitted - accounted,
        "refusals": dict(sorted(simulation.refusals.items())),
        **{name: stats[name] for name in _FIGURES},
    }
    tidy: dict[str, Any] = tidied(result)
    return tidy


def tidied(value: Any) -> Any:
    """Return `value` with floats rounded, and None for those that are not finite."""
    if isinstance(value, float):
        return round(value, DIGITS) if isfinite(value) else None
    if isinstance(value, dict):
        return {key: tidied(member) for key, member in value.items()}
    if isinstance(value, list):
        return [tidied(member) for member in value]
    return value
