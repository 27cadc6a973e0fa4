"""The wheel and the sdist, as a user gets them; `make package` builds them first."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging

MOUNTED = ("spec", "invariants", "sched")


@pytest.fixture(scope="module")
def root(pytestconfig) -> Path:
    return pytestconfig.rootpath


@pytest.fixture(scope="module")
def wheel(root: Path) -> Path:
    (found,) = (root / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def sdist(root: Path) -> Path:
    (found,) = (root / "dist").glob("*.tar.gz")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, root: Path, tmp_path_factory) -> Path:
    """Install the wheel, with its command line, into an environment outside the checkout."""
    env = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    pip = [env / "bin" / "python", "-m", "pip", "install", "--quiet"]
    constraints = root / "constraints.txt"
    subprocess.run([*pip, "-c", constraints, f"{wheel}[cli]"], check=True)
    return env / "bin" / "python"


def run(python: Path, *args: str) -> str:
    out = subprocess.run(
        [python, *args],
        check=True,
        capture_output=True,
        text=True,
        cwd=python.parent,
        env={"PATH": os.environ["PATH"], "HOME": str(python.parent)},
    )
    return out.stdout


def source_files(root: Path) -> set[str]:
    """Return the files of the mounted folders, as git sees them or the folder does."""
    return {
        path.relative_to(root).as_posix()
        for folder in MOUNTED
        for path in (root / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_every_source_file_once(wheel: Path, root: Path) -> None:
    names = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
    own = {"__init__.py", "__main__.py", "py.typed", "testing.py"}
    assert sorted(names) == sorted(f"batchproof/{name}" for name in source_files(root) | own)


def test_the_sdist_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", source]
    subprocess.run(build, check=True, capture_output=True)
    (rebuilt,) = (tmp_path / "dist").glob("*.whl")
    assert zipfile.ZipFile(rebuilt).namelist() == zipfile.ZipFile(wheel).namelist()


def test_the_sdist_holds_the_examples_and_the_versions_that_make_installs(
    sdist: Path, root: Path
) -> None:
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    wanted = [*root.glob("examples/*.py"), *root.glob("constraints*.txt")]
    assert len(wanted) > 3
    assert {path.relative_to(root).as_posix() for path in wanted} - held == set()


def test_the_installed_wheel_schedules(python: Path) -> None:
    code = """
from batchproof import Request, Scheduler
sched = Scheduler()
sched.submit(Request(user_id="u1", prompt=[1, 2, 3], max_tokens=10, request_id="r1"))
done = []
while sched.has_active():
    done += sched.tick()
print(done[0].generated == sched.executor.expected_output(done[0]), sorted(sched.metrics()))
"""
    assert run(python, "-c", code).startswith("True ['avg_latency_s'")


def test_the_installed_command_line_runs(python: Path) -> None:
    out = json.loads(run(python, "-m", "batchproof", "run", "--json", "--seed", "1"))
    counts = out["requests"]
    assert 2 * counts["submitted"] == sum(counts.values()) > 0


def test_import_sched_stays_the_standard_librarys(python: Path) -> None:
    where = run(python, "-c", "import batchproof, sched; print(sched.__file__)")
    assert "site-packages" not in where


def test_the_types_are_shipped(python: Path) -> None:
    code = """
import batchproof, pathlib
print(pathlib.Path(batchproof.__file__).with_name('py.typed').exists())
"""
    assert run(python, "-c", code) == "True\n"
