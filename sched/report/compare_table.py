"""A comparison as text: a table for each workload and latency model, and one for the SLO."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from batchproof.sched.report.text import number_table

HEADER: Final = (
    "load",
    "policy",
    "of limit",
    "TTFT p50",
    "p99",
    "TBT p50",
    "p99",
    "slowdown p50",
    "max",
    "Jain",
    "preempted",
    "recomputed",
)
SLO_HEADER: Final = ("workload", "latency", "policy", "requests/s", "load", "tokens/s")
_LEGEND: Final = """\
of limit: output tokens a second, of those that no scheduler could exceed; TTFT in s, TBT in ms
slowdown: a user's median TTFT over that alone under {reference}, of the median and the worst user
Jain: Jain's index of the users' speeds relative to alone, 1 if all fare alike
load 1 is the rate that {reference} serves when all requests are there at once"""


def compare_table(result: Mapping[str, Any]) -> str:
    """Return the tables of a result that `compare_result` made."""
    parts = []
    for pair in result["capacities"]:
        rows = number_table(HEADER, run_rows(runs_of(result, pair)), names=2)
        parts.append(f"{pair_title(result, pair)}\n\n{rows}")
    if result["slo_rates"]:
        objectives = " and ".join(result["slo"])
        rows = number_table(SLO_HEADER, slo_rows(result["slo_rates"]), names=3)
        parts.append(f"the highest rate that meets {objectives}\n\n{rows}")
    parts.append(legend(result))
    if not result["complete"]:
        parts.append("interrupted: these are the results so far")
    return "\n\n".join(parts)


def legend(result: Mapping[str, Any]) -> str:
    """Return what the columns mean, a line each."""
    return _LEGEND.format(reference=result["reference"])


def runs_of(result: Mapping[str, Any], pair: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the runs of one workload and latency model."""
    names = ("workload", "latency")
    return [run for run in result["runs"] if all(pair[name] == run[name] for name in names)]


def pair_title(result: Mapping[str, Any], pair: Mapping[str, Any]) -> str:
    """Return what one workload and latency model are, in a line."""
    workload = next(one for one in result["workloads"] if one["name"] == pair["workload"])
    refused = workload["refused"]
    left_out = f" ({refused:,} that could not fit even alone left out)" if refused else ""
    return (
        f"{workload['name']}: {workload['requests']:,} requests of {workload['users']:,} users"
        f"{left_out}, latency model {pair['latency']}: "
        f"load 1 is {pair['requests_per_s']:.2f} requests/s"
    )


def run_rows(runs: Sequence[Mapping[str, Any]]) -> Iterable[Sequence[str]]:
    """Yield a row for each run, and an empty one where the load changes."""
    for number, (_, at_load) in enumerate(groupby(runs, key=lambda run: run["load"])):
        if number:
            yield ("",) * len(HEADER)
        for run in at_load:
            yield _row(run)


def _row(run: Mapping[str, Any]) -> Sequence[str]:
    ttft, tbt, slowdown = run["ttft_s"], run["tbt_s"], run["ttft_slowdown"]
    return (
        f"{run['load']:g}",
        run["policy"],
        f"{run['throughput_of_limit']:.1%}",
        *(f"{ttft[name]:,.3f}" for name in ("p50", "p99")),
        *("-" if tbt[name] is None else f"{tbt[name] * 1e3:,.1f}" for name in ("p50", "p99")),
        f"{slowdown['median']:,.2f}",
        f"{slowdown['max']:,.2f} ({slowdown['of']})",
        f"{slowdown['jain']:.3f}",
        f"{run['preemptions']:,}",
        f"{run['recomputed_tokens']:,}",
    )


def slo_rows(rates: Iterable[Mapping[str, Any]]) -> Iterable[Sequence[str]]:
    """Yield a row for each policy's highest rate."""
    for rate in rates:
        throughput = rate["throughput_tokens_per_s"]
        more = " or more" if rate["or_more"] else ""
        yield (
            rate["workload"],
            rate["latency"],
            rate["policy"],
            f"{rate['requests_per_s']:.2f}" if rate["load"] else "none",
            f"{rate['load']:.2f}{more}" if rate["load"] else "-",
            "-" if throughput is None else f"{throughput:,.1f}",
        )
