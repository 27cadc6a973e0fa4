"""`batchproof bench`: what things cost on this machine, measured now."""

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

from cyclopts import Parameter

from batchproof.sched.errors import InputError

SUBJECTS: Mapping[str, str] = {
    "scheduler": "batchproof.sched.bench.scheduler",
    "checker": "batchproof.sched.bench.checker",
    "policies": "batchproof.sched.bench.policies",
}
"""Subject -> the module whose `measure()` returns a JSON-ready object."""


def bench(
    *subjects: str, as_json: Annotated[bool, Parameter(name="--json", negative=())] = False
) -> int:
    """Measure, in CPU time of the measuring thread; all subjects when none is named.

    Parameters
    ----------
    subjects
        scheduler, checker, policies.
    as_json
        Print one JSON object instead of lines.

    """
    chosen = subjects or tuple(SUBJECTS)
    for subject in chosen:
        if subject not in SUBJECTS:
            raise InputError(f"bench: {subject!r} is unknown; there are: {', '.join(SUBJECTS)}")
    measured = {subject: import_module(SUBJECTS[subject]).measure() for subject in chosen}
    if as_json:
        print(json.dumps(measured, indent=2))
    else:
        for name, value in _flat(measured):
            print(f"{name:<60} {value:,.3f}" if isinstance(value, float) else f"{name:<60} {value}")
    return 0


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
