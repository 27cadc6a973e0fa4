"""How a mutant comes to be in the place of its module."""

from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="only `make mutants` installs mutmut")

from mutants.judge import Imported
from mutants.mutation import Mutant


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("sched/policy/orca.py", "batchproof.sched.policy.orca"),
        ("sched/policy/__init__.py", "batchproof.sched.policy"),
    ],
)
def test_a_module_and_a_package_are_found_by_their_names(file: str, module: str) -> None:
    finder = Imported(Mutant(file, "", "", "", "CHANGED = True\n"))
    parent = Path(__file__).parents[2] / "src" / "batchproof" / "sched"
    path = [str(parent / "policy" if file.endswith("orca.py") else parent)]
    assert finder.find_spec("batchproof.sched.blocks", path) is None
    spec = finder.find_spec(module, path)
    assert spec is not None
    assert spec.loader is finder
