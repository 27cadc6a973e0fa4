"""Whether some test fails with a mutant: each is judged in a fork of a process that is warm.

A mutant of a function is put into the collected session by exchanging the
function's code. One that is carried out when its module is imported, or whose
function was called while tests were collected, gets a session of its own.
"""

import gc
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from math import isinf
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final, Literal

import pytest
from mutants.fork import in_fork, run_session
from mutants.mutation import IMPORT_TIME, Mutant
from mutants.survey import Site, Survey, imported_by

SECONDS_MAX: Final = 20
"""The quickest tests that call a function judge its mutants, until they have taken so long."""
SPARE_SECONDS, SLOWER = 5, 3
"""A mutant with which tests take so many times as long, and the spare, is caught by that."""
NOT_TAKEN: Final = 77
"""The exit code of a fork whose code cannot take the mutant."""

Outcome = Literal["killed", "too slow", "survived"]
Judged = Callable[[Mutant, Outcome, str], None]
"""Told of each mutant: what became of it, and which test failed first."""


class Choice:
    """The tests for each mutant: of those that call its function, the quickest, killers first."""

    def __init__(self, survey: Survey, root: Path) -> None:
        self._survey = survey
        self._tests: dict[Site, list[str]] = defaultdict(list)
        imported = {test: imported_by(root, test) for test in survey.files}
        for nodeid in sorted(survey.seen, key=lambda nodeid: survey.seen[nodeid].seconds):
            sites = survey.seen[nodeid].sites | imported[nodeid.partition("::")[0]]
            for site in {*sites, *((file, IMPORT_TIME) for file, _ in sites)}:
                self._tests[site].append(nodeid)

    def tests(self, mutant: Mutant) -> tuple[list[str], float]:
        """Return the tests in the order to be run, and the seconds that they take."""
        chosen, seconds = [], 0.0
        for nodeid in self._tests[self._site(mutant)]:
            seconds += self._survey.seen[nodeid].seconds
            if seconds > SECONDS_MAX and (chosen or isinf(seconds)):
                break
            chosen.append(nodeid)
        return chosen, min(seconds, SECONDS_MAX)

    def distrust(self, nodeid: str) -> None:
        """Ask a test no more: it fails without a mutant too, in a fork."""
        for tests in self._tests.values():
            if nodeid in tests:
                tests.remove(nodeid)

    def promote(self, mutant: Mutant, nodeid: str) -> None:
        """Let the test that killed a mutant be the first to judge the next of its function."""
        tests = self._tests[self._site(mutant)]
        if nodeid in tests:
            tests.remove(nodeid)
            tests.insert(0, nodeid)

    def knows(self, nodeid: str) -> bool:
        """Say whether a test was surveyed."""
        return nodeid in self._survey.seen

    def _site(self, mutant: Mutant) -> Site:
        site = mutant.file, mutant.function
        at_import = site in self._survey.at_import or site not in self._tests
        return (mutant.file, IMPORT_TIME) if at_import else site


@dataclass
class Court:
    """Judges a mutant by its tests, and a test that fails by the code as it is."""

    choice: Choice
    run: Callable[[Mutant | None, Sequence[str], Callable[[str], None]], int]
    """Runs tests in order until one fails, with the mutant or, for None, without; says which."""
    trusted: set[str] = field(default_factory=set)
    """Tests that do not fail without a mutant."""

    def judge(self, mutant: Mutant) -> tuple[int | None, str]:
        """Return the exit code of the tests with the mutant, and which test failed first."""
        while True:
            tests, seconds = self.choice.tests(mutant)
            code, killer = self._said(mutant, tests, seconds)
            if code != 1 or killer in self.trusted or killer not in tests:
                break
            _, innocent = self._said(None, tests[: tests.index(killer) + 1], seconds)
            if innocent != killer:
                self.trusted.add(killer)
                break
            self.choice.distrust(killer)
        if code == 1:
            self.choice.promote(mutant, killer)
        return code, killer

    def _said(
        self, mutant: Mutant | None, tests: Sequence[str], seconds: float
    ) -> tuple[int | None, str]:
        fork = in_fork(lambda say: self.run(mutant, tests, say), seconds * SLOWER + SPARE_SECONDS)
        said = list(fork.lines)
        return fork.code(), said[0] if said else ""


