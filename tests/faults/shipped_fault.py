"""A seeded fault of the code that ships: what it is, and a copy of the package that has it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class ShippedFault:
    """One fault: in `file`, `old`, which is there once, becomes `new`."""

    name: str
    story: str
    file: str
    old: str
    new: str
    policy: str = "stall-free"
    """The policy that ring one runs; the other rings run all."""
    bound: str = "pair"
    """The size at which ring one runs it."""

    def source(self) -> str:
        """Return the patched source.

        Raises:
            AssertionError: the code has changed: what is to be patched is not there once.
        """
        source = (ROOT / self.file).read_text()
        assert source.count(self.old) == 1, f"{self.name}: {self.file} has changed: {self.old!r}"
        return source.replace(self.old, self.new)


def copy_with(fault: ShippedFault, folder: Path) -> dict[str, str]:
    """Make a package `batchproof` with the fault in `folder`; return the environment to use it.

    Everything but the patched file is a link to the original.
    """
    package = folder / "batchproof"
    package.mkdir()
    for entry in (ROOT / "src" / "batchproof").iterdir():
        if entry.name not in (fault.file.split("/")[0], "__pycache__"):
            (package / entry.name).symlink_to(entry.resolve())
    here = package
    there = ROOT
    for part in Path(fault.file).parts[:-1]:
        here, there = here / part, there / part
        here.mkdir()
        following = Path(fault.file).parts[len(here.relative_to(package).parts)]
        for entry in there.iterdir():
            if entry.name != following:
                (here / entry.name).symlink_to(entry)
    patched = package / fault.file
    patched.write_text(fault.source())
    os.utime(patched, (1, 1))  # so that no compiled original passes for it
    path = os.pathsep.join((str(folder), str(ROOT / "tests")))
    return {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
