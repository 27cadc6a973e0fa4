"""What commands that take a while share: a progress bar, and a clean end on Ctrl-C."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Show = Callable[[int, int | None, str], None]
"""Shows how many are done, of how many if that is known, and a note."""


@contextmanager
def progress_bar(what: str) -> Iterator[Show]:
    """Yield a function that moves a bar on stderr, or does nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total, note: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None, note="")
        yield lambda done, total, note: progress.update(
            task, completed=done, total=total, note=note
        )


@contextmanager
def until_interrupted() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed; pressed again, it interrupts.

    So a tick is never cut in two, and what was done so far is shown.
    """
    pressed = False

    def note(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield lambda: False
        return
    previous = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, previous)
