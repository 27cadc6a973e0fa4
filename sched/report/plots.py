"""A comparison as plots, the same bytes every time; colours that the colour-blind tell apart."""

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from batchproof.sched.compare import Case, Comparison, Pair, Run

FORMATS: Final = ("svg", "png")
USERS_SHOWN: Final = 8
"""Users that have a colour of their own: beyond it, the lightest are shown together."""
OTHERS: Final = "others"

_STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "batchproof",
    "svg.fonttype": "path",
    "path.simplify": True,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#5b6675",
    "axes.labelcolor": "#1b2330",
    "axes.grid": True,
    "grid.color": "#e3e7ed",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": "#5b6675",
    "ytick.color": "#5b6675",
    "text.color": "#1b2330",
    "legend.frameon": False,
}
# The palette of Okabe and Ito (2008), without its yellow, which is faint on white.
POLICY_LOOKS: Final[Mapping[str, tuple[str, str, str]]] = {
    "fair-lane": ("#0072b2", "o", "-"),
    "stall-free": ("#d55e00", "s", "-"),
    "vllm-v1": ("#000000", "D", ":"),
    "vtc": ("#009e73", "^", "-"),
    "orca": ("#cc79a7", "v", "-"),
    "prefill-first": ("#e69f00", "P", "-"),
    "static": ("#56b4e9", "X", "-"),
}
"""Policy -> colour, marker and line."""
_MUTED: Final = "#5b6675"
_CDF_POINTS: Final = 50
_DECADE: Final = 10.0
"""Where the largest value is so many times the smallest, the axis is logarithmic."""


