"""The page on mutants, from what became of each."""

from collections.abc import Iterator, Mapping
from typing import Final

from mutants.judge import SECONDS_MAX, SLOWER, SPARE_SECONDS, Outcome
from mutants.mutation import OWN_OPERATORS, UNSEEN_CALLS, Mutant
from mutants.reasons import Equivalent

Outcomes = Mapping[Mutant, Outcome | None]
"""What became of each mutant; None if it was not judged."""
Reasons = Mapping[tuple[str, ...], Equivalent]
"""File and key of a mutant -> why it is equivalent."""

HEAD: Final = f"""\
# Mutants

A check that nothing can make fail checks nothing. So each line of the core and of the claims is
changed, a little and in one place at a time, and some test must then fail. `make mutants` makes
this page; a first run takes hours of one processor, a later one judges what has changed.

**What is changed.** mutmut's operators: numbers, strings, `True` and `False`, comparisons,
arithmetic, `and` and `or`, `not`, `in`, `is`, `break` and `continue`, assigned values, arguments,
lambdas, branches of a conditional expression. And {len(OWN_OPERATORS)} more:

{{operators}}

Module-level tables are changed too, except in ways that only break the import.

**What is not.** Docstrings, texts (any string with a space), `raise` statements, annotations,
decorators, protocols, `if TYPE_CHECKING`, `__repr__`, and what is in a call of {{unseen}}: a test
should not pin these, or a type checker does.

**Killed** is a mutant with which a test fails, or takes more than {SLOWER} times as long and
{SPARE_SECONDS} seconds. It is judged by the tests that call the changed function or, where the
change is carried out when a module is imported, that call anything there or are in a file that
imports it; the quickest first, until they have taken {SECONDS_MAX} seconds. What only slower
tests would notice survives here. A test that fails in the same place without the mutant is not
asked. **Equivalent** is a survivor that no test could kill, for the reason given; the rest are
**open**. What is not yet **judged**, because a run was cut short, the next run goes on with.

"""


def page(outcomes: Outcomes, reasons: Reasons) -> str:
    """Return the page."""
    unseen = ", ".join(f"`{name}`" for name in sorted(UNSEEN_CALLS))
    operators = "\n".join(f"- {operator.__doc__}" for _, operator in OWN_OPERATORS)
    head = HEAD.format(operators=operators, unseen=unseen)
    return head + "\n".join((*_totals(outcomes, reasons), *_survivors(outcomes, reasons))) + "\n"


def _totals(outcomes: Outcomes, reasons: Reasons) -> Iterator[str]:
    yield "| file | mutants | judged | killed | equivalent | open | killed, of those judged |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    files = list(dict.fromkeys(mutant.file for mutant in outcomes))
    for name, chosen in [*((f"`{file}`", {file}) for file in files), ("**all**", set(files))]:
        mine = [mutant for mutant in outcomes if mutant.file in chosen]
        judged = [mutant for mutant in mine if outcomes[mutant] is not None]
        alive = [mutant for mutant in judged if outcomes[mutant] == "survived"]
        equal = sum((mutant.file, *mutant.key) in reasons for mutant in alive)
        killed = len(judged) - len(alive)
        share = f"{killed / len(judged):.1%}" if judged else "–"
        counts = (len(mine), len(judged), killed, equal, len(alive) - equal, share)
        yield f"| {name} | {' | '.join(map(str, counts))} |"


def _survivors(outcomes: Outcomes, reasons: Reasons) -> Iterator[str]:
    file = ""
    for mutant, outcome in outcomes.items():
        if outcome != "survived":
            continue
        if mutant.file != file:
            file = mutant.file
            yield from ("", f"## `{file}`", "")
            yield from ("| in | was | now | why it is equivalent |", "|---|---|---|---|")
        reason = reasons.get((mutant.file, *mutant.key))
        cells = (mutant.function or "the module", mutant.was, mutant.now)
        code = " | ".join(f"`{cell.replace('|', chr(92) + '|')}`" for cell in cells)
        yield f"| {code} | {reason.why if reason else '**open**'} |"
