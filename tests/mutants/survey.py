"""Which functions each test calls, and for how long it runs: so that a mutant meets few tests.

The tests are run once, in a fork, under coverage. One that takes longer than
`SECONDS_MAX` is stopped, and judges no mutant.
"""

import ast
import json
import signal
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache, partial
from math import inf
from pathlib import Path
from time import process_time
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest
from coverage import Coverage
from mutants.fork import in_fork, run_session
from mutants.mutation import IMPORT_TIME

SECONDS_MAX: Final = 20
"""Of wall clock."""

Site = tuple[str, str]
"""A file, and a function in it."""


class Seen(NamedTuple):
    """What one test does."""

    seconds: float
    """Of processor time; infinite if it is too slow to judge mutants."""
    sites: frozenset[Site]


class Survey(NamedTuple):
    """What all tests do."""

    seen: Mapping[str, Seen] = {}
    """Of each test."""
    at_import: frozenset[Site] = frozenset()
    """What is called before the first test."""
    files: frozenset[str] = frozenset()
    """The test files that were looked at."""


class TooSlowError(Exception):
    """A test takes too long to judge mutants."""


def survey_of(root: Path, targets: Sequence[str], tests: Sequence[str]) -> Survey:
    """Run the test files in a fork, and return which functions of the targets they call."""

    def work(say: Callable[[str], None]) -> int:
        surveyor = Surveyor(root, targets)
        code = run_session(tests, surveyor)
        called = surveyor.called()
        say(json.dumps(("", None, sorted(called.pop("", ())))))
        for name, seconds in surveyor.seconds.items():
            say(json.dumps((name, seconds, sorted(called[name]))))
        for name in surveyor.failed:
            say(json.dumps((name, None, None)))
        return code if code > 1 else 0

    seen: dict[str, Seen] = {}
    at_import: frozenset[Site] = frozenset()
    fork = in_fork(work)
    for line in fork.lines:
        name, seconds, sites = json.loads(line)
        if sites is None:
            raise SystemExit(f"{name} fails without any mutant: it can judge none")
        called = frozenset((file, function) for file, function in sites)
        if seconds is not None:
            seen[name] = Seen(seconds, called)
        else:
            at_import = called
    if fork.code() != 0:
        raise SystemExit("the tests cannot be run")
    return Survey(seen, at_import, frozenset(tests))


def imported_by(root: Path, test: str) -> frozenset[Site]:
    """Return what a test file has carried out by importing it, and what that imports itself.

    Its tests may look at a table without calling anything, or at one made up of others.
    """
    files = _imports(root, test)
    return frozenset(
        (file, IMPORT_TIME) for file in files.union(*map(partial(_imports, root), files))
    )


@cache
def _imports(root: Path, path: str) -> frozenset[str]:
    """Return the files of the project that a file imports by name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((root / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    package = "batchproof."
    paths = (name[len(package) :].replace(".", "/") for name in names if name.startswith(package))
    files = (path + end for path in paths for end in (".py", "/__init__.py"))
    return frozenset(file for file in files if (root / file).exists())


class Surveyor:
    """A plugin that runs tests under coverage, each in a context of its own."""

    def __init__(self, root: Path, targets: Sequence[str]) -> None:
        self.seconds: dict[str, float] = {}
        """Of each test, infinite if it is too slow."""
        self.failed: list[str] = []
        self._late = self._broken = False
        self._functions = {
            str((root / file).resolve()): (file, Functions((root / file).read_text()))
            for file in targets
        }
        self._coverage = Coverage(None, config_file=False, include=[*self._functions])

    def pytest_collection(self) -> None:
        self._coverage.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        self._coverage.switch_context(item.nodeid)
        self._late = self._broken = False
        began = process_time()
        signal.signal(signal.SIGALRM, self._stop)
        signal.alarm(SECONDS_MAX)
        yield
        signal.alarm(0)
        if self._broken and not self._late:
            self.failed.append(item.nodeid)
        self.seconds[item.nodeid] = inf if self._late else process_time() - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._broken |= report.failed

    def called(self) -> dict[str, set[Site]]:
        """Return what each test called, and what the collection did, as ""."""
        self._coverage.stop()
        data = self._coverage.get_data()
        called: dict[str, set[Site]] = defaultdict(set)
        for name, (file, functions) in self._functions.items():
            for line, contexts in data.contexts_by_lineno(name).items():
                for context in contexts:
                    called[context].add((file, functions.at(line)))
        return called

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._late = True
        raise TooSlowError(f"more than {SECONDS_MAX} s")


class Functions:
    """The outermost functions and methods of a source, by line."""

    def __init__(self, source: str) -> None:
        self._starts: list[int] = [0]
        self._names: list[str] = [IMPORT_TIME]
        self._walk(ast.parse(source), "")

    def at(self, line: int) -> str:
        """Return the function whose body a line is in."""
        return self._names[bisect_right(self._starts, line) - 1]

    def _walk(self, node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                self._walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef):
                assert child.end_lineno is not None
                self._starts += (child.body[0].lineno, child.end_lineno + 1)
                self._names += (prefix + child.name, IMPORT_TIME)
