"""The colours of pictures and pages, light and dark, in one table."""

from collections.abc import Iterable, Mapping
from typing import Final

COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "page": ("#f7f8fa", "#0e1116"),
    "surface": ("#ffffff", "#161b22"),
    "sunken": ("#eef0f4", "#0b0e13"),
    "line": ("#d5dae2", "#2d3540"),
    "text": ("#1b2330", "#e3e8ef"),
    "muted": ("#5b6675", "#98a3b3"),
    "accent": ("#2456c7", "#7aa7ff"),
    "alarm": ("#b3261e", "#ff8a80"),
    "alarm-fill": ("#fde7e5", "#45201e"),
    "changed-fill": ("#fff2cc", "#3d3213"),
    "waiting": ("#8a6100", "#e0b040"),
    "waiting-fill": ("#fdf0cf", "#3a2f12"),
    "prefilling": ("#1c5fb8", "#6cb0ff"),
    "prefilling-fill": ("#dfecfb", "#152c47"),
    "decoding": ("#18794e", "#4fce94"),
    "decoding-fill": ("#dcf3e7", "#123325"),
    "done": ("#5b6675", "#98a3b3"),
    "done-fill": ("#e9ecf1", "#252c36"),
    "user-0": ("#7d8794", "#77818f"),
    "user-1": ("#1f6fd1", "#5ea2ff"),
    "user-2": ("#d1662a", "#ff9a5c"),
    "user-3": ("#1a8f66", "#45cf9b"),
    "user-4": ("#8d55c9", "#bd93f5"),
    "user-5": ("#b58a00", "#e3c04b"),
    "user-6": ("#c2417f", "#f47db2"),
    "user-7": ("#1391a8", "#4fc8de"),
}
"""Name -> its colour on a light and on a dark screen.

The users that matter most are told apart by seven colours; the rest share `user-0`.
"""

FONT: Final = 'system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif'
MONOSPACE: Final = 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace'


def variables(root: str, names: Iterable[str] = COLOURS) -> str:
    """Return the CSS that defines colours as variables of `root`, for light and dark screens."""
    chosen = list(names)
    light, dark = (
        "".join(f"--{name}:{COLOURS[name][place]};" for name in chosen) for place in (0, 1)
    )
    return f"{root}{{{light}}}\n@media (prefers-color-scheme:dark){{{root}{{{dark}}}}}\n"
