"""The result of a comparison as one JSON-ready object; see docs/how-to/compare-policies.md."""

from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import Any

from batchproof.sched.compare import (
    LOAD_SEARCHED_MAX,
    REFERENCE,
    Case,
    Comparison,
    Found,
    Pair,
    Run,
    Slowdown,
    Times,
    latency_slowdown,
    ttft_slowdown,
)
from batchproof.sched.known_workload import KnownWorkload
from batchproof.sched.run_result import tidied


def compare_result(version: str, comparison: Comparison) -> dict[str, Any]:
    """Return everything there is to say of a comparison; null stands where there is no figure.

    `runs` has one entry for each workload, latency model, load and policy,
    `slo_rates` one for each workload, latency model and policy if there is an SLO.
    """
    plan = comparison.plan
    result = {
        "version": version,
        "reference": REFERENCE,
        "limits": asdict(plan.limits),
        "weights": dict(plan.weights),
        "complete": comparison.complete,
        "workloads": [_workload(workload) for workload in plan.workloads],
        "capacities": [
            {**pair._asdict(), "requests_per_s": rate}
            for pair, rate in comparison.capacities.items()
        ],
        "runs": [
            _run(comparison, case, run, comparison.alone[case.pair, case.load])
            for case, run in comparison.runs.items()
            if (case.pair, case.load) in comparison.alone
        ],
        "slo": [objective.text for objective in plan.slo],
        "slo_rates": [
            _found(comparison, pair, policy, found)
            for (pair, policy), found in comparison.found.items()
        ],
    }
    tidy: dict[str, Any] = tidied(result)
    return tidy


def _workload(workload: KnownWorkload) -> dict[str, Any]:
    return {
        "name": workload.name,
        "source": workload.source,
        "seed": workload.seed,
        "requests": len(workload.requests),
        "refused": workload.refused,
        "users": len(workload.users),
        "output_tokens": workload.output_tokens,
    }


def _run(
    comparison: Comparison, case: Case, run: Run, alone: Mapping[str, Times]
) -> dict[str, Any]:
    stats = run.stats
    throughput = stats["metrics"]["throughput_tokens_per_sec"]
    ttft, latency = ttft_slowdown(run.users, alone), latency_slowdown(run.users, alone)
    return {
        **case.pair._asdict(),
        "load": case.load,
        "policy": case.policy,
        "requests_per_s": case.load * comparison.capacities[case.pair],
        "throughput_tokens_per_s": throughput,
        "limit_tokens_per_s": stats["tokens"]["output"] / run.limit_s,
        "throughput_of_limit": run.limit_s / stats["elapsed_s"],
        "ttft_s": stats["ttft_s"],
        "tbt_s": stats["tbt_s"],
        "latency_s": stats["latency_s"],
        "ttft_slowdown": _slowdown(ttft),
        "latency_slowdown": _slowdown(latency),
        "preemptions": stats["preemptions"],
        "recomputed_tokens": stats["tokens"]["recomputed"],
        "ticks": stats["ticks"],
        "elapsed_s": stats["elapsed_s"],
        "users": {
            user: {
                "requests": len(times.ttft_s),
                "ttft_p50_s": median(times.ttft_s),
                "alone_ttft_p50_s": median(alone[user].ttft_s),
                "ttft_slowdown": ttft.by_user[user],
                "latency_slowdown": latency.by_user[user],
            }
            for user, times in sorted(run.users.items())
        },
    }


def _slowdown(slowdown: Slowdown) -> dict[str, Any]:
    return {
        "median": slowdown.median,
        "max": slowdown.max,
        "of": slowdown.worst,
        "jain": slowdown.jain,
    }


def _found(comparison: Comparison, pair: Pair, policy: str, found: Found) -> dict[str, Any]:
    stats = found.stats
    return {
        **pair._asdict(),
        "policy": policy,
        "requests_per_s": found.load * comparison.capacities[pair],
        "load": found.load,
        "or_more": found.load == LOAD_SEARCHED_MAX,
        "throughput_tokens_per_s": stats and stats["metrics"]["throughput_tokens_per_sec"],
        "ttft_s": stats and stats["ttft_s"],
        "tbt_s": stats and stats["tbt_s"],
        "latency_s": stats and stats["latency_s"],
    }
