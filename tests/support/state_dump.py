"""The whole state of a scheduler as plain data, to see that a refusal changed nothing.

It walks every attribute there is, so that a new one is compared without being
named here. Orders count: an ordered dict that is rearranged is a change.
"""

from collections.abc import KeysView, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

SCRATCH = frozenset({"scheduled", "view", "_plan", "_stale", "_by_usage", "_by_load"})
"""Written by each plan before it is read, or sorted when it is read: what is left there, and how
much of it has been sorted yet, means nothing."""
OUTSIDE = frozenset({"executor", "_observer", "policy", "_stateful"})
"""Not the scheduler's own."""
_PLAIN = (int, str, bytes, bool, type(None))
_CODE = (FunctionType, MethodType, BuiltinFunctionType, ModuleType, type)


def dump(scheduler: object, without: frozenset[str] = frozenset()) -> Any:
    """Return the state as nested lists and dicts that compare by value."""
    return _Dump(SCRATCH | OUTSIDE | without).of(scheduler)


class _Dump:
    def __init__(self, without: frozenset[str]) -> None:
        self.without = without
        self.seen: dict[int, int] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, float):
            return repr(value)  # so that NaN equals NaN
        if isinstance(value, _CODE):
            return "code"
        if id(value) in self.seen:
            return f"the {self.seen[id(value)]}th object"
        self.seen[id(value)] = len(self.seen)
        if isinstance(value, Mapping):
            return [(self.of(key), self.of(item)) for key, item in value.items()]
        if isinstance(value, list | tuple | KeysView):
            return [self.of(item) for item in value]
        if isinstance(value, set | frozenset):
            return sorted(map(repr, value))
        return {"class": type(value).__name__, **self.attributes(value)}

    def attributes(self, value: object) -> dict[str, Any]:
        names = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
        names |= set(getattr(value, "__dict__", ()))
        own = {
            name: self.of(getattr(value, name))
            for name in sorted(names - self.without)
            if hasattr(value, name)
        }
        # A subclass of a container has contents besides its attributes.
        if hasattr(type(value), "__iter__"):
            own["contents"] = [self.of(item) for item in value]  # type: ignore[attr-defined]
        return own
