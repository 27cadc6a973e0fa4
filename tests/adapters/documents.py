"""Runs the blocks of a how-to that need an engine: those marked `py`, not `python`."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs" / "how-to"


def run_blocks(document: str) -> dict[str, Any]:
    """Run the blocks from top to bottom; return the names that they leave behind."""
    blocks = re.findall(r"^```py\n(.*?)^```", (HOW_TO / document).read_text(), re.DOTALL | re.M)
    assert blocks
    namespace: dict[str, Any] = {"__name__": "how_to"}
    for block in blocks:
        exec(compile(block, document, "exec"), namespace)
    return namespace


def output_of_example(name: str) -> str:
    """Run an example in a process of its own, and return what it prints."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def printed_by_example(name: str) -> str:
    """Run an example in a process of its own, and return the table that it prints."""
    printed = output_of_example(name)
    table = printed[printed.index("ticks to the first token") :]
    return "\n".join(line for line in table.splitlines() if line)


def found_by_example(name: str) -> None:
    """Assert that an example prints what the page on the engines' own schedulers shows."""
    shown = (ROOT / "docs" / "explanation" / "own-schedulers.md").read_text()
    printed = output_of_example(name).strip()
    assert f"```text\n{printed}\n```" in shown, printed
