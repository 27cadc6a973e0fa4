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


def number_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, names: int = 1) -> str:
    """Return a table in which numbers, everything but the first `names` columns, end in line."""
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    padded = [
        [cell.rjust(width) if place >= names else cell for cell in column]
        for place, (column, width) in enumerate(zip(columns, widths, strict=True))
    ]
    first, *rest = zip(*padded, strict=True)
    return table(first, rest)
