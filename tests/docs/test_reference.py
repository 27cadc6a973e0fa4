"""The generated pages are those that the code makes now."""

import subprocess
import sys


def test_the_reference_is_not_stale(pytestconfig) -> None:
    check = [sys.executable, "docs/generate.py", "--check"]
    out = subprocess.run(
        check, check=False, cwd=pytestconfig.rootpath, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr
