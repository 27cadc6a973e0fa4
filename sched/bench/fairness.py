"""The fairness test in full: two users, random trials and equal users, as a table and JSON.

Run with `python -m batchproof.sched.bench.fairness [--seeds 10] [--trials 600] [--jobs 2]
[--json FILE]`; the same numbers come out whatever the number of jobs.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import nan
from multiprocessing import Pool
from statistics import median
from typing import Any, Final, NamedTuple

from batchproof.sched.fairness import (
    MODELS,
    SCENARIOS,
    Outcome,
    Workload,
    capacity,
    equal_users,
    quantile,
    random_trial,
    run,
    ttft_ratio,
    two_users,
)

POLICIES: Final = ("stall-free", "vtc", "fair-lane")
BASE: Final = "stall-free"
LOADS: Final = (0.9, 1.2)
RATIO_MAX: Final = 2.0
"""How much later than alone a light user's first tokens may come."""


class Measured(NamedTuple):
    """One run of one policy."""

    ratio: float
    """B's median TTFT over that alone."""
    wall_clock_ratio: float
    """The same where the rest of the tick at arrival counts too; NaN if not measured."""
    throughput: float
    """Over stall-free's in the same workload."""
    preemptions: int
    ttft_p99_s: float
    """Of all requests."""


def measure(seeds: int = 10, trials: int = 600, jobs: int = 1) -> dict[str, Any]:
    """Return all results as one JSON-ready object."""
    progress = partial(print, file=sys.stderr, flush=True)
    with Pool(jobs) as pool:
        scenarios = {}
        for model, scenario in ((m, s) for m in range(len(MODELS)) for s in range(len(SCENARIOS))):
            name = f"{MODELS[model].name}: {SCENARIOS[scenario].name}"
            cases = [(model, scenario, seed) for seed in range(seeds)]
            scenarios[name] = _by_policy(pool.map(_scenario_run, cases, chunksize=1))
            progress(f"{name}: fair-lane {scenarios[name]['fair-lane']}")
        equal = {}
        for model, load in ((m, load) for m in range(len(MODELS)) for load in LOADS):
            name = f"{MODELS[model].name}: 8 equal users, load {load}"
            equal_cases = [(model, load, seed) for seed in range(seeds)]
            equal[name] = _by_policy(pool.map(_equal_run, equal_cases, chunksize=1))
            progress(f"{name}: fair-lane {equal[name]['fair-lane']}")
        drawn = [r for r in pool.imap(_trial_run, range(trials), chunksize=8) if r is not None]
    return {
        "seeds": seeds,
        "scenarios": scenarios,
        "equal_users": equal,
        "random_trials": {"drawn": trials, **_by_policy(drawn)} if drawn else {"drawn": trials},
    }


def _measured(workload: Workload, *, alone: bool, wall_clock: bool) -> dict[str, Measured]:
    outcomes = {policy: run(workload, policy) for policy in POLICIES}
    base = outcomes[BASE].throughput
    return {
        policy: Measured(
            ttft_ratio(workload, policy, outcome) if alone else nan,
            _wall_clock_ratio(workload, policy) if wall_clock else nan,
            outcome.throughput / base,
            outcome.preemptions,
            quantile(_all_ttft(outcome), 0.99),
        )
        for policy, outcome in outcomes.items()
    }


def _wall_clock_ratio(workload: Workload, policy: str) -> float:
    together = run(workload, policy, wall_clock=True)
    return ttft_ratio(workload, policy, together, wall_clock=True)


def _all_ttft(outcome: Outcome) -> list[float]:
    return [ttft for times in outcome.ttft_s.values() for ttft in times]


def _scenario_run(case: tuple[int, int, int]) -> dict[str, Measured]:
    model, scenario, seed = case
    workload = two_users(SCENARIOS[scenario], MODELS[model], seed)
    return _measured(workload, alone=True, wall_clock=True)


def _equal_run(case: tuple[int, float, int]) -> dict[str, Measured]:
    model, load, seed = case
    rate = load * capacity(MODELS[model])
    return _measured(equal_users(rate, seed, MODELS[model]), alone=False, wall_clock=False)


def _trial_run(seed: int) -> dict[str, Measured] | None:
    """Run a trial; None if B's prompts take more than half of the memory: B is not light."""
    workload = random_trial(seed)
    if 2 * workload.prompt_blocks("B") > workload.limits.max_kv_blocks:
        return None
    return _measured(workload, alone=True, wall_clock=False)


def _by_policy(runs: Sequence[dict[str, Measured]]) -> dict[str, Any]:
    return {policy: _summary([measured[policy] for measured in runs]) for policy in POLICIES}


def _summary(runs: Sequence[Measured]) -> dict[str, float | int | None]:
    def over(figure: Callable[[Iterable[float]], float], name: str) -> float | None:
        value = figure([getattr(measured, name) for measured in runs])
        return None if value != value else round(value, 4)

    return {
        "runs": len(runs),
        "ratio_median": over(median, "ratio"),
        "ratio_max": over(max, "ratio"),
        "ratio_over_2": sum(measured.ratio > RATIO_MAX for measured in runs),
        "wall_clock_ratio_median": over(median, "wall_clock_ratio"),
        "wall_clock_ratio_max": over(max, "wall_clock_ratio"),
        "throughput_mean": over(_mean, "throughput"),
        "throughput_median": over(median, "throughput"),
        "throughput_p5": over(lambda values: quantile(values, 0.05), "throughput"),
        "throughput_min": over(min, "throughput"),
        "preemptions_mean": over(_mean, "preemptions"),
        "ttft_p99_s_mean": over(_mean, "ttft_p99_s"),
    }


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


def table(results: dict[str, Any]) -> str:
    """Return the results as a table in Markdown."""
    lines = [
        "| workload | policy | TTFT ratio [max] | wall clock [max] | over 2x | throughput [min] "
        "| preemptions | TTFT p99, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    trials = {"random trials": results["random_trials"]}
    for workload, policies in (
        *results["scenarios"].items(), *results["equal_users"].items(), *trials.items()
    ):  # fmt: skip
        lines += [
            _row(workload, policy, policies[policy]) for policy in POLICIES if policy in policies
        ]
    return "\n".join(lines)


def _row(workload: str, policy: str, figures: dict[str, Any]) -> str:
    def pair(middle: str, extreme: str) -> str:
        first, second = figures[middle], figures[extreme]
        return "-" if first is None else f"{first:.3f} [{second:.3f}]"

    cells = (
        workload,
        policy,
        pair("ratio_median", "ratio_max"),
        pair("wall_clock_ratio_median", "wall_clock_ratio_max"),
        f"{figures['ratio_over_2']} of {figures['runs']}" if figures["ratio_median"] else "-",
        pair("throughput_mean", "throughput_min"),
        f"{figures['preemptions_mean']:.1f}",
        f"{figures['ttft_p99_s_mean']:.2f}",
    )
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table, and write the JSON where `--json` says."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    results = measure(
        *(int(options.get(name, default)) for name, default in (
            ("--seeds", 10), ("--trials", 600), ("--jobs", 2)
        ))
    )  # fmt: skip
    print(table(results))
    if "--json" in options:
        with open(options["--json"], "w", encoding="utf-8") as file:
            json.dump(results, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
