"""The bounds as TLA+ reads them: a `.cfg` for each, and the module that names their requests.

`PYTHONPATH=tests python -m tlaplus.tla_bounds` writes them into spec/.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tlaplus.tla_reader import Function

from batchproof.invariants.catalog import CATALOG
from batchproof.spec.bounds import SIZES, Size
from batchproof.spec.state import Request

SPEC: Final = Path(__file__).parents[2] / "spec"
MODULE: Final = "ContinuousBatching"


COMPARED: Final = {name: size for name, size in SIZES.items() if not size.system.max_passes}
"""Bound -> its size. The module has no priorities: they only choose among a user's own places at a
submission, and a second statement of that in TLA+ would be read by nobody else."""


def constants(size: Size) -> dict[str, Any]:
    """Return the values of the module's constants at a bound."""
    system = size.system
    limits = {_camel(name): value for name, value in system.limits._asdict().items()}
    requests = tuple(Function(_record(request)) for request in system.requests)
    return {
        **limits,
        "Admission": system.admission,
        "Cancels": system.cancels,
        "Requests": requests,
    }


def files(invariants: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file; `invariants` are by their names in the catalog."""
    yield f"MC{MODULE}.tla", _requests_module()
    for name, size in COMPARED.items():
        yield f"MC{MODULE}-{name}.cfg", _config(name, size, [_camel(i) for i in invariants])


def _config(name: str, size: Size, invariants: list[str]) -> str:
    lines = [
        f"\\* {size.about}: {size.states:,} distinct states.",
        f"\\* tlc -config MC{MODULE}-{name}.cfg MC{MODULE}.tla",
        "SPECIFICATION Spec",
        "CONSTANTS",
    ]
    for constant, value in constants(size).items():
        if constant == "Requests":
            lines.append(f"    Requests <- {_camel(name)}Requests")
        else:
            lines.append(f"    {constant} = {_text(value)}")
    lines += ["INVARIANTS", *(f"    {invariant}" for invariant in invariants), ""]
    return "\n".join(lines)


def _requests_module() -> str:
    lines = [f" MODULE MC{MODULE} ".center(77, "-")]
    lines += [r"\* The requests of each bound: a .cfg cannot write them down itself."]
    lines += [f"EXTENDS {MODULE}", ""]
    for name, size in COMPARED.items():
        records = [
            "[" + ", ".join(f"{field} |-> {value}" for field, value in _record(r).items()) + "]"
            for r in size.system.requests
        ]
        lines += [f"{_camel(name)}Requests ==", "    << " + ",\n       ".join(records) + " >>", ""]
    return "\n".join([*lines, "=" * 77, ""])


def _record(request: Request) -> dict[str, int]:
    """Return a request as the module has it."""
    return {name: value for name, value in request._asdict().items() if name != "priority"}


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.replace("_", "-").split("-"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).upper()


def spec_invariants() -> list[str]:
    """Return the invariants of the specification itself, as the catalog names them."""
    return [c.name for c in CATALOG if c.kind == "invariant" and c.promised_by is None]


if __name__ == "__main__":
    for file_name, text in files(spec_invariants()):
        (SPEC / file_name).write_text(text)
