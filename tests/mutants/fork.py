"""Work in a fork: a copy of this process as it is, that may break without harm."""

import os
import resource
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import ceil
from typing import Final, NamedTuple

import pytest

MEMORY_MAX: Final = 8 << 30
WAITS: Final = 10
"""Wall clock allowed, for each second of processor time: who waits for ever uses none."""

ARGUMENTS: Final = ("-q", "-p", "no:xdist", "-p", "no:cacheprovider")

Work = Callable[[Callable[[str], None]], int]
"""Takes how to say a line to whoever forked; returns an exit code."""


class Fork(NamedTuple):
    """A fork at work."""

    process: int
    lines: Iterator[str]
    """What it says, line by line, until it ends."""

    def code(self) -> int | None:
        """Wait for the end; return the exit code, None if it was stopped."""
        _, status = os.waitpid(self.process, 0)
        with suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)  # what it has started itself
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None


def in_fork(work: Work, seconds: float | None = None) -> Fork:
    """Start work in a fork, in silence, stopped after `seconds` of processor time."""
    reader, writer = os.pipe()
    process = os.fork()
    if process:
        os.close(writer)
        return Fork(process, _lines(reader))
    code = 1
    try:
        os.close(reader)
        os.setpgid(0, 0)
        _silence()
        if seconds is not None:
            _limit(ceil(seconds))
        code = work(lambda line: _say(writer, line))
    finally:
        os._exit(code)


def _lines(reader: int) -> Iterator[str]:
    with os.fdopen(reader) as pipe:
        for line in pipe:
            yield line.rstrip("\n")


def _say(writer: int, line: str) -> None:
    os.write(writer, f"{line}\n".encode())


def _silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _limit(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(WAITS * seconds)


def run_session(tests: Iterable[str], plugin: object) -> int:
    """Run tests in this process; return pytest's exit code."""
    return int(pytest.main([*ARGUMENTS, *tests], plugins=[plugin]))
