"""The result of a run as text: what happened to the requests, the figures, and each user."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from batchproof.sched.metrics import REQUEST_ENDS
from batchproof.sched.report.text import number_table, table

USERS_SHOWN: Final = 16
"""Users that get a line each; `--json` has them all."""

QUANTILES: Final = ("p50", "p90", "p99", "mean", "max")
_TIMES: Final = {
    "TTFT": "ttft_s",
    "TBT": "tbt_s",
    "latency": "latency_s",
    "queue time": "queue_time_s",
}
USER_COUNTS: Final = {
    "submitted": "submitted",
    "finished": "finished",
    "refused": "refused",
    "output_tokens": "tokens",
    "preemptions": "preemptions",
}
USER_TIMES: Final = ("TTFT p50", "p99", "latency p50", "p99")


def run_table(result: Mapping[str, Any]) -> str:
    """Return the tables of a result that `run_result` made."""
    shown = dict(islice(result["users"].items(), USERS_SHOWN))
    parts = [
        "\n".join((run_title(result), reconciled(result), *refused(result))),
        table(("figure", "value"), figure_rows(result)),
        number_table(("seconds", *QUANTILES), time_rows(result)),
        number_table(("user", *USER_COUNTS.values(), *USER_TIMES), user_rows(shown)),
    ]
    if len(result["users"]) > USERS_SHOWN:
        parts[-1] += f"\n... and {len(result['users']) - USERS_SHOWN} more users: --json has all"
    if "isolation" in result:
        parts.append(isolation_table(result["isolation"]))
    if not result["complete"]:
        parts.append("interrupted: these are the results so far")
    return "\n\n".join(parts)


def isolation_table(isolation: Mapping[str, Any]) -> str:
    """Return how much slower each user is than alone: its times over those alone."""
    rows = [
        (user, *(_slowdown(times) for times in compared.values()))
        for user, compared in islice(isolation.items(), USERS_SHOWN)
    ]
    return number_table(("slowdown", "TTFT p50", "p99", "latency p50", "p99"), rows)


def _slowdown(times: Mapping[str, float | None]) -> str:
    together, alone = (_number(times[name], 3) for name in ("together_s", "alone_s"))
    return f"{_number(times['slowdown'], 2)} = {together} / {alone}"


def run_title(result: Mapping[str, Any]) -> str:
    """Return what was run, and under what."""
    return (
        f"{result['workload']['source']}, seed {result['seed']}: policy {result['policy']} "
        f"({result['admission']}), latency model {result['latency']}"
    )


def reconciled(result: Mapping[str, Any]) -> str:
    """Return what became of the submitted requests, as a sum."""
    requests = result["requests"]
    parts = [f"{name} {requests[name]:,}" for name in REQUEST_ENDS]
    if result["unfinished"]:
        parts.append(f"unfinished {result['unfinished']:,}")
    if result["lost"]:
        parts.append(f"LOST {result['lost']:,}")
    return f"submitted {requests['submitted']:,} = {' + '.join(parts)}"


def refused(result: Mapping[str, Any]) -> Iterable[str]:
    """Yield how many requests were refused, and why; and how many rows were bad."""
    why = {
        "infeasible": f"could not fit even alone in {result['limits']['max_kv_blocks']:,} blocks",
        "duplicate": "the id of a live request",
        "invalid": "makes no sense, or its deadline was over when it came",
        "queue_full": "the queue had no room",
    }
    for reason, count in result["refusals"].items():
        yield f"refused {count:,}: {why[reason]}"
    if result["workload"].get("bad_rows"):
        yield f"bad rows skipped: {result['workload']['bad_rows']:,}"


def figure_rows(result: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    """Yield the name and the value of each figure of the whole run."""
    metrics, kv, tokens, batch = (result[name] for name in ("metrics", "kv", "tokens", "batch"))
    blocks = kv["blocks"]
    yield "throughput", f"{metrics['throughput_tokens_per_sec']:,.1f} tokens/s"
    yield "virtual time", f"{result['elapsed_s']:,.3f} s in {result['ticks']:,} ticks"
    yield "GPU utilisation", f"{metrics['gpu_utilization']:.1%} of ticks"
    most = f"{batch['sequences_max']:,}"
    yield "batch", f"{_number(batch['sequences_mean'])} sequences on average, at most {most}"
    share = _percent(kv["blocks_mean"], blocks)
    mean, most = _number(kv["blocks_mean"]), f"{kv['blocks_max']:,}"
    yield "KV blocks", f"{mean} of {blocks:,} on average ({share}), at most {most}"
    yield "output tokens", f"{tokens['output']:,}"
    yield "preemptions", f"{result['preemptions']:,}"
    yield (
        "recomputed tokens",
        f"{tokens['recomputed']:,} ({_percent(tokens['recomputed'], tokens['fed'])} of those fed)",
    )
    ends = ", ".join(f"{reason} {count:,}" for reason, count in result["finish_reasons"].items())
    yield "finish reasons", ends


def time_rows(result: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    """Yield the name of each time that is measured, and its `QUANTILES` in seconds."""
    for label, name in _TIMES.items():
        yield label, *(_number(result[name][quantile], 3) for quantile in QUANTILES)


def user_rows(users: Mapping[str, Mapping[str, Any]]) -> Iterable[Sequence[str]]:
    """Yield each user's name, `USER_COUNTS` and `USER_TIMES`."""
    for name, user in users.items():
        times = (user[figure][q] for figure in ("ttft_s", "latency_s") for q in ("p50", "p99"))
        yield name, *(f"{user[count]:,}" for count in USER_COUNTS), *(_number(t, 3) for t in times)


def _number(value: float | None, decimals: int = 1) -> str:
    return "-" if value is None else f"{value:,.{decimals}f}"


def _percent(part: float | None, whole: float) -> str:
    return "-" if part is None or not whole else f"{part / whole:.1%}"
