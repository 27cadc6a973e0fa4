"""The mutants of a source file: each is one small change that some test should notice.

The operators are mutmut's, and four of ours for what it leaves alone: see
`OWN_OPERATORS`. What no test should pin is not changed: docstrings, texts (any
string with a space), messages of errors, annotations, decorators, protocols and what is
for type checkers only.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, ParentNodeProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

Operator = Callable[[Any], Iterable[cst.CSTNode]]

IMPORT_TIME: Final = ""
"""The function of a mutant that is in none: it is carried out when the module is imported."""


@dataclass(frozen=True)
class Mutant:
    """A source file with one change; `was` and `now` are the lines that differ, stripped."""

    file: str
    function: str
    """The qualified name of the outermost function or method that is changed."""
    was: str
    now: str
    source: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells the mutants of a file apart, and stays when other lines change."""
        return self.function, self.was, self.now


# --- operators -----------------------------------------------------------------


def clause_dropped(node: cst.BooleanOperation) -> Iterator[cst.CSTNode]:
    """`a and b` is `a`, is `b`; so for `or`."""
    for operand in (node.left, node.right):
        yield _in_parentheses(operand)


def filter_dropped(node: cst.CompFor) -> Iterator[cst.CSTNode]:
    """`for x in xs if c` is `for x in xs`."""
    for index in range(len(node.ifs)):
        yield node.with_changes(ifs=(*node.ifs[:index], *node.ifs[index + 1 :]))


def condition_negated(node: cst.If | cst.While) -> Iterator[cst.CSTNode]:
    """`if c` is `if not c`, where mutmut does not turn `c` into its contrary."""
    contrary = m.Comparison(comparisons=[m.ComparisonTarget(CONTRARY)])
    if m.matches(node.test, contrary | m.UnaryOperation(m.Not())):
        return
    yield node.with_changes(
        test=cst.UnaryOperation(cst.Not(), _in_parentheses(node.test)), **_SPACE[type(node)]
    )


def call_dropped(node: cst.Expr) -> Iterator[cst.CSTNode]:
    """A statement that only calls something is left out."""
    if isinstance(node.value, cst.Call):
        yield cst.Pass()


def _in_parentheses(node: cst.BaseExpression) -> cst.BaseExpression:
    if node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


CONTRARY: Final = m.Equal() | m.NotEqual() | m.In() | m.NotIn() | m.Is() | m.IsNot()
_SPACE: Final = {
    cst.If: {"whitespace_before_test": cst.SimpleWhitespace(" ")},
    cst.While: {"whitespace_after_while": cst.SimpleWhitespace(" ")},
}
OWN_OPERATORS: Final[tuple[tuple[Any, Operator], ...]] = (
    (cst.BooleanOperation, clause_dropped),
    (cst.CompFor, filter_dropped),
    ((cst.If, cst.While), condition_negated),
    (cst.Expr, call_dropped),
)
OPERATORS: Final[tuple[tuple[Any, Operator], ...]] = (*mutation_operators, *OWN_OPERATORS)

INSIDE_FUNCTIONS_ONLY: Final = frozenset(
    {"operator_assignment", "operator_arg_removal", "operator_lambda", "call_dropped"}
)
"""In a table of data these break the import, which says nothing of the tests."""

# --- where ---------------------------------------------------------------------

UNSEEN_CALLS: Final = frozenset({"len", "isinstance", "cast", "super"})
"""Nothing in these calls is changed: most such changes only crash."""
UNSEEN_FUNCTIONS: Final = frozenset({"__repr__", "__str__"})


class _Sites(cst.CSTVisitor):
    """Every node that may be changed, with the function that it is in."""

    def __init__(self) -> None:
        self.sites: list[tuple[cst.CSTNode, str]] = []
        self._classes: list[str] = []
        self._functions: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _is_unseen(node):
            return False
        self.sites.append((node, self._where()))
        if isinstance(node, cst.ClassDef):
            self._classes.append(node.name.value)
            node.body.visit(self)
            self._classes.pop()
            return False
        if isinstance(node, cst.FunctionDef):
            node.params.visit(self)  # defaults belong to whoever defines the function
            self._functions.append(node.name.value)
            node.body.visit(self)
            self._functions.pop()
            return False
        return True

    def _where(self) -> str:
        if not self._functions:
            return IMPORT_TIME
        return ".".join((*self._classes, self._functions[0]))


