"""Generated workloads: what they are made of, and that they are the same everywhere."""

from collections import Counter
from itertools import islice, pairwise
from math import exp, inf, nan
from random import Random

import pytest

from batchproof import Scheduler
from batchproof.sched.errors import InputError
from batchproof.sched.prompts import PromptRing
from batchproof.sched.request_gen import (
    KINDS,
    SEED_MAX,
    PoissonWorkload,
    exponential,
    stream,
    user_names,
)


class Scripted(Random):
    """A generator that yields the numbers that a test wrote down."""

    def __init__(self, numbers):
        super().__init__()
        self._numbers = iter(numbers)

    def random(self):
        return next(self._numbers)


def lengths(workload):
    return [(len(request.prompt), request.max_tokens) for _, request in workload]


def test_stream_yields_n_requests_that_a_scheduler_takes():
    requests = list(stream(50))
    scheduler = Scheduler()
    for request in requests:
        scheduler.submit(request)
    while scheduler.has_active():
        scheduler.tick()
    assert len(requests) == 50
    assert {request.finish_reason for request in requests} == {"eos", "length"}
    assert len({request.user_id for request in requests}) > 1
    assert len({len(request.prompt) for request in requests}) > 10


def test_the_same_seed_is_the_same_workload_on_every_machine():
    workload = PoissonWorkload(requests=3, seed=0)
    assert [
        (at_s, request.request_id, request.user_id, len(request.prompt), request.max_tokens)
        for at_s, request in workload
    ] == [
        (0.117078, "r1", "u8", 220, 151),
        (0.142354, "r2", "u7", 135, 95),
        (0.190969, "r3", "u1", 1266, 26),
    ]
    assert [request.prompt[:3] for _, request in workload] == [
        (18914, 10523, 23265),
        (20324, 23442, 30706),
        (16973, 13694, 443),
    ]


def test_another_seed_is_another_workload():
    assert lengths(PoissonWorkload(100, seed=1)) != lengths(PoissonWorkload(100, seed=2))


def test_more_users_or_a_higher_rate_change_no_lengths():
    base = lengths(PoissonWorkload(100, seed=3))
    assert lengths(PoissonWorkload(100, seed=3, users=50, rate=1.0)) == base


@pytest.mark.parametrize(
    ("draws", "variate"),
    [
        ([0.5, 0.7], 0.5),  # a run of one: its first is the answer
        ([0.5, 0.3, 0.1, 0.2], 0.5),  # of three
        ([0.5, 0.3, 0.9, 0.4, 0.6], 1.4),  # of two: add 1, and another run
        ([0.5, 0.3, 0.9, 0.8, 0.2, 0.3, 0.1, 0.1], 2.1),
    ],
)
def test_an_exponential_variate_is_made_of_comparisons(draws, variate):
    assert exponential(Scripted(draws)) == pytest.approx(variate)


def test_exponential_variates_are_exponential():
    rng = Random(5)
    sample = sorted(exponential(rng) for _ in range(20_000))
    distance = max(abs(i / len(sample) - (1 - exp(-x))) for i, x in enumerate(sample))
    assert distance < 1.63 / len(sample) ** 0.5  # Kolmogorov-Smirnov, 1%


@pytest.mark.parametrize(("rate", "time_scale"), [(4.0, 1.0), (4.0, 0.5)])
def test_arrivals_come_at_the_rate_in_order(rate, time_scale):
    times = [at_s for at_s, _ in PoissonWorkload(4000, rate=rate, time_scale=time_scale)]
    assert all(before <= after for before, after in pairwise(times))
    assert times[-1] == pytest.approx(4000 / rate * time_scale, rel=0.05)


def test_kinds_come_in_their_shares_and_lengths():
    drawn = lengths(PoissonWorkload(20_000, seed=1))
    documents = [pair for pair in drawn if pair[0] > 256]
    stories = [pair for pair in drawn if pair[1] > 192]
    shares = {kind.name: kind.percent / 100 for kind in KINDS}
    assert len(documents) / len(drawn) == pytest.approx(shares["document"], abs=0.01)
    assert len(stories) / len(drawn) == pytest.approx(shares["story"], abs=0.01)
    assert (min(documents)[0], max(documents)[0]) == (257, 1536)
    assert min(drawn)[0] == 16
    assert max(output for _, output in drawn) == 512


def test_users_take_turns_or_follow_zipf():
    assert list(islice(user_names(3, "round-robin", 0), 4)) == ["u1", "u2", "u3", "u1"]
    shares = Counter(islice(user_names(3, "zipf", 0), 11_000))
    assert [shares[f"u{rank}"] / 11_000 for rank in (1, 2, 3)] == pytest.approx(
        [6 / 11, 3 / 11, 2 / 11], abs=0.01
    )


def test_user_names_sort_in_order_of_rank():
    names = list(islice(user_names(10, "round-robin", 0), 10))
    assert names == sorted(names)
    assert names[0] == "u01"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"requests": 0}, "requests is 0, not an int of at least 1"),
        ({"rate": 0.0}, "rate is 0.0, not a number above 0"),
        ({"rate": nan}, "rate is nan, not a number above 0"),
        ({"rate": inf}, "rate is inf, not a number above 0"),
        ({"time_scale": -1.0}, "time_scale is -1.0, not a number above 0"),
        ({"users": 0}, "users is 0, not an int of at least 1"),
        ({"assign": "fair"}, "assignment 'fair' is unknown; there are: zipf, round-robin"),
        ({"seed": -1}, f"seed is -1, not an int from 0 to {SEED_MAX}"),
    ],
)
def test_workloads_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError) as refused:
        PoissonWorkload(**options)
    assert str(refused.value) == message


def test_a_prompt_is_found_in_the_ring_that_made_it():
    ring = PromptRing(4)
    for start, length in [(0, 1), (31_990, 40), (5, 31_999), (7, 100_000)]:
        prompt = ring.prompt(start, length)
        assert len(prompt) == length
        assert ring.find(prompt) == start


def test_a_prompt_of_ones_own_is_not_found_in_the_ring():
    ring = PromptRing(4)
    made = ring.prompt(10, 5)
    assert ring.find((*made[:4], 0)) is None
    assert ring.find((0, 1)) is None
    assert PromptRing(5).find(made) is None


def test_a_ring_holds_every_token_but_the_default_eos_once():
    assert sorted(PromptRing(9).prompt(0, 31_999)) == list(range(1, 32_000))
