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
_BLOCK = re.compile(
    r"<!-- output of: batchproof (?P<command>.+?) -->\n```text\n(?P<text>.*?)```", re.S
)
_IMAGE = re.compile(r"\.\./images/([^)]+)")


def main(quick: bool, check: bool) -> None:
    """Run the commands; write what is stale, or say so and exit."""
    page = PAGE.read_text()
    stale: list[Path] = []
    fresh = page
    for block in _BLOCK.finditer(page):
        makes_plots = "--plot" in block["command"]
        if quick and makes_plots:
            continue
        with tempfile.TemporaryDirectory() as folder:
            printed = _output(block["command"], folder)
            shown = _IMAGE.findall(page) if makes_plots else []
            stale += [image for image in map(IMAGES.__truediv__, shown) if _is_stale(image, folder)]
            if not check:
                for image in stale:
                    IMAGES.mkdir(exist_ok=True)
                    image.write_bytes(_made(image, folder))
        fresh = fresh.replace(block[0], block[0].replace(block["text"], printed))
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


def _made(image: Path, folder: str) -> bytes:
    return (Path(folder) / image.name).read_bytes()


def _is_stale(image: Path, folder: str) -> bool:
    return not image.exists() or image.read_bytes() != _made(image, folder)


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:], check="--check" in sys.argv[1:])
