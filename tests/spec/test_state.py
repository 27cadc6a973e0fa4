"""The arithmetic of the specification, against the scheduler's own and by example."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchproof.sched.config import Limits as SchedulerLimits
from batchproof.spec.state import (
    Limits,
    Live,
    Request,
    State,
    System,
    completes,
    context,
    feedable,
)

DEFAULT = Limits(*(getattr(SchedulerLimits(), name) for name in Limits._fields))


def system(prompt: int, max_tokens: int, **changes: int) -> System:
    return System(DEFAULT._replace(**changes), (Request(0, prompt, max_tokens),))


@given(
    prompt=st.integers(1, 5_000),
    max_tokens=st.integers(1, 500),
    block_size=st.integers(1, 64),
    data=st.data(),
)
def test_blocks_are_those_of_the_scheduler(
    prompt: int, max_tokens: int, block_size: int, data: st.DataObject
) -> None:
    generated = data.draw(st.integers(0, max_tokens - 1))
    ours = system(prompt, max_tokens, block_size=block_size)
    theirs = SchedulerLimits(block_size=block_size)
    assert ours.blocks_at_peak(0) == theirs.blocks_at_peak(prompt, max_tokens)
    assert ours.blocks_to_admit(0, generated) == theirs.blocks_at_admission(
        prompt, generated, max_tokens
    )


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "generated", "blocks", "peak"),
    [
        (15, 10, 0, 1, 2),  # 15 tokens and the one to come fill one block
        (16, 10, 0, 2, 2),
        (16, 1, 0, 1, 1),  # the only token is the last, and needs no slot
        (20, 100, 12, 3, 8),  # 33 tokens after a preemption
        (20, 14, 12, 3, 3),
        (20, 13, 12, 2, 2),  # the token to come is the last
    ],
)
def test_an_admission_takes_context_and_the_token_to_come(
    prompt: int, max_tokens: int, generated: int, blocks: int, peak: int
) -> None:
    one = system(prompt, max_tokens)
    assert one.blocks_to_admit(0, generated) == blocks
    assert one.blocks_at_peak(0) == peak
    reserved = System(one.limits, one.requests, "guaranteed_no_evict")
    assert reserved.blocks_to_admit(0, generated) == peak


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "feasible"),
    [(1, 1, True), (0, 5, False), (5, 0, False), (4_000, 97, True), (4_000, 98, False)],
)
def test_what_could_finish_alone_is_feasible(prompt: int, max_tokens: int, feasible: bool) -> None:
    assert system(prompt, max_tokens).is_feasible(0) is feasible


def test_a_chunk_is_fed_at_most_and_completes_at_the_end_of_the_context() -> None:
    one = system(100, 10)
    live = Live(0, "prefilling", prefilled=40, generated=3, blocks=7)
    assert context(one, live) == 103
    assert feedable(one, live) == 63
    assert feedable(one, live._replace(prefilled=0)) == 64
    assert not completes(one, live, 62)
    assert completes(one, live, 63)
    decode = live._replace(phase="decoding", prefilled=0)
    assert feedable(one, decode) == 1
    assert completes(one, decode, 1)


def test_states_are_values() -> None:
    live = Live(0, "waiting", 0, 0, 0)
    assert State((live,), 4) == State((Live(0, "waiting", 0, 0, 0),), 4)
    assert hash(State((live,), 4)) == hash(State((live,), 4))
    assert State((live,), 4).find(0) is live
    assert State((live,), 4).find(1) is None
    assert list(State((live,), 4).in_phase("decoding")) == []
