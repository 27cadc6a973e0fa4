"""The bound of what any scheduler can do: exact where one can be, and never beaten."""

from math import ceil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.builders import prompt_of

from batchproof import Limits, Request, Scheduler, SimulatedGPU
from batchproof.sched.bound import (
    KnownRequest,
    Work,
    earliest_end,
    least_seconds,
    least_ticks,
    least_work,
)
from batchproof.sched.latency import LATENCY_MODELS, LatencyModel
from batchproof.sched.policy import POLICIES
from batchproof.sched.request_gen import Arrival
from batchproof.sched.simulation import Simulation

ALL_TERMS = LatencyModel("all", 1.0, 4.0, 2.0, 0.5, 0.25, 0.125)
MODELS = (*LATENCY_MODELS.values(), ALL_TERMS)


def test_the_work_of_one_request_is_counted_tick_by_tick():
    limits = Limits(block_size=4, chunk_size=8)
    # Chunks end at 4, 12 and 20 at the earliest, under 6 blocks each; decodes at 21 and 22.
    assert least_work(limits, KnownRequest(0.0, prompt=20, max_tokens=9, output=3)) == Work(
        tokens=22, sequences=5, block_ticks=6 + 6 + 6 + 6 + 6, context=4 + 12 + 20 + 21 + 22,
        ticks_of_one=5,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "blocks"),
    [
        (KnownRequest(0.0, 3, 1, 1), 1),
        (KnownRequest(0.0, 4, 1, 1), 1),
        (KnownRequest(0.0, 4, 2, 2), 2 + 2),
        (KnownRequest(0.0, 4, 9, 6), 2 + 2 + 2 + 2 + 2 + 3),
    ],
)
def test_the_last_token_needs_no_block(request_, blocks):
    assert least_work(Limits(block_size=4), request_).block_ticks == blocks


def test_a_budget_below_a_chunk_makes_more_chunks():
    one = KnownRequest(0.0, prompt=20, max_tokens=1, output=1)
    assert least_work(Limits(chunk_size=8), one).sequences == 3
    assert least_work(Limits(chunk_size=8, token_budget=5), one).sequences == 4


@pytest.mark.parametrize(
    ("work", "ticks"),
    [
        (Work(ticks_of_one=7), 7),
        (Work(tokens=33, ticks_of_one=1), 4),
        (Work(sequences=31, ticks_of_one=1), 8),
        (Work(block_ticks=101, ticks_of_one=1), 11),
        (Work(), 0),
    ],
)
def test_the_scarcest_limit_says_how_many_ticks(work, ticks):
    limits = Limits(token_budget=10, max_batch_size=4, max_kv_blocks=10)
    assert least_ticks(limits, work) == ticks


def test_every_term_of_a_latency_model_is_in_the_time():
    work = Work(tokens=100, sequences=8, block_ticks=1, context=16, ticks_of_one=10)
    # 10 ticks: fixed 10, linear max(40, 20 + 50), sequences 2, context 2 (ms)
    assert least_seconds(Limits(), ALL_TERMS, work) == pytest.approx(0.084)
    little = work._replace(tokens=10)
    assert least_seconds(Limits(), ALL_TERMS, little) == pytest.approx(0.054)


def test_what_arrives_last_counts_from_its_arrival():
    early, late = KnownRequest(0.0, 64, 100, 100), KnownRequest(9.0, 64, 100, 100)
    linear = LATENCY_MODELS["linear"]
    assert earliest_end(Limits(), linear, [late, early]) == pytest.approx(9.0 + 0.6)
    assert earliest_end(Limits(), linear, [early]) == pytest.approx(0.6)
    assert earliest_end(Limits(), linear, []) == 0.0


NEVER_AT_THE_FLOOR = LatencyModel("no floor", 1.0, 0.0, 2.0, 0.5, 0.25, 0.125)


@pytest.mark.parametrize("latency", [LATENCY_MODELS["linear"], NEVER_AT_THE_FLOOR])
@pytest.mark.parametrize("prompt", [1, 64, 192])
def test_one_request_alone_is_served_in_exactly_the_bound(latency, prompt):
    """With whole chunks there is nothing between the bound and what a scheduler does."""
    end_s, known = served("stall-free", Limits(), latency, [(0.5, "u1", prompt, 40)])
    assert end_s == pytest.approx(earliest_end(Limits(), latency, known))


def served(policy, limits, latency, requests):
    """Run requests given by arrival, user, prompt and max_tokens.

    Return when the last tick ended, and those that were not refused, as known.
    """
    gpu = SimulatedGPU(limits, latency, eos_rate=1 / 8)
    scheduler = Scheduler(limits, policy, gpu)
    arrivals = [
        Arrival(at_s, Request(user, prompt_of(f"r{n}", prompt), max_tokens, f"r{n}"))
        for n, (at_s, user, prompt, max_tokens) in enumerate(sorted(requests))
    ]
    assert Simulation(scheduler, gpu, arrivals).run()
    known = [
        KnownRequest(at_s, len(request.prompt), request.max_tokens, len(request.generated))
        for at_s, request in arrivals
        if request.finish_reason
    ]
    return gpu.now(), known


LIMITS = st.builds(
    Limits,
    max_kv_blocks=st.integers(4, 16),
    block_size=st.integers(1, 5),
    chunk_size=st.integers(1, 9),
    token_budget=st.integers(1, 24),
    max_batch_size=st.integers(1, 6),
)
REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 40).map(lambda n: n / 100),
        st.sampled_from("abc"),
        st.integers(1, 16),
        st.integers(1, 20),
    ),
    min_size=1,
    max_size=9,
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(limits=LIMITS, requests=REQUESTS, latency=st.sampled_from(MODELS))
def test_no_policy_beats_the_bound(policy, limits, requests, latency):
    end_s, known = served(policy, limits, latency, requests)
    if known:
        assert end_s >= earliest_end(limits, latency, known) * (1 - 1e-9)


def test_a_full_machine_comes_close_to_the_bound():
    """So that the bound is worth being a fraction of: equal requests that fill every batch."""
    limits = Limits(max_kv_blocks=4096, token_budget=128, max_batch_size=128)
    gpu = SimulatedGPU(limits, eos_rate=0)
    scheduler = Scheduler(limits, "stall-free", gpu)
    for number in range(500):
        scheduler.submit(Request("u1", prompt_of("r", 64), 64, f"r{number}"))
    while scheduler.has_active():
        scheduler.tick()
    known = [KnownRequest(0.0, 64, 64, 64)] * 500
    bound_s = earliest_end(limits, gpu.latency, known)
    assert bound_s <= gpu.now() < 1.1 * bound_s
    work = Work(tokens=500 * 127, sequences=500 * 64, ticks_of_one=64)
    assert least_ticks(limits, work) == ceil(500 * 127 / 128)