def _is_unseen(node: cst.CSTNode) -> bool:
    match node:
        case cst.Annotation() | cst.Decorator() | cst.Import() | cst.ImportFrom() | cst.Raise():
            return True
        case cst.FunctionDef(name=cst.Name(value=name)):
            return name in UNSEEN_FUNCTIONS
        case cst.ClassDef(bases=bases):
            return any(_name(base.value) == "Protocol" for base in bases)
        case cst.If(test=test):
            return _name(test) == "TYPE_CHECKING"
        case cst.Call(func=func):
            return _name(func) in UNSEEN_CALLS
        case cst.Subscript(value=value):
            return _name(value) == "Literal"
        case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
            return True
        case cst.ConcatenatedString():
            return True
        case cst.SimpleString(value=value):
            return " " in value or "\n" in value
    return False


def _name(node: cst.CSTNode) -> str | None:
    return node.value if isinstance(node, cst.Name) else None


# --- mutants -------------------------------------------------------------------


def mutants_of(root: Path, file: str) -> list[Mutant]:
    """Return the mutants of a file, from top to bottom, no two with the same source."""
    source = (root / file).read_text()
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    parents = wrapper.resolve(ParentNodeProvider)
    visitor = _Sites()
    wrapper.module.visit(visitor)
    seen = {source}
    mutants: list[Mutant] = []
    for node, function in visitor.sites:
        for changed in _changed(node, function):
            mutated = _replaced(parents, node, changed)
            if mutated not in seen:
                seen.add(mutated)
                was, now = _difference(source, mutated)
                mutants.append(Mutant(file, function, was, now, mutated))
    return _told_apart(mutants)


def _changed(node: cst.CSTNode, function: str) -> Iterator[cst.CSTNode]:
    for kind, operator in OPERATORS:
        if not isinstance(node, kind):
            continue
        if function == IMPORT_TIME and operator.__name__ in INSIDE_FUNCTIONS_ONLY:
            continue
        changes = list(operator(node))
        # Of a string one change is enough; the others are in upper and lower case.
        yield from changes[:1] if operator is operator_string else changes


def _replaced(
    parents: Mapping[cst.CSTNode, cst.CSTNode], node: cst.CSTNode, changed: cst.CSTNode
) -> str:
    """Return the source of the module with `changed` in the place of `node`."""
    while node in parents:
        parent = parents[node]
        changed, node = parent.with_changes(**_with(parent, node, changed)), parent
    assert isinstance(changed, cst.Module)
    return changed.code


def _with(parent: cst.CSTNode, node: cst.CSTNode, changed: cst.CSTNode) -> dict[str, object]:
    for field in fields(parent):
        value = getattr(parent, field.name)
        if value is node:
            return {field.name: changed}
        if isinstance(value, tuple | list) and any(child is node for child in value):
            return {field.name: [changed if child is node else child for child in value]}
    raise AssertionError(f"{node} is not in {parent}")


def _difference(source: str, mutated: str) -> tuple[str, str]:
    """Return the lines that differ, each side as one line."""
    was, now = source.splitlines(), mutated.splitlines()
    for end in (0, -1):
        while was and now and was[end] == now[end]:
            del was[end], now[end]
    return tuple(" ".join(line.strip() for line in lines) for lines in (was, now))


def _told_apart(mutants: list[Mutant]) -> list[Mutant]:
    """Number those that change equal lines of one function equally."""
    counts: dict[tuple[str, str, str], int] = {}
    apart: list[Mutant] = []
    for mutant in mutants:
        counts[mutant.key] = nth = counts.get(mutant.key, 0) + 1
        apart.append(mutant if nth == 1 else replace(mutant, now=f"{mutant.now}  # {nth}"))
    return apart
