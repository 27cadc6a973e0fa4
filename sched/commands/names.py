"""Names given on the command line: known, or refused with what there is."""

from collections.abc import Iterable
from difflib import get_close_matches

from batchproof.sched.errors import InputError


def known(what: str, name: str, names: Iterable[str]) -> str:
    """Return `name` if it is one of `names`; raise `InputError` with what there is if not."""
    there_are = list(dict.fromkeys(names))
    if name in there_are:
        return name
    close = get_close_matches(name, there_are, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise InputError(f"unknown {what} {name!r}: {hint}there are: {', '.join(there_are) or 'none'}")
