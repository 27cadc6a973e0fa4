"""Generate the reference pages from the code: `python docs/generate.py`, or `--check`."""

import contextlib
import inspect
import io
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType

README = Path(__file__).parent.parent / "README.md"
RUN_BLOCK = "<!-- made by docs/generate.py: batchproof run -->"
REFERENCE = Path(__file__).parent / "reference"

API = {
    "The scheduler": ("batchproof.sched.scheduler", ("Scheduler",)),
    "Requests": ("batchproof.sched.request", ("Request",)),
    "Limits": ("batchproof.sched.config", ("Limits",)),
    "Batches": ("batchproof.sched.batch", ("Batch",)),
    "Executors": ("batchproof.sched.executor", ("Executor", "ScheduledSequence")),
    "The simulated GPU": ("batchproof.sched.inference_stub", ("SimulatedGPU",)),
    "Latency models": ("batchproof.sched.latency", ("LatencyModel",)),
    "Policies": ("batchproof.sched.policy.protocol", ("Policy", "View", "Candidate", "Plan")),
    "Observers": ("batchproof.sched.observer", ("Observer",)),
    "The monitor": ("batchproof.sched.monitor", ("Monitor",)),
    "Testing other schedulers": (
        "batchproof.testing",
        ("SchedulerContract", "SchedulerAdapter", "StepReport", "assert_conforms"),
    ),
    "Properties": ("batchproof.spec.property", ("Property",)),
    "Models": ("batchproof.spec.machine", ("Model",)),
}
"""Title of a section -> the module and the classes that it describes."""


def api_page() -> Iterator[str]:
    """Yield the lines of the page on the public classes."""
    yield from ("# The interface", "", "Made from the docstrings by `python docs/generate.py`.")
    for title, (module, names) in API.items():
        yield from ("", f"## {title}", "", f"`{module}`")
        for name in names:
            yield from class_section(getattr(import_module(module), name))


def class_section(cls: type) -> Iterator[str]:
    """Yield the description of a class, and of what is public in it, or of a function."""
    yield from ("", f"### {cls.__name__}", "", inspect.getdoc(cls) or "")
    if not inspect.isclass(cls):
        return
    for name, member in vars(cls).items():
        if name.startswith("_") or not inspect.getdoc(member):
            continue
        if isinstance(member, property):
            yield from ("", f"#### `{name}`", "", inspect.getdoc(member) or "")
        elif isinstance(member, FunctionType | classmethod):
            signature = inspect.signature(getattr(cls, name))
            yield from ("", f"#### `{name}{signature}`", "", inspect.getdoc(member) or "")


def errors_page() -> Iterator[str]:
    """Yield the lines of the page on errors."""
    yield from ("# Errors, by whose fault they are", "")
    yield from ("After any of them the scheduler is as it was before the call.", "")
    yield from ("| error | is a | when |", "|---|---|---|")
    module = import_module("batchproof.sched.errors")
    for name, cls in vars(module).items():
        if inspect.isclass(cls) and cls.__module__ == module.__name__:
            bases = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
            yield f"| `{name}` | {bases} | {(inspect.getdoc(cls) or '').splitlines()[0]} |"


def lifecycle_page() -> Iterator[str]:
    """Yield the lines of the page on the life of a request."""
    from batchproof.spec.lifecycle import EDGES, INITIAL, PHASES

    yield from ("# The life of a request", "", "![Its phases and edges](lifecycle.svg)", "")
    yield f"A request begins in `{INITIAL}`; the phases are {', '.join(f'`{p}`' for p in PHASES)}."
    yield from ("", "| event | from | to | rule |", "|---|---|---|---|")
    for edge in EDGES:
        yield f"| `{edge.event}` | `{edge.source}` | `{edge.dest}` | {edge.rule} |"


PROMISES = """\
{count} claims of the catalog are of the rules, and hold under every policy. These are promised
by some only, and `batchproof check --policy NAME` decides them in every reachable state, at every
bound. `vtc` promises none of them: its counters have no end of states, so that they cannot be
decided. `prefill-first` should keep what is marked, and does not: it is there to be compared with.
"""


def promises_page() -> Iterator[str]:
    """Yield the lines of the page on what each policy promises beyond the rules."""
    from batchproof.invariants.catalog import CATALOG
    from batchproof.sched.policy.registry import POLICIES

    beyond = [claim for claim in CATALOG if claim.promised_by is not None]
    text = PROMISES.format(count=len(CATALOG) - len(beyond))
    yield from ("# What each policy promises beyond the rules", "", *text.splitlines(), "")
    yield f"| claim | {' | '.join(f'`{policy}`' for policy in POLICIES)} |"
    yield "|---|" + "---|" * len(POLICIES)
    for claim in beyond:
        promised_by = claim.promised_by or frozenset()
        marks = ("yes" if policy in promised_by else "" for policy in POLICIES)
        yield f"| `{claim.name}`: {claim.claim} | {' | '.join(marks)} |"


def readme() -> str:
    """Return README with what `batchproof run` prints now."""
    from batchproof.sched.cli import run_cli

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        run_cli(["run"])
    text = README.read_text()
    before, start, rest = text.partition(RUN_BLOCK)
    _, end, after = rest.partition("<!-- end -->")
    return f"{before}{start}\n```text\n{printed.getvalue().rstrip()}\n```\n{end}{after}"


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "api.md": api_page,
    "errors.md": errors_page,
    "lifecycle.md": lifecycle_page,
    "promises.md": promises_page,
}
"""File in docs/reference -> what makes its lines."""


def page(name: str) -> str:
    """Return the text of a generated page."""
    return "\n".join(PAGES[name]()) + "\n"


def main() -> None:
    """Write what is stale; with `--check`, exit with 1 if anything is."""
    made = {REFERENCE / name: page(name) for name in PAGES} | {README: readme()}
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    names = ", ".join(path.name for path in stale)
    if "--check" in sys.argv[1:]:
        sys.exit(f"stale: {names}: run python docs/generate.py" if stale else 0)
    for path in stale:
        path.write_text(made[path])
    print(f"wrote {names}" if stale else "nothing is stale")


if __name__ == "__main__":
    main()
