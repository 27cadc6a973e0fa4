"""Self-contained pages: one file, no network, all styles, scripts and data inside.

A content security policy in the page itself allows exactly its own script and
style, by their hashes, and nothing else: whatever a recording's names are,
they are text, and nothing can be fetched.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, Final

from batchproof.sched.report.theme import FONT, MONOSPACE, variables

_ASSETS: Final = files("batchproof.sched.report") / "assets"
_FONTS: Final = f":root{{--font:{FONT};--monospace:{MONOSPACE}}}\n"


def html_page(
    title: str,
    body: str,
    *,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    data: Any = None,
) -> str:
    """Return a page. `styles` and `scripts` name files of `assets`, taken in this order.

    `body` is HTML. `data` is whatever JSON can say, stored deflated; the
    scripts get it from `pageData()` of `page_data.js`.
    """
    css = variables(":root") + _FONTS + "\n".join(map(_asset, ("page.css", *styles)))
    blocks = []
    policy = f"default-src 'none'; style-src '{_digest(css)}'; img-src data:"
    if scripts:
        code = "\n".join(map(_asset, ("page_data.js", *scripts)))
        policy += f"; script-src '{_digest(code)}'"
        blocks.append(f'<script type="text/plain" id="page-data">{_packed(data)}</script>')
        blocks.append(f'<script type="module">{code}</script>')
        blocks.append("<noscript><p>This page needs JavaScript; it fetches nothing.</p></noscript>")
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{html_text(title)}</title>",
            f"<style>{css}</style>",
            "</head>",
            "<body>",
            body,
            *blocks,
            "</body>",
            "</html>\n",
        )
    )


def html_text(text: str) -> str:
    """Return text as HTML that shows it, in an element or in a quoted attribute."""
    codes = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
    return "".join(codes.get(character, character) for character in text)


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1) -> str:
    """Return a table: in all columns but the first `names` are numbers. Empty rows are left out."""
    head = "".join(
        f'<th scope="col"{_number_class(place, names)}>{html_text(text)}</th>'
        for place, text in enumerate(heads)
    )
    body = "".join(
        f'<tr><th scope="row">{html_text(cells[0])}</th>'
        + "".join(
            f"<td{_number_class(place, names)}>{html_text(cell)}</td>"
            for place, cell in enumerate(cells[1:], start=1)
        )
        + "</tr>"
        for cells in rows
        if any(cells)
    )
    name = html_text(heads[0])
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {name}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _number_class(place: int, names: int) -> str:
    return ' class="number"' if place >= names else ""


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _packed(data: Any) -> str:
    text = json.dumps(data, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()
