"""The table of mutants: docs/explanation/mutants.md.

`PYTHONPATH=tests python -m mutants.table` judges all of them and writes it;
with files named, it judges theirs only, and lists who survives.
"""

import argparse
import os
import sys
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mutants.judge import Outcome, judge
from mutants.mutation import Mutant, mutants_of
from mutants.page import page
from mutants.reasons import reasons
from mutants.store import Store
from mutants.survey import Survey, survey_of

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "explanation" / "mutants.md"
CAUGHT: Final[tuple[Outcome, ...]] = ("killed", "too slow")
BELIEVED: Final[Mapping[str, Container[Outcome | None]]] = {
    "all": (),
    "survivors": CAUGHT,
    "new": (*CAUGHT, "survived"),
    "none": (*CAUGHT, "survived", None),
}
"""Which mutants are judged -> what is believed of others that were judged before, unchanged."""
KILLED_MIN: Final = 0.9
"""The least share of mutants to be killed, the equivalent ones counted as survivors."""
TARGETS: Final = (
    "sched/scheduler.py",
    "sched/blocks.py",
    "sched/lifecycle.py",
    "sched/policy/*.py",
    "invariants/*.py",
)
TESTS: Final = (
    "tests/invariants/test_*.py",
    "tests/sched/test_*.py",
    "tests/sched/policy/test_*.py",
    "tests/conformance/test_*.py",
    "tests/scenarios/test_*.py",
    "tests/stateful/test_*.py",
    "tests/fair/test_*.py",
    "tests/faults/test_seeded_faults.py",
    "tests/spec/test_b*.py",
)


def files_of(patterns: Sequence[str]) -> list[str]:
    """Return the files of the repository that match, in order."""
    return [
        str(path.relative_to(ROOT)) for pattern in patterns for path in sorted(ROOT.glob(pattern))
    ]


def surveyed(store: Store, targets: Sequence[str], tests: Sequence[str]) -> Survey:
    """Return what each test calls, looking only at test files that are new or have changed."""
    texts = {test: (ROOT / test).read_text() for test in tests}
    survey = store.survey(texts)
    new = [test for test in tests if test not in survey.files]
    if new:
        note(f"looking at what the tests in {len(new)} files call")
        more = survey_of(ROOT, targets, new)
        survey = Survey(
            {**survey.seen, **more.seen}, survey.at_import | more.at_import, frozenset(tests)
        )
        store.keep_survey(survey, texts)
    return survey


def outcomes(
    targets: Sequence[str], store: Store, believed: Container[Outcome | None]
) -> dict[Mutant, Outcome | None]:
    """Judge the mutants of the targets but those of which the store says what is believed.

    Return what is known of all; if it is interrupted, of some nothing is.
    """
    mutants = [mutant for file in targets for mutant in mutants_of(ROOT, file)]
    todo = [mutant for mutant in mutants if store.outcome(mutant) not in believed]
    note(f"{len(mutants)} mutants, {len(todo)} to be judged")
    done = 0

    def judged(mutant: Mutant, outcome: Outcome, by: str) -> None:
        nonlocal done
        done += 1
        store.add(mutant, outcome, by)
        if outcome == "survived":
            note(f"{done} survived: {described(mutant)}")
        elif done % 50 == 0:
            note(f"{done} of {len(todo)}")

    with suppress(KeyboardInterrupt):
        if todo:
            tests = files_of(TESTS)
            judge(todo, surveyed(store, files_of(TARGETS), tests), tests, ROOT, judged)
    return {mutant: store.outcome(mutant) for mutant in mutants}


def described(mutant: Mutant) -> str:
    """Return a mutant in a line."""
    return f"{mutant.file} {mutant.function}: {mutant.was} -> {mutant.now}"


def note(text: str) -> None:
    """Tell whoever waits."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Judge, and write the page; return 1 if a reason is stale, or too few are killed."""
    parser = argparse.ArgumentParser(prog="python -m mutants.table", description=__doc__)
    parser.add_argument("files", nargs="*", help="judge the mutants of these alone; no page")
    parser.add_argument(
        "--judge",
        choices=BELIEVED,
        default="survivors",
        help="all; those not caught before; those never judged; or none: a page of what is known",
    )
    options = parser.parse_args()
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    os.chdir(ROOT)
    targets = options.files or files_of(TARGETS)
    found = outcomes(targets, Store(ROOT / ".mutants"), BELIEVED[options.judge])
    survivors = {(m.file, *m.key): m for m, outcome in found.items() if outcome == "survived"}
    known = {reason.key: reason for reason in reasons()}
    print(f"{len(found)} mutants, {len(survivors)} survive")
    for key, mutant in survivors.items():
        if key not in known:
            print(f"open: {described(mutant)}")
    unjudged = {(m.file, *m.key) for m, outcome in found.items() if outcome is None}
    stale = [key for key in known if key[0] in targets and key not in survivors.keys() | unjudged]
    for key in stale:
        print(f"stale: the reason for {key}: no such mutant survives")
    if not options.files:
        PAGE.write_text(page(found, known))
    killed = sum(outcome in CAUGHT for outcome in found.values())
    return 0 if killed >= KILLED_MIN * len(found) and not stale else 1


if __name__ == "__main__":
    sys.exit(main())
