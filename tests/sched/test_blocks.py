"""The pool: every block is in it or given out, and undoing in reverse order restores it exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchproof.sched.blocks import BlockPool
from batchproof.sched.errors import MisuseError


def test_blocks_are_numbered_from_0_and_each_is_given_out_once() -> None:
    pool = BlockPool(6)
    assert (pool.free, pool.held) == (6, 0)
    assert sorted(pool.take(2) + pool.take(4)) == [0, 1, 2, 3, 4, 5]
    assert (pool.free, pool.held) == (0, 6)


def test_asking_for_more_than_is_free_takes_nothing() -> None:
    pool = BlockPool(4)
    pool.take(1)
    with pytest.raises(MisuseError, match="4 blocks asked, 3 of 4 free"):
        pool.take(4)
    assert pool.free == 3


def test_taking_none_takes_none() -> None:
    pool = BlockPool(2)
    assert pool.take(0) == []
    assert pool.free == 2


@given(st.lists(st.integers(0, 5), max_size=12))
def test_giving_back_in_reverse_order_restores_the_pool_exactly(counts: list[int]) -> None:
    pool, untouched = BlockPool(20), BlockPool(20)
    taken = [pool.take(count) for count in counts if count <= pool.free]
    for blocks in reversed(taken):
        pool.give(blocks)
    assert pool.take(20) == untouched.take(20)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=40))
def test_blocks_are_conserved_in_any_order_of_taking_and_giving(
    steps: list[tuple[bool, int]],
) -> None:
    pool, holders = BlockPool(12), list[list[int]]()
    for takes, number in steps:
        if takes and number <= pool.free:
            holders.append(pool.take(number))
        elif not takes and holders:
            pool.give(holders.pop(number % len(holders)))
        held = [block for blocks in holders for block in blocks]
        assert len(held) == len(set(held)) == pool.held
        assert pool.free + pool.held == 12
