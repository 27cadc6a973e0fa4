"""Service level objectives: read from text, and asked of a run's figures."""

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple

from batchproof.sched.errors import InputError

FIGURES: Final = ("ttft", "tbt", "latency")
STATISTICS: Final = ("p50", "p90", "p99", "mean", "max")
SECONDS_OF: Final[Mapping[str, float]] = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
EXAMPLE: Final = "tbt_p99=100ms,ttft_p50=2s"

_OBJECTIVE: Final = re.compile(r"(?P<figure>[a-z]+)_(?P<statistic>[a-z0-9]+)=(?P<limit>.+)")
_LIMIT: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>[a-z]+)")


class Objective(NamedTuple):
    """The most that one figure of a run may be."""

    text: str
    """As it was written."""
    figure: str
    statistic: str
    at_most_s: float

    def is_met(self, stats: Mapping[str, Any]) -> bool:
        """Tell whether the figures of `Scheduler.stats` meet it; no figure at all does."""
        value: float = stats[f"{self.figure}_s"][self.statistic]
        return not value > self.at_most_s


def parse_slo(text: str) -> tuple[Objective, ...]:
    """Return the objectives in a text like `EXAMPLE`; raise `InputError` saying what is wrong."""
    return tuple(_objective(part.strip()) for part in text.split(","))


def _objective(text: str) -> Objective:
    parts = _OBJECTIVE.fullmatch(text)
    if parts is None:
        raise InputError(f"SLO {text!r} cannot be parsed; write it like {EXAMPLE}")
    figure = _one_of(text, "figure", parts["figure"], FIGURES)
    statistic = _one_of(text, "statistic", parts["statistic"], STATISTICS)
    limit = _LIMIT.fullmatch(parts["limit"])
    if limit is None:
        raise InputError(
            f"SLO {text!r}: {parts['limit']!r} is not a number with a unit of "
            f"{', '.join(SECONDS_OF)}; write it like {EXAMPLE}"
        )
    unit = _one_of(text, "unit", limit["unit"], tuple(SECONDS_OF))
    at_most_s = float(limit["number"]) * SECONDS_OF[unit]
    if not (isfinite(at_most_s) and at_most_s > 0):
        raise InputError(f"SLO {text!r}: {parts['limit']} is not a time above 0")
    return Objective(text, figure, statistic, at_most_s)


def _one_of(text: str, what: str, name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise InputError(f"SLO {text!r}: {what} {name!r} is unknown; there are: {', '.join(names)}")
    return name
