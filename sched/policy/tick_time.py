"""How long a batch would take, fitted to the ticks of late: T = a + b tokens + g sequences.

In integers, nanoseconds and exact sums, so that the same ticks give the same
answers everywhere. The fit is worked out when asked for, and counts for nothing
while the ticks do not tell tokens from sequences or do not fit a plane.
"""

from collections import deque
from collections.abc import Hashable
from typing import Any, Final, NamedTuple

WINDOW: Final = 128
"""Ticks that the fit is made from."""
TICKS_MIN: Final = 16
"""With fewer ticks there is no fit."""
ERROR_MAX_PERCENT: Final = 5
"""A fit whose error is larger, against the time itself, counts for nothing."""
NEAR_TICKS_MIN: Final = 2
"""Nor does one that has seen fewer batches of about the size that is asked for."""


class Fit(NamedTuple):
    """Times in a unit of their own: they can be compared, and multiplied by constants."""

    fixed: int
    token: int
    sequence: int

    def time(self, tokens: int, sequences: int) -> int:
        """Return the time of a batch."""
        return self.fixed + self.token * tokens + self.sequence * sequences


class TickTime:
    """The ticks of late, each (tokens, sequences, nanoseconds), and the fit to them."""

    __slots__ = ("_ticks",)

    def __init__(self) -> None:
        self._ticks: deque[tuple[int, int, int]] = deque(maxlen=WINDOW)

    def add(self, tokens: int, sequences: int, seconds: float) -> None:
        """Take a tick into the window; one that took no time says nothing."""
        if seconds > 0:
            self._ticks.append((tokens, sequences, round(seconds * 1e9)))

    def fit(self, sequences: int) -> Fit | None:
        """Return the least-squares fit to the window, or None where there is none to trust.

        It is trusted for small batches if it holds for those seen that have at most
        twice as many `sequences`: far from all that it has seen it may be far off.
        """
        count = len(self._ticks)
        if count < TICKS_MIN:
            return None
        n, s, t = map(sum, zip(*self._ticks, strict=True))

        def covariance(one: int, other: int) -> int:
            both = sum(tick[one] * tick[other] for tick in self._ticks)
            return count * both - (n, s, t)[one] * (n, s, t)[other]

        nn, ss, tt = covariance(0, 0), covariance(1, 1), covariance(2, 2)
        ns, nt, st = covariance(0, 1), covariance(0, 2), covariance(1, 2)
        unit = nn * ss - ns * ns
        token, sequence = nt * ss - st * ns, st * nn - nt * ns
        squares = tt * unit - token * nt - sequence * st
        if not unit or squares * 100**2 > t * t * unit * ERROR_MAX_PERCENT**2:
            return None
        token, sequence = max(token, 0), max(sequence, 0)
        fixed = t * unit - token * n - sequence * s
        fit = Fit(max(fixed, 0), token * count, sequence * count)
        near = [tick for tick in self._ticks if tick[1] <= 2 * sequences]
        off = sum(abs(fit.time(n, s) - t * unit * count) for n, s, t in near)
        time = sum(t * unit * count for _, _, t in near)
        trusted = len(near) >= NEAR_TICKS_MIN and off * 100 <= time * ERROR_MAX_PERCENT
        return fit if trusted else None

    def state(self) -> Hashable:
        """Return the window."""
        return tuple(self._ticks)

    def restore(self, state: Any) -> None:
        """Become as a `TickTime` was whose `state` returned this."""
        self._ticks = deque(((n, s, t) for n, s, t in state), maxlen=WINDOW)
