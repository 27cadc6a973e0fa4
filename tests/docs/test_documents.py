"""Every block of Python and every command in README and docs is run."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

PROVEN_ELSEWHERE = {
    "make run": ".ci/run",
    "make test": ".ci/run",
    "make lint": ".ci/run",
    "make types": ".ci/run",
    "make imports": ".ci/run",
    "make package": ".ci/run",
}
"""Commands that would run this suite within itself -> the file that runs them."""

NEEDS_A_CLONE = ("make ", "git ", "pip install", "uv ", "python -m venv", "source ", "cd ", ".ci/")
"""Commands that set up a checkout: `test_setting_up_*` runs what they say."""

SLOW = ("batchproof bench", "batchproof compare", "batchproof soak")
"""Commands that take minutes: run by `make deep`."""

BARE_CHECKS = ("batchproof check", "batchproof check --target scheduler")
"""Checks of everything: `make proofs` runs them."""

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{second:02d}.{second * 7 % 10}000000,{100 + second * 13},{5 + second % 9}\n"
    for second in range(50)
)
"""What a document calls TRACE.csv: a few rows in the format of the Azure trace."""


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)


def commands() -> Iterator[tuple[str, str]]:
    for document in DOCUMENTS:
        for block in blocks(document, "console"):
            for line in block.splitlines():
                if line.startswith("$ "):
                    yield name_of(document), line.removeprefix("$ ")


def is_slow(command: str) -> bool:
    return command.startswith(SLOW) or command.partition("#")[0].strip() in BARE_CHECKS


def commands_of(document: Path, *, slow: bool) -> list[str]:
    return [
        command
        for name, command in commands()
        if name == name_of(document)
        and command not in PROVEN_ELSEWHERE
        and not command.startswith(NEEDS_A_CLONE)
        and is_slow(command) == slow
    ]


def documents_with_commands(*, slow: bool) -> list[Path]:
    return [document for document in DOCUMENTS if commands_of(document, slow=slow)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reader's folder: what one command of a document writes, the next may read."""
    (tmp_path / "TRACE.csv").write_text(TRACE)
    return tmp_path


def run(command: str, folder: Path) -> None:
    line, _, remark = command.partition("  # exits ")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    out = subprocess.run(
        ["bash", "-c", line],
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    assert out.returncode == int(remark or 0), f"{shlex.quote(line)}: {out.stdout}{out.stderr}"
    assert "Traceback" not in out.stderr


@pytest.mark.parametrize("document", documents_with_commands(slow=False), ids=name_of)
def test_every_command_runs_in_the_order_of_its_document(document: Path, folder: Path) -> None:
    for command in commands_of(document, slow=False):
        run(command, folder)


@pytest.mark.deep
@pytest.mark.parametrize("document", documents_with_commands(slow=True), ids=name_of)
def test_every_slow_command_runs(document: Path, folder: Path) -> None:
    for command in commands_of(document, slow=True):
        run(command, folder)


@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if "```python" in d.read_text()], ids=name_of
)
def test_every_python_block_runs_from_top_to_bottom(document: Path, tmp_path: Path) -> None:
    """In a process of its own: what Hypothesis tries depends on what else is loaded."""
    code = "\n".join(blocks(document, "python"))
    program = tmp_path / f"{document.stem.replace('-', '_')}.py"
    program.write_text(code)
    out = subprocess.run(
        [sys.executable, program.name], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert out.returncode == 0, f"{name_of(document)}: {out.stderr}"


def test_commands_proven_elsewhere_are_run_there() -> None:
    named = [command for _, command in commands() if command in PROVEN_ELSEWHERE]
    assert named
    for command in named:
        assert command in (ROOT / PROVEN_ELSEWHERE[command]).read_text()


def test_every_link_between_documents_leads_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{name_of(document)} links to {target}"