def judge(
    mutants: Sequence[Mutant], survey: Survey, tests: Sequence[str], root: Path, judged: Judged
) -> None:
    """Judge every mutant, those of functions in one warm session, the others each in its own."""
    choice = Choice(survey, root)
    names = {mutant.file: str(root / "src" / "batchproof" / mutant.file) for mutant in mutants}
    warm = [m for m in mutants if m.function and (m.file, m.function) not in survey.at_import]
    not_taken: list[Mutant] = []

    def told(mutant: Mutant, code: int | None, killer: str) -> None:
        if code == NOT_TAKEN:
            not_taken.append(mutant)
            return
        outcome: Outcome = "too slow" if code is None else "killed" if code else "survived"
        judged(mutant, outcome, killer)

    for line in in_fork(lambda say: run_session(tests, Warm(warm, choice, names, say))).lines:
        index, code, killer = line.split(" ", 2)
        told(warm[int(index)], None if code == "None" else int(code), killer)
    cold = Court(choice, Cold(choice).run)
    for mutant in (*(m for m in mutants if m not in warm), *not_taken):
        told(mutant, *cold.judge(mutant))


# --- warm ---------------------------------------------------------------------------


class Warm:
    """A plugin: instead of running the tests that were collected, judges mutants by them."""

    def __init__(
        self,
        mutants: Sequence[Mutant],
        choice: Choice,
        names: dict[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._mutants, self._choice, self._names, self._say = mutants, choice, names, say

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        functions = functions_by_code(self._names.values())
        gc.collect()
        gc.freeze()  # the forks share what there is

        def run(mutant: Mutant | None, tests: Sequence[str], say: Callable[[str], None]) -> int:
            if mutant and not exchange(mutant, self._names[mutant.file], functions):
                return NOT_TAKEN
            return first_failure(session, [items[test] for test in tests if test in items], say)

        court = Court(self._choice, run)
        for index, mutant in enumerate(self._mutants):
            code, killer = court.judge(mutant)
            self._say(f"{index} {code} {killer}")
        return True


def functions_by_code(names: Iterable[str]) -> dict[tuple[str, str], list[FunctionType]]:
    """Return every function there is of these files, by file name and qualified name."""
    functions = defaultdict(list)
    wanted = set(names)
    for candidate in gc.get_objects():
        if isinstance(candidate, FunctionType) and candidate.__code__.co_filename in wanted:
            code = candidate.__code__
            functions[code.co_filename, code.co_qualname].append(candidate)
    return functions


def exchange(
    mutant: Mutant, name: str, functions: dict[tuple[str, str], list[FunctionType]]
) -> bool:
    """Give the function the mutant's code; return whether it could take it."""
    codes = [
        code
        for code in _codes(compile(mutant.source, name, "exec", dont_inherit=True))
        if code.co_qualname == mutant.function
    ]
    targets = functions.get((name, mutant.function), [])
    if len(codes) != 1 or not targets:
        return False
    try:
        for function in targets:
            function.__code__ = codes[0]
    except ValueError:  # it closes over other variables
        return False
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def first_failure(
    session: pytest.Session, items: Sequence[pytest.Item], say: Callable[[str], None]
) -> int:
    """Run items until one fails; say which. Return whether one did."""
    for item in items:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        if session.testsfailed:
            say(item.nodeid)
            return 1
    return 0


# --- cold ---------------------------------------------------------------------------


@dataclass
class Cold:
    """Runs tests in a new session, with the mutant in place of its module."""

    choice: Choice

    def run(self, mutant: Mutant | None, tests: Sequence[str], say: Callable[[str], None]) -> int:
        """Import, collect and run the tests until one fails; say which."""
        if mutant is not None:
            sys.meta_path.insert(0, Imported(mutant))
        files = list(dict.fromkeys(nodeid.partition("::")[0] for nodeid in tests))
        for chosen in (files[:1], files[1:]):  # most fall by the test that felled the one before
            if chosen:
                code = run_session(["-x", *chosen], Chosen(tests, self.choice, say))
                if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                    return 1
        return 0


class Imported(SourceFileLoader, MetaPathFinder):
    """Finds the mutant's module, and loads it with the change."""

    def __init__(self, mutant: Mutant) -> None:
        self._module = "batchproof." + mutant.file.removesuffix(".py").removesuffix(
            "/__init__"
        ).replace("/", ".")
        self._source = mutant.source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module as it is found otherwise, to be loaded by this."""
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        super().__init__(fullname, spec.origin)
        spec.loader = self
        return spec

    def get_code(self, fullname: str) -> CodeType:
        """Return the mutant's code."""
        return compile(self._source, self.path, "exec", dont_inherit=True)


class Chosen:
    """A plugin: runs the chosen tests, and those that nobody has surveyed, until one fails."""

    def __init__(self, chosen: Sequence[str], choice: Choice, say: Callable[[str], None]) -> None:
        self._ranks = {nodeid: rank for rank, nodeid in enumerate(chosen)}
        self._choice, self._say = choice, say

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (
                item
                for item in items
                if item.nodeid in self._ranks or not self._choice.knows(item.nodeid)
            ),
            key=lambda item: self._ranks.get(item.nodeid, len(self._ranks)),
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._say(report.nodeid)
