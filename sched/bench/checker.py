"""What the checker costs on `mini-batch`, in CPU time, beside SPIN where that is installed."""

import importlib.util
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

from batchproof.sched.bench.spin import missing_tools, run_spin
from batchproof.spec.checker import check
from batchproof.spec.mini_batch_family import CAN_ALL_END, MODEL_FAMILY
from batchproof.spec.search import Search

FULL = ("C2", "C3", "C4")
REDUCED = ("C2", "C3", "C4", "R30")
SPIN = ("C2", "C3")
PROMELA = Path(__file__).resolve().parents[2] / "tests" / "spec" / "mini_batch.pml"
"""The Promela twin, which is in a checkout and not in the installed package."""


def measure() -> dict[str, Any]:
    """Return all measurements of this file as one JSON-ready object."""
    return {
        "reduced": {name: _reduced(name) for name in REDUCED},
        "plain_full": {"C2": _plain_full("C2")},
        "full": {name: _full_apart(name) for name in FULL},
        "spin": _spin(),
    }


def _reduced(name: str) -> dict[str, Any]:
    """Measure all properties, safety and liveness, with the model's reductions."""
    bound = MODEL_FAMILY.bounds[name]
    start = process_time()
    report = check(
        MODEL_FAMILY.build(bound, None), MODEL_FAMILY.claims(bound, None), recover=(CAN_ALL_END,)
    )
    return _figures(report.states, process_time() - start) | {"outcome": report.outcome}


def _plain_full(name: str) -> dict[str, Any]:
    """Measure the plain search over every state, without properties."""
    start = process_time()
    search = Search(MODEL_FAMILY.build(MODEL_FAMILY.bounds[name], None), reduce=False).run()
    return _figures(len(search.states), process_time() - start)


def _full_apart(name: str) -> dict[str, Any] | str:
    """Measure the fast search in a process of its own, so that its peak of memory is its own."""
    if importlib.util.find_spec("numpy") is None:
        return "numpy is not installed"
    code = f"from batchproof.sched.bench.checker import print_full; print_full({name!r})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    result: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        result[key] = float(value) if "." in value else int(value)
    return result


def print_full(name: str) -> None:
    """Search every state of a bound, then once more with every property; print the figures."""
    from batchproof.spec.fast_check import check_packed
    from batchproof.spec.fast_search import FastSearch
    from batchproof.spec.mini_batch_packed import PackedMiniBatch

    bound = MODEL_FAMILY.bounds[name]
    idle_kb = _peak_kb()
    start = process_time()
    search = FastSearch(PackedMiniBatch(bound.parameters)).run()
    figures = _figures(search.states, process_time() - start)
    used_kb = _peak_kb() - idle_kb
    figures["bytes_per_state_kept"] = round(search.nbytes / search.states, 1)
    figures["bytes_per_state_peak"] = round(used_kb * 1024 / search.states, 1)
    del search
    start = process_time()
    check_packed(
        PackedMiniBatch(bound.parameters),
        MODEL_FAMILY.claims(bound, None),
        recover=(CAN_ALL_END,),
    )
    figures["cpu_s_all_properties"] = process_time() - start
    for key, value in figures.items():
        print(key, value)


def _peak_kb() -> float:
    """Return the peak of this process's resident memory; NaN where the system does not say.

    `getrusage` would say the parent's, if that was larger.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((float(line.split()[1]) for line in lines if line.startswith("VmHWM:")), math.nan)


def _spin() -> dict[str, Any] | str:
    if missing := missing_tools():
        return f"not installed: {', '.join(missing)}"
    if not PROMELA.exists():
        return f"no {PROMELA.name} here: it is in the repository"
    counts: dict[str, Any] = {}
    for name in SPIN:
        with tempfile.TemporaryDirectory() as folder:
            count = run_spin(PROMELA, MODEL_FAMILY.bounds[name].parameters, Path(folder))
        counts[name] = _figures(count.states, count.cpu_s)
    return counts


def _figures(states: int, cpu_s: float) -> dict[str, Any]:
    return {"states": states, "cpu_s": round(cpu_s, 3), "states_per_cpu_s": int(states / cpu_s)}
