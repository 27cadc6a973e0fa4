"""Write the outputs and plots in docs/how-to/compare-policies.md anew: `--quick`, `--check`.

A block of text below a comment `<!-- output of: COMMAND -->` is what the command
prints; `--plot DIR` in it makes the pictures that the page shows. `--quick` leaves
out the commands with plots, which take minutes; `--check` writes nothing and
exits with 1 if a block, or a picture, is stale.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parent / "how-to" / "compare-policies.md"
IMAGES = Path(__file__).parent / "images"
_BLOCK = re.compile(r"<!-- output of: batchproof (?P<command>.+?) -->\n```text\n.*?```", re.S)
_IMAGE = re.compile(r"\.\./images/([^)]+)")


def main(quick: bool, check: bool) -> None:
    """Run the commands; write what is stale, or say so and exit."""
    page = PAGE.read_text()
    stale: list[Path] = []

    def block_now(block: re.Match[str]) -> str:
        command, plots = block["command"], "--plot" in block["command"]
        if quick and plots:
            return block[0]
        with tempfile.TemporaryDirectory() as folder:
            printed = _output(command, folder)
            for name in _IMAGE.findall(page) if plots else ():
                made = (Path(folder) / name).read_bytes()
                if not (IMAGES / name).exists() or (IMAGES / name).read_bytes() != made:
                    stale.append(IMAGES / name)
                    if not check:
                        (IMAGES / name).write_bytes(made)
        return f"<!-- output of: batchproof {command} -->\n```text\n{printed}```"

    fresh = _BLOCK.sub(block_now, page)
    if fresh != page:
        stale.append(PAGE)
        if not check:
            PAGE.write_text(fresh)
    names = ", ".join(sorted(path.name for path in stale))
    if check and stale:
        sys.exit(f"stale: {names}: run python docs/generate_comparison.py")
    print(f"wrote {names}" if stale else "nothing is stale")


def _output(command: str, folder: str) -> str:
    """Return what a command prints; its plots go to `folder`."""
    argv = shlex.split(command)
    if "--plot" in argv:
        argv[argv.index("--plot") + 1] = folder
    run = [sys.executable, "-m", "batchproof", *argv]
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:], check="--check" in sys.argv[1:])
