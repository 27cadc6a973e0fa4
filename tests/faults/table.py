"""The table of seeded faults, and what notices each: docs/explanation/seeded-faults.md.

`PYTHONPATH=tests python -m faults.table` writes it.
"""

from pathlib import Path
from typing import Final

from faults.fault import Fault, verdict_of
from faults.seeded import FAULTS

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "seeded-faults.md"
HEAD: Final = """\
# Seeded faults

Checks that cannot fail prove nothing. So each property of the catalog has at least one fault, put
into the specification or into a policy on purpose, that it must notice. Each is a few lines in
`tests/faults/`; this table is made by running the checker on every one of them.

The model-checker's search is breadth first, so the steps are those of a shortest counterexample
at the bound named; of a liveness property, up to and once round the lasso. A *witness* claims that
something can happen: its fault makes that impossible, and all states of the bound show it.

| fault | what is wrong | noticed by | bound | steps |
|---|---|---|---|---|
"""


def row(fault: Fault) -> str:
    """Return the line of one fault.

    Raises:
        AssertionError: the property does not notice it.
    """
    verdict = verdict_of(fault)
    assert verdict.outcome == "violated", f"{fault.breaks} does not notice {fault.name}"
    steps = "never reached" if verdict.trace is None else str(verdict.trace.length)
    return f"| {fault.name} | {fault.story} | `{fault.breaks}` | {fault.bound} | {steps} |\n"


if __name__ == "__main__":
    PAGE.write_text(HEAD + "".join(map(row, FAULTS)))
