"""Plots as SVG for a page: lines over time, and how values are distributed.

Colours are classes, so that the page decides them for light and dark screens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from batchproof.sched.report.html_page import html_text

WIDTH: Final = 640
HEIGHT: Final = 250
_LEFT: Final = 58
_RIGHT: Final = 14
_TOP: Final = 12
_BOTTOM: Final = 40
_STEPS: Final = (1, 2, 5, 10)

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A line: its name, the class that colours it, and its points, in order of x."""

    name: str
    colour: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Axis:
    """What is along one side: a label, and the range, of which `low` is above 0 if `log`."""

    label: str
    low: float
    high: float
    log: bool = False

    def part(self, value: float) -> float:
        """Return where a value is, 0 at the low end and 1 at the high one."""
        if self.log:
            span = log10(self.high / self.low)
            return log10(max(value, self.low) / self.low) / span
        return (value - self.low) / (self.high - self.low)

    def marks(self) -> list[float]:
        """Return round values to be written along it."""
        if self.log:
            powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
            times = (1,) if len(powers) > 4 else (1, 2, 5)
            marks = (by * 10.0**power for power in powers for by in times)
            return [mark for mark in marks if self.low <= mark <= self.high]
        rough = (self.high - self.low) / 5
        power = 10.0 ** floor(log10(rough))
        step = next(times * power for times in _STEPS if times * power >= rough)
        return [n * step for n in range(ceil(self.low / step), floor(self.high / step + 1e-9) + 1)]


def plot(
    title: str, x: Axis, y: Axis, series: Sequence[Series], limit: tuple[str, float] | None = None
) -> str:
    """Return a figure: the lines, a key if there are several, and a `limit` as a dashed line."""
    parts = [
        *_grid(x, y),
        *(_line(x, y, one) for one in series),
        *([] if limit is None else _limit(y, *limit)),
    ]
    shapes = "\n".join(parts)
    return (
        f'<figure class="plot"><figcaption>{html_text(title)}{_key(series)}</figcaption>\n'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html_text(title)}">\n'
        f"{shapes}\n</svg></figure>"
    )


def distribution(values: Sequence[float]) -> list[Point]:
    """Return the share of `values` that are at most x, as the corners of a step line."""
    ordered = sorted(values)
    points: list[Point] = []
    for rank, value in enumerate(ordered):
        points += [(value, rank / len(ordered)), (value, (rank + 1) / len(ordered))]
    return _thinned(points)


def most_by_time(values: Sequence[Point], end: float, bins: int = 500) -> list[Point]:
    """Return the most of (time, value) pairs in each of `bins` equal parts of the time to `end`."""
    most: dict[int, float] = {}
    for time, value in values:
        place = _bin(time, end, bins)
        most[place] = max(value, most.get(place, value))
    return [((place + 0.5) * end / bins, value) for place, value in sorted(most.items())]


def rate_by_time(amounts: Sequence[Point], end: float, bins: int = 100) -> list[Point]:
    """Return the sum of (time, amount) pairs a second, in each of `bins` parts of the time."""
    sums = [0.0] * bins
    for time, amount in amounts:
        sums[_bin(time, end, bins)] += amount
    return [((place + 0.5) * end / bins, total * bins / end) for place, total in enumerate(sums)]


def _bin(time: float, end: float, bins: int) -> int:
    return min(bins - 1, int(time / end * bins)) if end > 0 else 0


def _thinned(points: list[Point], most: int = 1_200) -> list[Point]:
    """Return about `most` of the points, first and last among them."""
    every = len(points) // most + 1
    return points[::every] + points[-1:] if every > 1 else points


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.part(value) * (WIDTH - _LEFT - _RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - _BOTTOM - axis.part(value) * (HEIGHT - _TOP - _BOTTOM)


def _grid(x: Axis, y: Axis) -> Iterator[str]:
    bottom = HEIGHT - _BOTTOM
    for value in y.marks():
        at = _y(y, value)
        yield f'<path class="grid" d="M{_LEFT} {at:.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 7}" y="{at + 4:.1f}" class="end">{_number(value)}</text>'
    for value in x.marks():
        at = _x(x, value)
        yield f'<path class="grid" d="M{at:.1f} {_TOP}V{bottom}"/>'
        yield f'<text x="{at:.1f}" y="{bottom + 16}" class="middle">{_number(value)}</text>'
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 6}" class="middle label">{html_text(x.label)}</text>'
    upright = f"rotate(-90 13 {(_TOP + bottom) / 2})"
    yield (
        f'<text x="13" y="{(_TOP + bottom) / 2}" class="middle label" '
        f'transform="{upright}">{html_text(y.label)}</text>'
    )


def _line(x: Axis, y: Axis, series: Series) -> str:
    points = " ".join(f"{_x(x, at):.1f},{_y(y, value):.1f}" for at, value in series.points)
    return f'<polyline class="line {series.colour}" points="{points}"/>'


def _limit(y: Axis, name: str, value: float) -> Iterator[str]:
    at = _y(y, value)
    yield f'<path class="limit" d="M{_LEFT} {at:.1f}H{WIDTH - _RIGHT}"/>'
    place = f'x="{WIDTH - _RIGHT - 4}" y="{at - 5:.1f}"'
    yield f'<text {place} class="end alarm">{html_text(name)}</text>'


def _key(series: Sequence[Series]) -> str:
    if len(series) < 2:
        return ""
    return "".join(
        f'<span class="key"><i class="{one.colour}"></i>{html_text(one.name)}</span>'
        for one in series
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:.3g}"
