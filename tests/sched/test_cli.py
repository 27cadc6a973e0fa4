"""The command line as a whole: every failure is one line on stderr and an exit code."""

import os
import subprocess
import sys

import pytest

from batchproof import __version__
from batchproof.sched import cli
from batchproof.sched.cli import COMMANDS, run_cli


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )


def test_version(capsys):
    assert run_cli(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_help_names_every_command(capsys):
    assert run_cli([]) == 0
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name in COMMANDS)


NOT_A_RESULT = {"graph": "--format", "serve": "--port", "timeline": "--format"}
"""Commands that answer with something other than a result, and an option that they have instead."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_has_help_and_json(name, capsys):
    assert run_cli([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"batchproof {name}" in shown
    assert NOT_A_RESULT.get(name, "--json") in shown


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["nope"], 'Unknown command "nope"'),
        (["rnu"], 'Did you mean "run"?'),
        (["run", "--sed", "3"], "Unknown option: --sed. Did you mean --seed?"),
        (["run", "--seed", "three"], 'unable to convert "three" into int'),
        (["run", "--seed"], "--seed"),
        (["run", "one", "two"], "two"),
        (["run", "--assign", "fair"], "zipf"),
        (["run", "--admission", "all"], '"max_utilization", "guaranteed_no_evict"'),
        (["replay"], "FILE requires an argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_usage_error_is_one_line(argv, message, capsys):
    assert run_cli(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("batchproof: ")
    assert err.count("\n") == 1
    assert message in err


def test_no_command_is_imported_before_it_is_called():
    done = python(
        "import sys\n"
        "from batchproof.sched.cli import run_cli\n"
        "run_cli(['--help'])\n"
        "print(sorted(name for name in sys.modules if 'sched.commands' in name))"
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_importing_the_package_imports_nothing_of_the_command_line():
    done = python(
        "import sys, batchproof\n"
        "print({'rich', 'cyclopts', 'msgspec'} & {name.partition('.')[0] for name in sys.modules})"
    )
    assert done.stdout == "set()\n"


def test_a_reader_that_has_seen_enough_is_no_error():
    command = [sys.executable, "-m", "batchproof", "run", "--requests", "20"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.fixture
def command_that(monkeypatch):
    """Replace the app by one that does what the test wants."""

    def replace(raises):
        def app(_argv):
            raise raises

        monkeypatch.setattr(cli, "make_app", lambda: app)

    return replace


def test_ctrl_c_is_one_line(command_that, capsys):
    command_that(raises=KeyboardInterrupt())
    assert run_cli(["run"]) == 3
    assert capsys.readouterr() == ("", "batchproof: interrupted\n")


def test_a_fault_of_our_own_is_one_line_unless_asked_for_more(command_that, capsys, monkeypatch):
    command_that(raises=RuntimeError("two\nlines"))
    monkeypatch.delenv("BATCHPROOF_DEBUG", raising=False)
    assert run_cli(["run"]) == 3
    line = "batchproof: internal error: RuntimeError: two lines; please report it"
    assert capsys.readouterr().err == f"{line} (BATCHPROOF_DEBUG=1 shows where)\n"
    monkeypatch.setenv("BATCHPROOF_DEBUG", "1")
    assert run_cli(["run"]) == 3
    assert "Traceback" in capsys.readouterr().err