def comparison_plots(comparison: Comparison) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each plot: four for each workload and latency model."""
    for pair in comparison.capacities:
        runs = {case: run for case, run in comparison.runs.items() if case.pair == pair}
        if not runs:
            continue
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", f"{pair.workload}-{pair.latency}")
        for name, draw in _PLOTS.items():
            with rc_context(_STYLE):
                figure = draw(pair, runs, comparison.capacities[pair])
                for file_format in FORMATS:
                    yield f"{slug}-{name}.{file_format}", _rendered(figure, file_format)


def _rendered(figure: Figure, file_format: str) -> bytes:
    out = io.BytesIO()
    unstamped = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
    figure.savefig(out, format=file_format, dpi=110, metadata=unstamped[file_format])
    return out.getvalue()


def _throughput(pair: Pair, runs: Mapping[Case, Run], rate: float) -> Figure:
    figure, axes = _against_load(pair, "Throughput against load", rate)
    lines = _policy_lines(axes, runs, lambda run: run.stats["metrics"]["throughput_tokens_per_sec"])
    limits = {case.load: run.stats["tokens"]["output"] / run.limit_s for case, run in runs.items()}
    loads = sorted(limits)
    lines["limit"] = loads, [limits[load] for load in loads], _MUTED
    axes.plot(*lines["limit"][:2], color=_MUTED, linestyle="--", linewidth=1.2)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("output tokens per second")
    _label_ends(axes, lines)
    return figure


def _tbt(pair: Pair, runs: Mapping[Case, Run], rate: float) -> Figure:
    figure, axes = _against_load(pair, "TBT p99 against load", rate)
    lines = _policy_lines(axes, runs, lambda run: run.stats["tbt_s"]["p99"] * 1e3)
    values = [value for _, line, _ in lines.values() for value in line]
    if values and max(values) > _DECADE * min(values):
        _log_axis(axes, "y")
    else:
        axes.set_ylim(bottom=0)
    axes.set_ylabel("TBT p99 (ms)")
    _label_ends(axes, lines)
    return figure


def _against_load(pair: Pair, title: str, rate: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.6, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(f"{title}: {pair.workload}, {pair.latency}")
    axes.set_xlabel(f"load (1 is the capacity, {rate:.1f} requests per second)")
    return figure, axes


_Line = tuple[list[float], list[float], str]


def _policy_lines(
    axes: Axes, runs: Mapping[Case, Run], value: Callable[[Run], float]
) -> dict[str, _Line]:
    """Draw one line for each policy; return what was drawn, by policy, with its colour."""
    lines: dict[str, _Line] = {}
    for policy in dict.fromkeys(case.policy for case in runs):
        at_load = {case.load: value(run) for case, run in runs.items() if case.policy == policy}
        points = sorted(point for point in at_load.items() if isfinite(point[1]))
        if points:
            colour, marker, style = POLICY_LOOKS.get(policy, (_MUTED, "o", "-"))
            loads, values = [load for load, _ in points], [at for _, at in points]
            axes.plot(loads, values, color=colour, marker=marker, linestyle=style, markersize=5)
            lines[policy] = loads, values, colour
    return lines


def _label_ends(axes: Axes, lines: Mapping[str, _Line]) -> None:
    """Name each line at its right end, moved apart where they would overlap."""
    to_fraction = axes.transData - axes.transAxes
    wanted = sorted(
        (float(to_fraction.transform((loads[-1], values[-1]))[1]), name)
        for name, (loads, values, _) in lines.items()
    )
    heights = apart([height for height, _ in wanted])
    for (_, name), height in zip(wanted, heights, strict=True):
        axes.text(1.03, height, name, color=lines[name][2], va="center", transform=axes.transAxes)


def apart(wanted: Sequence[float], gap: float = 0.055) -> list[float]:
    """Return heights at least `gap` apart, near those wanted, which are sorted; at most 1."""
    heights = list(wanted)
    for place in range(1, len(heights)):
        heights[place] = max(heights[place], heights[place - 1] + gap)
    ceiling = 1.0
    for place in range(len(heights) - 1, -1, -1):
        heights[place] = min(heights[place], ceiling)
        ceiling = heights[place] - gap
    return heights


def _log_axis(axes: Axes, which: str) -> None:
    """Make an axis logarithmic, with plain numbers on it."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    getattr(axes, f"set_{which}scale")("log")
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(base=10, subs=(1.0,) if which == "x" else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _ttft_by_user(pair: Pair, runs: Mapping[Case, Run], _rate: float) -> Figure:
    chosen, load = _at_highest_load(runs)
    users = _users(chosen)
    figure, panels = _panels(chosen, in_row=4)
    for (policy, run), axes in zip(chosen.items(), panels, strict=True):
        for user, colour in users.items():
            axes.step(*_cdf(_ttft_of(run, user, users)), where="post", color=colour, linewidth=1.3)
        _log_axis(axes, "x")
        axes.set_title(policy)
        axes.set_ylim(0, 1.02)
    _finish(figure, users, f"TTFT of each user's requests at load {load:g}", pair)
    figure.supxlabel("TTFT (s)", fontsize=9)
    figure.supylabel("fraction of the user's requests", fontsize=9)
    return figure


def _ttft_of(run: Run, user: str, users: Mapping[str, str]) -> list[float]:
    """Return a user's TTFTs, or those of all who are not shown, shortest first."""
    return sorted(
        seconds
        for name, times in run.users.items()
        if name == user or (user == OTHERS and name not in users)
        for seconds in times.ttft_s
    )


def _cdf(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return values and the fraction that is at or below each, at `_CDF_POINTS` of them."""
    count = min(len(values), _CDF_POINTS)
    places = [-(-step * len(values) // count) for step in range(1, count + 1)]
    return [values[place - 1] for place in places], [place / len(values) for place in places]


def _share_over_time(pair: Pair, runs: Mapping[Case, Run], _rate: float) -> Figure:
    chosen, load = _at_highest_load(runs)
    users = _users(chosen)
    figure, panels = _panels(chosen, in_row=2)
    for (policy, run), axes in zip(chosen.items(), panels, strict=True):
        starts = [place * run.window_s for place in range(len(run.fed) + 1)]
        shares = [_shares(run.fed, user, users) for user in users]
        axes.stackplot(starts, shares, colors=[*users.values()], step="post", linewidth=0)
        axes.set_title(policy)
        axes.set_ylim(0, 1)
        axes.margins(x=0)
        axes.grid(visible=False)
    _finish(figure, users, f"Share of each user in the tokens fed at load {load:g}", pair)
    figure.supxlabel("time (s)", fontsize=9)
    figure.supylabel("fraction of the tokens fed", fontsize=9)
    return figure


def _shares(fed: Sequence[Counter[str]], user: str, users: Mapping[str, str]) -> list[float]:
    """Return a user's share in each window; the last stands twice, to be drawn to its end."""
    shares = []
    for window in fed:
        total = window.total()
        if user == OTHERS:
            tokens = sum(count for name, count in window.items() if name not in users)
        else:
            tokens = window[user]
        shares.append(tokens / total if total else 0.0)
    return [*shares, shares[-1]]


def _at_highest_load(runs: Mapping[Case, Run]) -> tuple[dict[str, Run], float]:
    load = max(case.load for case in runs)
    return {case.policy: run for case, run in runs.items() if case.load == load}, load


def _users(runs: Mapping[str, Run]) -> dict[str, str]:
    """Return the users shown, heaviest first, with colours from dark to light."""
    fed = sum((Counter(window) for window in next(iter(runs.values())).fed), Counter[str]())
    heaviest = sorted(fed, key=lambda user: (-fed[user], user))
    if len(heaviest) > USERS_SHOWN:
        heaviest = [*heaviest[: USERS_SHOWN - 1], OTHERS]
    steps = max(len(heaviest) - 1, 1)
    colours = colormaps["viridis"]
    return {user: _hex(colours(0.9 * place / steps)) for place, user in enumerate(heaviest)}


def _hex(colour: Sequence[float]) -> str:
    return "#" + "".join(f"{round(channel * 255):02x}" for channel in colour[:3])


def _panels(runs: Mapping[str, Run], *, in_row: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with a panel for each run; the lowest of each column has the numbers."""
    columns = min(len(runs), in_row)
    rows = -(-len(runs) // columns)
    width = max(8.0 / in_row * columns, 4.0)
    figure = Figure(figsize=(width + 1.2, 1.6 * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    flat = [axes for row in grid for axes in row]
    for place, axes in enumerate(flat):
        axes.set_visible(place < len(runs))
        axes.tick_params(labelbottom=place + columns >= len(runs))
    return figure, flat[: len(runs)]


def _finish(figure: Figure, users: Mapping[str, str], title: str, pair: Pair) -> None:
    """Add the title, and the users' colours beside the panels."""
    from matplotlib.patches import Patch

    figure.suptitle(f"{title}: {pair.workload}, {pair.latency}", fontsize=10, x=0.01, ha="left")
    handles = [Patch(color=colour, label=user) for user, colour in users.items()]
    figure.legend(handles=handles, loc="outside right center", title="user,\nheaviest first")


_PLOTS: Final[Mapping[str, Callable[[Pair, Mapping[Case, Run], float], Figure]]] = {
    "throughput": _throughput,
    "tbt-p99": _tbt,
    "ttft-by-user": _ttft_by_user,
    "share-over-time": _share_over_time,
}
"""End of a file's name -> what draws it."""
