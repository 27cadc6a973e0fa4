"""SPIN, an independent checker, run on a twin of `mini-batch`: it must count the same states.

`BATCHPROOF_SPIN_BOUNDS=C1,C2,C3` asks for more bounds than the quick ones.
"""

import os
from pathlib import Path

import pytest

from batchproof.sched.bench.spin import missing_tools, run_spin
from batchproof.spec.fast_search import FastSearch
from batchproof.spec.mini_batch import Size
from batchproof.spec.mini_batch_family import BOUNDS
from batchproof.spec.mini_batch_packed import PackedMiniBatch

MODEL = Path(__file__).with_name("mini_batch.pml")

pytestmark = pytest.mark.skipif(
    bool(missing_tools()), reason=f"not installed: {', '.join(missing_tools())}"
)


def assert_same(size, folder):
    spin = run_spin(MODEL, size, folder)
    search = FastSearch(PackedMiniBatch(size)).run()
    assert spin.errors == 0
    assert spin.states == search.states
    assert spin.transitions == search.transitions + 1
    return spin.states


@pytest.mark.parametrize("name", os.environ.get("BATCHPROOF_SPIN_BOUNDS", "C1,C2").split(","))
def test_spin_counts_the_same_states_and_steps(name, tmp_path):
    assert assert_same(BOUNDS[name].parameters, tmp_path) == BOUNDS[name].states


def test_so_it_does_at_another_size(tmp_path):
    size = Size(requests=4, cap=9, budget=5, max_batch=3, prompt=5, max_tokens=3, block=3, chunk=4)
    assert_same(size, tmp_path)
