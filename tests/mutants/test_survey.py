"""Which changes a test file is asked about: what its tests call, and what it imports."""

from pathlib import Path

import pytest

pytest.importorskip("mutmut", reason="only `make mutants` installs mutmut")

from mutants.mutation import IMPORT_TIME
from mutants.survey import imported_by


def test_a_file_is_asked_about_what_it_imports_and_what_that_imports(tmp_path: Path) -> None:
    files = {
        "test_it.py": "import json\nfrom batchproof.spec import EDGES, table",
        "spec/__init__.py": "",
        "spec/table.py": "from pathlib import Path\nfrom batchproof.spec.parts import PARTS",
        "spec/parts.py": "def late():\n    from batchproof.spec.far import FAR",
        "spec/far.py": "",
    }
    (tmp_path / "spec").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert imported_by(tmp_path, "test_it.py") == {
        ("spec/__init__.py", IMPORT_TIME),
        ("spec/table.py", IMPORT_TIME),
        ("spec/parts.py", IMPORT_TIME),
    }
