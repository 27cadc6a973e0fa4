"""The table of faults in the code that ships, and the rings that catch each.

`PYTHONPATH=tests python -m faults.shipped_table` writes it, in some minutes.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from faults.shipped_fault import ROOT, ShippedFault, copy_with
from faults.shipped_faults import SHIPPED_FAULTS

PAGE: Final = ROOT / "docs" / "explanation" / "shipped-faults.md"
HEAD: Final = """\
# Seeded faults in the code that ships

Each line is a fault of a few characters, put into a copy of the package that ships, and what each
of the three rings says of that copy:

1. **exhaustive**: every state that the real scheduler reaches under one policy at a small bound, as
   `batchproof check --target scheduler` visits them; the first property of the shortest
   counterexample is named;
2. **random**: runs of `batchproof soak` under all policies, with failing executors and restarts;
   named is what the judge (tokens, reports, traces, counts) or one of the core checks said first;
3. **monitor**: the same runs, with nothing but `Scheduler(monitor=True)`.

A dash says that a ring does not see the fault. None escapes all three; without a fault none of
the three says anything. *raises* means that the code itself stopped: its own checks, of a policy's
plan or of blocks, are the last line of defence. The faults are in `tests/faults/`; the table is
made by `PYTHONPATH=tests python -m faults.shipped_table`.

"""
COLUMNS: Final = """\
| fault | what is wrong | file | 1: exhaustive | 2: random | 3: monitor |
|---|---|---|---|---|---|
"""


def trial(fault: ShippedFault, rings: str = "123") -> dict[str, str | None]:
    """Return what the rings say of a copy of the package with the fault: ring -> what, or None."""
    with TemporaryDirectory() as folder:
        environment = copy_with(fault, Path(folder))
        command = [sys.executable, "-m", "faults.shipped_trial", rings, fault.policy, fault.bound]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, f"{fault.name}: {done.stderr}"
        said = json.loads(done.stdout)
        assert Path(said.pop("package")).is_relative_to(folder), "the fault was not imported"
    return {ring: said[ring] for ring in rings}


def row(fault: ShippedFault, said: dict[str, str | None]) -> str:
    """Return the line of one fault.

    Raises:
        AssertionError: no ring sees it.
    """
    assert any(said.values()), f"{fault.name} survives all three rings"
    cells = " | ".join("–" if what is None else f"`{what}`" for what in said.values())
    return f"| {fault.name} | {fault.story} | `{fault.file}` | {cells} |\n"


def page() -> str:
    """Run every fault through every ring, and return the page."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        outcomes = list(pool.map(trial, SHIPPED_FAULTS))
    caught = [sum(said[ring] is not None for said in outcomes) for ring in "123"]
    totals = (
        f"Of {len(SHIPPED_FAULTS)} faults ring 1 catches {caught[0]}, ring 2 {caught[1]}, "
        f"ring 3 {caught[2]}.\n\n"
    )
    rows = map(row, SHIPPED_FAULTS, outcomes)
    return HEAD + totals + COLUMNS + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page())
