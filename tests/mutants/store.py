"""What earlier runs found: a mutant that was caught stays caught while its file is as it was.

Kept in a folder that is not under version control. It saves time, and says nothing
that a run without it would not find.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from mutants.judge import Outcome
from mutants.mutation import Mutant
from mutants.survey import Seen, Survey


def digest(text: str) -> str:
    """Return a short name for a text."""
    return sha256(text.encode()).hexdigest()[:20]


class Store:
    """Outcomes by mutant, and what each test calls."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._outcomes = folder / "outcomes.jsonl"
        self._surveys = folder / "survey.json"
        self._known: dict[str, Outcome] = {}
        if self._outcomes.exists():
            for line in self._outcomes.read_text().splitlines():
                name, outcome = json.loads(line)[:2]
                self._known[name] = outcome

    def outcome(self, mutant: Mutant) -> Outcome | None:
        """Return what became of this very mutant when it was judged last, if it was."""
        return self._known.get(digest(mutant.source))

    def add(self, mutant: Mutant, outcome: Outcome, by: str) -> None:
        """Keep an outcome, and the test that failed first."""
        with self._outcomes.open("a") as lines:
            said = [digest(mutant.source), outcome, mutant.file, *mutant.key, by]
            print(json.dumps(said), file=lines)
        self._known[said[0]] = outcome

    def survey(self, tests: dict[str, str]) -> Survey:
        """Return the survey of the tests in the files that are as they were: path -> text."""
        if not self._surveys.exists():
            return Survey()
        kept: dict[str, Any] = json.loads(self._surveys.read_text())
        same = {path for path, text in tests.items() if kept["files"].get(path) == digest(text)}
        seen = {
            nodeid: Seen(seconds, frozenset(map(tuple, sites)))
            for nodeid, (seconds, sites) in kept["seen"].items()
            if nodeid.partition("::")[0] in same
        }
        return Survey(seen, frozenset(map(tuple, kept["at_import"])), frozenset(same))

    def keep_survey(self, survey: Survey, tests: dict[str, str]) -> None:
        """Keep a survey of the tests in these files."""
        kept = {
            "files": {path: digest(text) for path, text in tests.items()},
            "at_import": sorted(survey.at_import),
            "seen": {n: (s.seconds, sorted(s.sites)) for n, s in survey.seen.items()},
        }
        self._surveys.write_text(json.dumps(kept))
