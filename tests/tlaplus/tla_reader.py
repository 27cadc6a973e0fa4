"""A small reader of TLA+: enough to run ContinuousBatching.tla as it is written.

The module's text, parsed by the package `tla`, is turned into Python functions
of an environment (names -> values). Numbers, strings and sets are Python's;
functions and records are `Function`; sequences are tuples. It shares nothing
with `batchproof.spec`, so that agreement of the two means something.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any

import tla

Env = dict[str, Any]
Evaluate = Callable[[Env], Any]
Enumerate = Callable[[Env, Env], Iterator[Env]]
"""`(environment, next values so far) -> every way to complete the next values`."""


class Function(dict):
    """A function or a record: hashable, never changed."""

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))


class Definition:
    """An operator: its parameters, its body, and the environment that the body sees."""

    def __init__(self, parameters: list[str], body: Any, env: Env | None = None) -> None:
        self.parameters = parameters
        self.body = body
        self.env = env


class Later:
    """The value of a LET, worked out when it is first asked for."""

    def __init__(self, evaluate: Evaluate, env: Env) -> None:
        self.todo: tuple[Evaluate, Env] | None = (evaluate, env)
        self.value: Any = None

    def get(self) -> Any:
        if self.todo is not None:
            evaluate, env = self.todo
            self.value, self.todo = evaluate(env), None
        return self.value


class Module:
    """A module with its constants given values: `initial`, `successors`, and its predicates."""

    def __init__(self, path: Path, constants: Mapping[str, Any]) -> None:
        self.tree = tla.parse(path.read_text())
        self.constants: list[str] = []
        self.variables: list[str] = []
        self.operators: dict[str, Definition] = {}
        for unit in self.tree.units:
            kind = type(unit).__name__
            if kind == "Constants":
                self.constants += [name.operator for name in unit.names]
            elif kind == "Variables":
                self.variables += [name.operator for name in unit.names]
            elif kind == "OperatorDefinition":
                self.operators[unit.name] = _definition(unit)
        self.values = dict(constants)
        self.expression = _by_identity(self._expression)
        self.action = _by_identity(self._action)
        self.has_prime = _by_identity(self._has_prime)

    def initial(self) -> tuple[Any, ...]:
        """Return the one initial state, as the values of the variables."""
        env: Env = {}
        for part in self.operators["Init"].body.arguments:
            name, value = part.expression.arguments
            env[name.operator] = self.expression(value)(dict(self.values))
        return tuple(env[name] for name in self.variables)

    def successors(self, state: tuple[Any, ...], action: str = "Next") -> Iterator[Any]:
        """Yield every state that `action` may lead to."""
        env = self._env(state)
        for after in self.action(self.operators[action].body)(env, {}):
            yield tuple(after[name] for name in self.variables)

    def holds(self, predicate: str, state: tuple[Any, ...]) -> bool:
        """Say whether a predicate without parameters is true of a state."""
        return self.expression(self.operators[predicate].body)(self._env(state))

    def _env(self, state: tuple[Any, ...]) -> Env:
        return {**self.values, **dict(zip(self.variables, state, strict=True))}

    # --- expressions ----------------------------------------------------------

    def _expression(self, node: Any) -> Evaluate:
        name = re.sub("(?<!^)(?=[A-Z])", "_", type(node).__name__).lower()
        return getattr(self, f"{name}_")(node)

    def integral_numeral_(self, node: Any) -> Evaluate:
        value = int(node.value)
        return lambda env: value

    def string_literal_(self, node: Any) -> Evaluate:
        value = node.value.strip('"')
        return lambda env: value

    def boolean_literal_(self, node: Any) -> Evaluate:
        value = node.value == "TRUE"
        return lambda env: value

    def parentheses_(self, node: Any) -> Evaluate:
        return self.expression(node.expression)

    def if_(self, node: Any) -> Evaluate:
        test, then, other = map(self.expression, (node.predicate, node.then, node.else_))
        return lambda env: then(env) if test(env) else other(env)

    def let_(self, node: Any) -> Evaluate:
        body = self.expression(node.expression)
        return lambda env: body(self._with(node.definitions, env))

    def _with(self, definitions: Iterable[Any], env: Env) -> Env:
        inner = dict(env)
        for unit in definitions:
            if unit.arity:
                inner[unit.name] = Definition(*_parts(unit), inner)
            else:
                inner[unit.name] = Later(self.expression(unit.definiens), inner)
        return inner

    def vertical_list_(self, node: Any) -> Evaluate:
        parts = [self.expression(item.expression) for item in node.arguments]
        decide = all if node.operator == "/\\" else any
        return lambda env: decide(part(env) for part in parts)

    def field_(self, node: Any) -> Evaluate:
        record, name = self.expression(node.expression), node.name
        return lambda env: record(env)[name]

    def function_application_(self, node: Any) -> Evaluate:
        function, argument = self.expression(node.function), self.expression(node.arguments[0])
        return lambda env: _apply(function(env), argument(env))

    def function_(self, node: Any) -> Evaluate:
        (name,), domain = self._bound([node.declaration[0]])[0]
        value = self.expression(node.value)
        return lambda env: Function({x: value({**env, name: x}) for x in domain(env)})

    def record_(self, node: Any) -> Evaluate:
        fields = {key: self.expression(value) for key, value in _pairs(node.key_values)}
        return lambda env: Function({key: value(env) for key, value in fields.items()})

    def tuple_(self, node: Any) -> Evaluate:
        items = [self.expression(item) for item in node.items or ()]
        return lambda env: tuple(item(env) for item in items)

    def except_(self, node: Any) -> Evaluate:
        record = self.expression(node.function)
        changes = {_name(c.item): self.expression(c.expression) for c in node.changes}
        return lambda env: Function(record(env) | {k: new(env) for k, new in changes.items()})

    def set_enumeration_(self, node: Any) -> Evaluate:
        items = [self.expression(item) for item in node.items or ()]
        return lambda env: frozenset(item(env) for item in items)

    def set_slice_(self, node: Any) -> Evaluate:
        (name,), domain = self._bound([node.declaration])[0]
        keep = self.expression(node.predicate)
        return lambda env: frozenset(x for x in domain(env) if keep({**env, name: x}))

    def set_comprehension_(self, node: Any) -> Evaluate:
        (name,), domain = self._bound(node.declarations)[0]
        item = self.expression(node.item)
        return lambda env: frozenset(item({**env, name: x}) for x in domain(env))

    def set_of_functions_(self, node: Any) -> Evaluate:
        domain, codomain = self.expression(node.domain), self.expression(node.codomain)

        def functions(env: Env) -> list[Function]:
            names, values = sorted(domain(env)), sorted(codomain(env))
            return [
                Function(zip(names, chosen, strict=True))
                for chosen in product(values, repeat=len(names))
            ]

        return functions

    def choose_(self, node: Any) -> Evaluate:
        (name,), domain = self._bound([node.declaration])[0]
        test = self.expression(node.predicate)
        return lambda env: next(x for x in sorted(domain(env)) if test({**env, name: x}))

    def quantification_(self, node: Any) -> Evaluate:
        bound, test = self._bound(node.declarations), self.expression(node.predicate)
        decide = all if node.quantifier == "\\A" else any
        return lambda env: decide(test(inner) for inner in _bindings(bound, env))

    def _bound(self, declarations: Iterable[Any]) -> list[tuple[list[str], Evaluate]]:
        """Return the names bound by declarations such as `i, j \\in S`, with the set of each."""
        names: list[str] = []
        found: list[tuple[list[str], Evaluate]] = []
        for node in declarations:
            if node.operator != "\\in":
                names.append(node.operator)
                continue
            name, domain = node.arguments
            found.append(([*names, name.operator], self.expression(domain)))
            names = []
        return found

    def operator_application_(self, node: Any) -> Evaluate:
        name, arguments = node.operator, node.arguments
        if not arguments:
            return lambda env: self._value(name, env)
        if name == "ENABLED":
            action = self.action(self.operators[arguments[0].operator].body)
            return lambda env: next(action(env, {}), None) is not None
        if name == "SelectSeq":
            line, test = self.expression(arguments[0]), arguments[1].operator
            return lambda env: tuple(x for x in _sequence(line(env)) if self._call(env[test], [x]))
        values = [self.expression(argument) for argument in arguments]
        if name in LAZY:
            first, second = values
            return LAZY[name](first, second)
        if name in BUILT_IN:
            built_in = BUILT_IN[name]
            return lambda env: built_in(*(value(env) for value in values))
        return lambda env: self._call(
            env.get(name) or self.operators[name], [value(env) for value in values], env
        )

    def _value(self, name: str, env: Env) -> Any:
        if name not in env:
            return self.expression(self.operators[name].body)(self._globals(env))
        value = env[name]
        return value.get() if isinstance(value, Later) else value

    def _call(self, operator: Definition, values: list[Any], env: Env | None = None) -> Any:
        scope = self._globals(env or {}) if operator.env is None else operator.env
        arguments = zip(operator.parameters, values, strict=True)
        return self.expression(operator.body)({**scope, **dict(arguments)})

    def _globals(self, env: Env) -> Env:
        return {name: env[name] for name in (*self.values, *self.variables) if name in env}

    # --- actions ----------------------------------------------------------------

    def _action(self, node: Any) -> Enumerate:
        if not self.has_prime(node):
            test = self.expression(node)
            return lambda env, after: iter([after] if test(env) else [])
        kind = type(node).__name__
        if kind == "VerticalList":
            parts = [self.action(item.expression) for item in node.arguments]
            return _conjunction(parts) if node.operator == "/\\" else _disjunction(parts)
        if kind == "Quantification":
            bound, body = self._bound(node.declarations), self.action(node.predicate)
            return lambda env, after: chain.from_iterable(
                body(inner, after) for inner in _bindings(bound, env)
            )
        if kind == "Let":
            body = self.action(node.expression)
            return lambda env, after: body(self._with(node.definitions, env), after)
        if node.operator == "=":
            return self._assignment(node)
        operator = self.operators[node.operator]
        values = [self.expression(argument) for argument in node.arguments or ()]
        body = self.action(operator.body)

        def called(env: Env, after: Env) -> Iterator[Env]:
            arguments = zip(operator.parameters, (v(env) for v in values), strict=True)
            return body({**self._globals(env), **dict(arguments)}, after)

        return called

    def _assignment(self, node: Any) -> Enumerate:
        (primed,), value = node.arguments[0].arguments, self.expression(node.arguments[1])
        return lambda env, after: iter([{**after, primed.operator: value(env)}])

    def _has_prime(self, node: Any) -> bool:
        if getattr(node, "operator", None) == "'":
            return True
        if type(node).__name__ == "OperatorApplication" and node.operator in self.operators:
            return self.has_prime(self.operators[node.operator].body)
        return any(self.has_prime(part) for part in _parts_of(node))


def _by_identity(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `function`, worked out once for each node; the tree keeps the nodes alive."""
    known: dict[int, Any] = {}

    def remembered(node: Any) -> Any:
        if id(node) not in known:
            known[id(node)] = None  # what a recursive operator finds of itself
            known[id(node)] = function(node)
        return known[id(node)]

    return remembered


