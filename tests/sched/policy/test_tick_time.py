"""The fit of ticks' times by examples: what it says, and when it says nothing.

A tick is (tokens, sequences, nanoseconds).
"""

from collections.abc import Callable

import pytest

from batchproof.sched.policy.tick_time import Fit, TickTime

Tick = tuple[int, int, int]
SMALL = [(n, s) for s in (1, 2, 3, 4) for n in (8, 16, 32, 64)]
LARGE = [(n, s) for s in (20, 30, 40, 50) for n in (60, 120, 240, 480)]
"""Sixteen batches of different sizes: just enough for a fit."""


def fit_to(ticks: list[Tick], sequences: int) -> Fit | None:
    times = TickTime()
    times.restore(ticks)
    return times.fit(sequences)


def on_plane(fixed: int, token: int, sequence: int, sizes: list[tuple[int, int]]) -> list[Tick]:
    return [(n, s, fixed + token * n + sequence * s) for n, s in sizes]


def test_it_finds_the_plane_that_the_ticks_lie_on() -> None:
    times = TickTime()
    for index in range(40):
        tokens, sequences = 10 + 37 * index % 400, 1 + index * 7 % 30
        times.add(tokens, sequences, 5e-3 + 20e-6 * tokens + 1e-3 * sequences)
    fit = times.fit(4)
    assert fit is not None
    assert fit.time(500, 10) / fit.time(10, 1) == pytest.approx(25 / 6.2, rel=1e-3)


@pytest.mark.parametrize(
    ("fixed", "token", "sequence"),
    [(1000, 20, 300), (0, 20, 300), (1000, 0, 300), (1000, 20, 0)],
    ids=["all", "no fixed part", "tokens cost nothing", "sequences cost nothing"],
)
def test_parts_of_the_time_are_as_each_other_exactly(fixed: int, token: int, sequence: int) -> None:
    fit = fit_to(on_plane(fixed, token, sequence, SMALL), 4)
    assert fit is not None
    unit = sum(fit) // (fixed + token + sequence)
    assert fit == (fixed * unit, token * unit, sequence * unit)


@pytest.mark.parametrize(
    ("time", "free"),
    [
        (lambda n, s: 100_000 - n, "token"),
        (lambda n, s: 100_000 - s, "sequence"),
        (lambda n, s: 1000 * n + 100 * s - 50, "fixed"),
    ],
    ids=["tokens", "sequences", "the fixed part"],
)
def test_no_part_takes_less_than_no_time(time: Callable[[int, int], int], free: str) -> None:
    fit = fit_to([(n, s, time(n, s)) for n, s in SMALL], 4)
    assert fit is not None
    assert getattr(fit, free) == 0


def test_a_tick_is_kept_to_the_nanosecond_and_one_that_took_no_time_is_not() -> None:
    times = TickTime()
    times.add(8, 2, 1.5)
    times.add(9, 3, 0.0)
    times.add(10, 4, 1e-9)
    assert times.state() == ((8, 2, 1_500_000_000), (10, 4, 1))


@pytest.mark.parametrize(("count", "is_trusted"), [(16, True), (15, False)])
def test_it_says_nothing_of_fewer_than_16_ticks(count: int, is_trusted: bool) -> None:
    assert (fit_to(on_plane(1000, 20, 300, SMALL)[-count:], 4) is not None) == is_trusted


@pytest.mark.parametrize(("noise", "is_trusted"), [(200, True), (201, False)])
def test_it_says_nothing_where_the_error_is_more_than_a_twentieth_of_the_time(
    noise: int, is_trusted: bool
) -> None:
    # Noise in a quarter of the ticks: by root mean square, half of it. The mean time is 2,000.
    ticks = [
        (n, s, 1000 + 30 * n + 200 * s + sign * noise * (n == 30 and s == 3))
        for n in (10, 30)
        for s in (1, 3)
        for sign in (1, -1, 1, -1)
    ]
    assert (fit_to(ticks, 3) is not None) == is_trusted


@pytest.mark.parametrize(("time", "is_trusted"), [(2000, True), (1999, False)])
def test_it_says_nothing_where_the_error_is_more_than_a_twentieth_of_small_batches_times(
    time: int, is_trusted: bool
) -> None:
    # The small batches have one sequence; against the times of all the error is a fiftieth.
    ticks = [
        (n, s, time + 1000 * (s - 1) + sign * 100)
        for n in (10, 30)
        for s in (1, 3, 5, 7)
        for sign in (1, -1)
    ]
    assert (fit_to(ticks, 1) is not None) == is_trusted


@pytest.mark.parametrize(("sequences", "is_trusted"), [(10, True), (9, False)])
def test_small_batches_are_those_of_at_most_twice_the_sequences_asked_for(
    sequences: int, is_trusted: bool
) -> None:
    # Of those seen, the smallest have 20.
    assert (fit_to(on_plane(1000, 20, 300, LARGE), sequences) is not None) == is_trusted


@pytest.mark.parametrize(("near", "is_trusted"), [(2, True), (1, False)])
def test_it_says_nothing_of_batches_like_which_it_has_seen_fewer_than_two(
    near: int, is_trusted: bool
) -> None:
    sizes = [*LARGE, *SMALL[:near]]
    assert (fit_to(on_plane(1000, 20, 300, sizes), 1) is not None) == is_trusted


def test_it_says_nothing_of_ticks_that_do_not_tell_tokens_from_sequences() -> None:
    assert fit_to([(n, n, 1000 * n + 1000) for n in range(1, 41)], 4) is None


def test_it_says_nothing_where_the_small_ones_lie_off_the_plane() -> None:
    ticks = on_plane(5000, 20, 1000, LARGE * 5)
    assert fit_to([*ticks, (64, 1, 7280), (64, 1, 7280)], 2) is not None
    assert fit_to([*ticks, (64, 1, 4000), (64, 1, 4000)], 2) is None


def test_it_says_nothing_while_it_fits_badly() -> None:
    assert fit_to([(n, s, 1000 * (1 + n // 16 % 2)) for n, s in SMALL], 4) is None


def test_the_ticks_of_late_are_the_last_128_restored_or_not() -> None:
    times, restored = TickTime(), TickTime()
    for index in range(128):
        times.add(index, 1, 1.0)
    restored.restore(times.state())
    for kept in (times, restored):
        kept.add(128, 1, 1.0)
        assert kept.state() == tuple((n, 1, 10**9) for n in range(1, 129))
