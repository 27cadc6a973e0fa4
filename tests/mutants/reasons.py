"""Why survivors are equivalent: what changes in them, no test could see.

The reasons are in `equivalent.toml`, each by the mutant that it is of, so that
one whose mutant is gone, or is killed by now, is found to be stale.
"""

import tomllib
from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = Path(__file__).parent / "equivalent.toml"


class Equivalent(NamedTuple):
    """A mutant that behaves as the original does, as far as anybody can tell."""

    file: str
    function: str
    was: str
    now: str
    why: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells the mutant apart: as `Mutant.key`, in its file."""
        return self.file, self.function, self.was, self.now


def reasons() -> list[Equivalent]:
    """Return every reason; of several mutants, as many times."""
    read = tomllib.loads(FILE.read_text())
    return [
        Equivalent(file, entry["in"], entry["was"], now, entry["why"])
        for file, entries in read.items()
        for entry in entries
        for now in entry["now"]
    ]