def _parts_of(node: Any) -> list[Any]:
    if not hasattr(node, "_fields"):
        return [] if isinstance(node, str) or node is None else list(node)
    return [
        part
        for name, part in zip(node._fields, node, strict=True)
        if name not in ("symbol", "start", "end") and isinstance(part, tuple | list)
    ]


def _definition(unit: Any) -> Definition:
    return Definition(*_parts(unit))


def _parts(unit: Any) -> tuple[list[str], Any]:
    return [parameter.operator for parameter in unit.arity or ()], unit.definiens


def _pairs(items: Iterable[Any]) -> list[tuple[str, Any]]:
    flat = list(items)
    if flat and isinstance(flat[0], str):
        return list(zip(flat[::2], flat[1::2], strict=True))
    return [(_name(key), value) for key, value in flat]


def _name(item: Any) -> str:
    return item if isinstance(item, str) else _name(item[0])


def _bindings(bound: list[tuple[list[str], Evaluate]], env: Env) -> Iterator[Env]:
    if not bound:
        yield env
        return
    (names, domain), rest = bound[0], bound[1:]
    for chosen in product(list(domain(env)), repeat=len(names)):
        yield from _bindings(rest, {**env, **dict(zip(names, chosen, strict=True))})


def _conjunction(parts: list[Enumerate]) -> Enumerate:
    def enumerate_from(index: int, env: Env, after: Env) -> Iterator[Env]:
        if index == len(parts):
            yield after
            return
        for further in parts[index](env, after):
            yield from enumerate_from(index + 1, env, further)

    return lambda env, after: enumerate_from(0, env, after)


