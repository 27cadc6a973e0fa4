"""Hypothesis strategies of machines and workloads, small enough to run short of everything."""

from typing import NamedTuple

from hypothesis import strategies as st
from support.builders import a_request
from support.core_checks import Recorder, assert_invariants

from batchproof import Limits, Request, Scheduler, SimulatedGPU
from batchproof.sched.errors import InfeasibleRequestError
from batchproof.sched.policy.protocol import Policy


class Arrival(NamedTuple):
    tick: int
    prompt: int
    max_tokens: int
    user: str
    cancelled_after: int | None
    """Ticks after the arrival at which its user gives up, if ever."""


LIMITS = st.builds(
    Limits,
    max_kv_blocks=st.integers(2, 14),
    block_size=st.integers(1, 4),
    chunk_size=st.integers(1, 9),
    token_budget=st.integers(1, 24),
    max_batch_size=st.integers(1, 6),
)
ARRIVALS = st.lists(
    st.builds(
        Arrival,
        tick=st.integers(0, 6),
        prompt=st.integers(1, 9),
        max_tokens=st.integers(1, 16),
        user=st.sampled_from("abc"),
        cancelled_after=st.none() | st.none() | st.integers(0, 20),
    ),
    min_size=2,
    max_size=10,
)


class Played(NamedTuple):
    scheduler: Scheduler
    gpu: SimulatedGPU
    recorder: Recorder
    accepted: list[Request]
    refused: list[Request]


def play(
    limits: Limits,
    arrivals: list[Arrival],
    policy: str | Policy,
    abandoned: frozenset[int] = frozenset(),
    ticks_max: int = 3_000,
) -> Played:
    """Run a workload to its end; the invariants hold after every call.

    In each tick of `abandoned` the batch is first abandoned once.
    """
    gpu = SimulatedGPU(limits, eos_rate=1 / 16)
    recorder = Recorder()
    scheduler = Scheduler(limits, policy, gpu, observer=recorder)
    recorder.watch(scheduler)
    requests = [a_request(f"r{i}", a.prompt, a.max_tokens, a.user) for i, a in enumerate(arrivals)]
    played = Played(scheduler, gpu, recorder, [], [])
    last = max(a.tick for a in arrivals)
    for tick in range(ticks_max):
        for request, arrival in zip(requests, arrivals, strict=True):
            if arrival.tick == tick:
                _submit(played, request)
            if arrival.cancelled_after == tick - arrival.tick:
                live = request.phase not in (None, "done")
                assert scheduler.cancel(request.request_id) == live
                assert_invariants(scheduler)
        if tick > last and not scheduler.has_active():
            return played
        if tick in abandoned:
            scheduler.abandon(scheduler.schedule())
            assert_invariants(scheduler)
        live = scheduler.has_active()
        scheduler.tick()
        assert_invariants(scheduler)
        assert bool(recorder.log[-1]) == live, "rule 7: a tick with live requests feeds somebody"
    raise AssertionError(f"not at an end after {ticks_max} ticks: {scheduler.stats()['live']}")


def _submit(played: Played, request: Request) -> None:
    limits = played.scheduler.limits
    need = limits.blocks_at_peak(len(request.prompt), request.max_tokens)
    try:
        played.scheduler.submit(request)
    except InfeasibleRequestError:
        assert need > limits.max_kv_blocks
        played.refused.append(request)
    else:
        assert need <= limits.max_kv_blocks
        played.accepted.append(request)
    assert_invariants(played.scheduler)
