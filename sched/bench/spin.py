"""SPIN on the Promela twin of `mini-batch`: the independent checker to compare with."""

import re
import resource
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from batchproof.spec.mini_batch import Size

TOOLS = ("spin", "gcc")


@dataclass(frozen=True)
class SpinCount:
    """What one exhaustive search of SPIN counted, and its cost without compilation."""

    states: int
    transitions: int
    """One more than the steps: SPIN counts the way to the initial state."""
    errors: int
    cpu_s: float


def missing_tools() -> list[str]:
    """Return which of the tools are not installed."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def run_spin(model: Path, size: Size, folder: Path) -> SpinCount:
    """Check a Promela file at a size for safety, with everything that is written in `folder`.

    Raises `subprocess.CalledProcessError` if one of the tools fails.
    """
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
    shutil.copy(model, folder)
    _run(
        ["spin", "-a", *(f"-D{name}={value}" for name, value in defines.items()), model.name],
        folder,
    )
    _run(["gcc", "-O2", "-w", "-DSAFETY", "-o", "pan", "pan.c"], folder)
    before = _children_cpu_s()
    output = _run(["./pan", "-w24"], folder)
    cpu_s = _children_cpu_s() - before
    return SpinCount(
        states=_number(output, r"(\d+) states, stored"),
        transitions=_number(output, r"(\d+) transitions"),
        errors=_number(output, r"errors: (\d+)"),
        cpu_s=cpu_s,
    )


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _number(output: str, pattern: str) -> int:
    found = re.search(pattern, output)
    if found is None:
        raise ValueError(f"SPIN printed nothing like {pattern!r}")
    return int(found.group(1))
