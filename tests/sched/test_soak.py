"""A soak survives what it does to itself, and a fault is found, shrunk and shown again."""

import json
import subprocess
import sys

from faults.shipped_fault import copy_with
from faults.shipped_faults import SHIPPED_FAULTS

from batchproof.sched.soak_case import Case


def soak(*options: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    command = [sys.executable, "-m", "batchproof", "soak", *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


def test_nothing_is_lost_in_three_seconds_of_faults_and_kills() -> None:
    code, out = soak("--minutes", "0.05", "--json")
    said = json.loads(out)
    assert (code, said["failure"]) == (0, None)
    assert min(said["ticks"], said["requests"], said["cases"]) >= 1


def test_a_fault_is_found_shrunk_and_the_command_shows_it_again(tmp_path) -> None:
    fault = next(fault for fault in SHIPPED_FAULTS if fault.name == "first-eos-ignored")
    env = copy_with(fault, tmp_path)
    code, out = soak("--minutes", "0.02", "--json", env=env)
    failure = json.loads(out)["failure"]
    assert code == 1
    assert failure["command"].endswith(f"--ticks {failure['ticks']}")
    again, text = soak(*failure["command"].split()[2:], env=env)
    assert again == 1
    assert failure["what"] in text
    assert 0 < failure["ticks"] < Case.draw(0, failure["case"]).ticks
    fewer, _ = soak("--case", str(failure["case"]), "--ticks", str(failure["ticks"] - 1), env=env)
    assert fewer == 0, "one tick less of the users' work does not show it"
