"""The fairness test in full: two users, random trials, equal users, weights; tables and JSON.

Run with `python -m batchproof.sched.bench.fairness`; `--help` says with which options.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import nan
from multiprocessing import Pool
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from batchproof.sched.fairness import (
    BACKLOGS,
    MODELS,
    SCENARIOS,
    Outcome,
    Workload,
    backlog,
    capacity,
    equal_users,
    quantile,
    random_trial,
    run,
    tokens_while_all_wait,
    ttft_ratio,
    two_users,
)

POLICIES: Final = ("stall-free", "vtc", "fair-lane")
BASE: Final = "stall-free"
LOADS: Final = (0.9, 1.2)
RATIO_MAX: Final = 2.0
"""How much later than alone a light user's first tokens may come."""
THROUGHPUT_MIN: Final = 0.97
"""How much of stall-free's throughput every run is to have."""
SHARE_MIN: Final = 0.9
"""How much of its share by weight a user is to get, and of its excess over it nobody more."""
WEIGHTS: Final = {"A": 3.0, "B": 1.0}
BACKLOG_REQUESTS: Final = {"chats": 100, "long": 60, "short": 200, "a token or few": 400}
"""Requests for each unit of weight."""


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
        shares = {}
        for lengths in BACKLOG_REQUESTS:
            runs = pool.map(partial(_share_run, lengths), range(seeds), chunksize=1)
            shares[lengths] = {policy: max(run[policy] for run in runs) for policy in POLICIES[1:]}
            progress(f"{lengths}: off their shares by at most {shares[lengths]}")
        drawn = [r for r in pool.imap(_trial_run, range(trials), chunksize=8) if r is not None]
    return {
        "seeds": seeds,
        "scenarios": scenarios,
        "equal_users": equal,
        "off_shares": shares,
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


def _share_run(lengths: str, seed: int) -> dict[str, float]:
    """Return by how much of its share by weight the user that is farthest from it is off."""
    workload = backlog(WEIGHTS, BACKLOGS[lengths], BACKLOG_REQUESTS[lengths], MODELS[2], seed)
    off = {}
    for policy in POLICIES[1:]:
        tokens = tokens_while_all_wait(workload, policy)
        per_weight = sum(tokens.values()) / sum(WEIGHTS.values())
        off[policy] = max(abs(tokens[u] / per_weight / w - 1) for u, w in WEIGHTS.items())
    return {policy: round(value, 4) for policy, value in off.items()}


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


def goals(results: dict[str, Any]) -> str:
    """Return what fair-lane is to do, and whether it did: a line for each goal."""
    two_users = {name: figures["fair-lane"] for name, figures in results["scenarios"].items()}
    every = {**two_users, **{n: f["fair-lane"] for n, f in results["equal_users"].items()}}
    trials = results["random_trials"].get("fair-lane")
    late = sum(figures["ratio_over_2"] for figures in two_users.values())
    least = min(every, key=lambda name: every[name]["throughput_min"])
    off = {name: figures["fair-lane"] for name, figures in results["off_shares"].items()}
    farthest = max(off, key=off.__getitem__)
    lines = [
        (late == 0, f"first tokens of a light user at most {RATIO_MAX:g}x later than alone: {late} "
         f"of {sum(f['runs'] for f in two_users.values())} runs over"),
        (every[least]["throughput_min"] >= THROUGHPUT_MIN,
         f"{THROUGHPUT_MIN:.0%} of stall-free's throughput in every run: lowest "
         f"{every[least]['throughput_min']:.1%}, {least}"),
        (off[farthest] <= 1 - SHARE_MIN,
         f"within {1 - SHARE_MIN:.0%} of shares by weights of 3 and 1: at most {off[farthest]:.1%} "
         f"off, {farthest}"),
    ]  # fmt: skip
    if trials is not None:
        over = trials["ratio_over_2"]
        lines.append((over == 0, f"the same in random trials: {over} of {trials['runs']} over"))
    return "\n".join(f"{'met' if met else 'NOT MET'}: {text}" for met, text in lines)


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


def main() -> None:
    """Measure, print the table, and write the JSON where `--json` says."""
    parser = argparse.ArgumentParser(
        prog="python -m batchproof.sched.bench.fairness",
        description="Measure fair-lane in full. The numbers are the same for any number of jobs.",
    )
    for name, default in (("--seeds", 10), ("--trials", 600), ("--jobs", 2)):
        parser.add_argument(name, type=int, default=default, help=f"{default} if left out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    if options.json and not options.json.parent.is_dir():
        parser.error(f"argument --json: there is no folder {options.json.parent}")
    results = measure(options.seeds, options.trials, options.jobs)
    print(table(results), goals(results), sep="\n\n")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
