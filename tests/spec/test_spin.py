"""SPIN, an independent checker, run on a twin of `mini-batch`: it must count the same states.

`BATCHPROOF_SPIN_BOUNDS=C1,C2,C3` asks for more bounds than the quick ones.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from batchproof.spec.fast_search import FastSearch
from batchproof.spec.mini_batch_family import BOUNDS
from batchproof.spec.mini_batch_packed import PackedMiniBatch

MODEL = Path(__file__).with_name("mini_batch.pml")
MISSING = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


@pytest.mark.parametrize("name", os.environ.get("BATCHPROOF_SPIN_BOUNDS", "C1,C2").split(","))
def test_spin_counts_the_same_states_and_steps(name, tmp_path):
    size = BOUNDS[name].parameters
    defines = {
        "N": size.requests,
        "CAP": size.cap,
        "BUDGET": size.budget,
        "MAXBATCH": size.max_batch,
        "PROMPT": size.prompt,
        "MAXTOKENS": size.max_tokens,
        "BLOCK": size.block,
        "CHUNK": size.chunk,
    }
    shutil.copy(MODEL, tmp_path)
    run = {"cwd": tmp_path, "check": True, "capture_output": True, "text": True}
    subprocess.run(["spin", "-a", *(f"-D{k}={v}" for k, v in defines.items()), MODEL.name], **run)
    subprocess.run(["gcc", "-O2", "-w", "-DSAFETY", "-o", "pan", "pan.c"], **run)
    output = subprocess.run(["./pan", "-w22"], **run).stdout
    assert "errors: 0" in output
    states = int(re.search(r"(\d+) states, stored", output).group(1))
    transitions = int(re.search(r"(\d+) transitions", output).group(1))
    search = FastSearch(PackedMiniBatch(size)).run()
    assert states == search.states == BOUNDS[name].states
    assert transitions - 1 == search.transitions  # SPIN counts its way to the initial state
