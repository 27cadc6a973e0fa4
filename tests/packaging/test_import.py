"""What importing batchproof costs and touches."""

import json
import subprocess
import sys


def loaded_by(statement: str) -> set[str]:
    """Return the top-level packages that are neither the standard library's nor ours."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    packages = {name.partition(".")[0] for name in json.loads(out.stdout)}
    ours = {"batchproof", "__main__", "__mp_main__"}
    return packages - set(sys.stdlib_module_names) - ours - loaded_at_start()


def loaded_at_start() -> set[str]:
    """Return what this interpreter loads by itself: hooks of the environment."""
    code = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in json.loads(out.stdout)}


def test_the_scheduler_needs_only_transitions() -> None:
    assert loaded_by("from batchproof import Scheduler; Scheduler()") <= {"transitions", "six"}


def test_import_sched_is_the_standard_librarys() -> None:
    code = "import sched, batchproof.sched.scheduler; print(sched.scheduler.__doc__ is not None)"
    out = subprocess.run(
        [sys.executable, "-c", f"import os; os.chdir('/'); {code}; print(sched.__file__)"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert out.stdout.split()[-1].endswith("sched.py")


def test_import_sched_is_the_standard_librarys_in_the_checkout(request) -> None:
    out = subprocess.run(
        [sys.executable, "-c", "import sched; print(sched.__file__)"],
        check=True,
        capture_output=True,
        text=True,
        cwd=request.config.rootpath,
    )
    assert out.stdout.strip().endswith("sched.py")
