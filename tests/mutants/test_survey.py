"""Which changes a test file is asked about: what its tests call, and what it imports."""

from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="only `make mutants` installs mutmut")

from mutants.mutation import IMPORT_TIME
from mutants.survey import imported_by


def test_a_file_is_asked_about_the_modules_that_it_imports(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(
        "import json\n"
        "from pathlib import Path\n"
        "from batchproof.spec import lifecycle\n"
        "def test_it():\n    from batchproof.invariants.claim import ANY\n"
    )
    assert {site for site in imported_by(test) if "/" in site[0]} == {
        ("spec/lifecycle.py", IMPORT_TIME),
        ("invariants/claim.py", IMPORT_TIME),
        ("invariants/claim/ANY.py", IMPORT_TIME),
    }
