"""Tables as plain text, so that reports are strings that can be tested and written anywhere."""

import io
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, width: int = 200) -> str:
    """Return a table of at most `width` characters a line; longer cells are wrapped."""
    grid = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for row in rows:
        grid.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, markup=False, highlight=False).print(grid)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