def _disjunction(parts: list[Enumerate]) -> Enumerate:
    return lambda env, after: chain.from_iterable(part(env, after) for part in parts)


def _apply(function: Any, argument: Any) -> Any:
    return function[argument - 1] if isinstance(function, tuple) else function[argument]


def _sequence(value: Any) -> tuple[Any, ...]:
    if isinstance(value, tuple):
        return value
    return tuple(value[k] for k in range(1, len(value) + 1))


def _domain(value: Any) -> frozenset[Any]:
    return frozenset(range(1, len(value) + 1) if isinstance(value, tuple) else value)


def _subsets(members: frozenset[Any]) -> list[frozenset[Any]]:
    ordered = sorted(members)
    return [frozenset(c) for n in range(len(ordered) + 1) for c in combinations(ordered, n)]


LAZY: dict[str, Callable[[Evaluate, Evaluate], Evaluate]] = {
    "/\\": lambda a, b: lambda env: a(env) and b(env),
    "\\/": lambda a, b: lambda env: a(env) or b(env),
    "=>": lambda a, b: lambda env: not a(env) or b(env),
}
BUILT_IN: dict[str, Callable[..., Any]] = {
    "=": lambda a, b: a == b,
    "#": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "=<": lambda a, b: a <= b,
    "<=>": lambda a, b: a == b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "\\div": lambda a, b: a // b,
    "..": lambda a, b: frozenset(range(a, b + 1)),
    "~": lambda a: not a,
    "\\in": lambda a, b: a in b,
    "\\notin": lambda a, b: a not in b,
    "\\cup": lambda a, b: frozenset(a) | frozenset(b),
    "\\": lambda a, b: frozenset(a) - frozenset(b),
    "SUBSET": _subsets,
    "DOMAIN": _domain,
    "Len": len,
    "Append": lambda line, x: (*line, x),
    "Cardinality": len,
}
