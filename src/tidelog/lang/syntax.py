"""The syntax tree: a program as it was written.

Nodes are immutable and compare by content, without positions, so that
`parse(print(tree)) == tree` can be tested. Meaning (types, safety, strata) is added by `logic`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, TypeAlias, TypeVar

from tidelog.source import SourceText, Span


@dataclass(frozen=True)
class Node:
    """Base of all syntax nodes: something with a position."""

    span: Span = field(compare=False, repr=False, kw_only=True)


# --- terms ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variable(Node):
    """`x`, `?x`."""

    name: str


@dataclass(frozen=True)
class Anonymous(Node):
    """`_`."""


@dataclass(frozen=True)
class IntLiteral(Node):
    """`12`, `0x1F`, `0b101`, `12u`. `text` keeps the base the user chose."""

    value: int
    text: str = field(compare=False)
    unsigned: bool = False


@dataclass(frozen=True)
class FloatLiteral(Node):
    """`1.5`. The text is kept because a decimal column reads it exactly."""

    text: str


@dataclass(frozen=True)
class StringLiteral(Node):
    """`"text"`, with its escapes resolved."""

    value: str


@dataclass(frozen=True)
class BoolLiteral(Node):
    """`true` or `false` as a value."""

    value: bool


@dataclass(frozen=True)
class NilLiteral(Node):
    """`nil`, the empty record."""


@dataclass(frozen=True)
class RecordTerm(Node):
    """`[a, b]`. A value of an algebraic data type has a type, and is shown as it was written."""

    args: tuple[Term, ...]
    type: str = ""
    shown: str = field(default="", compare=False)


@dataclass(frozen=True)
class BranchTerm(Node):
    """`$Circle(2)`: a value of an algebraic data type, or a pattern of it."""

    name: str
    args: tuple[Term, ...]


@dataclass(frozen=True)
class Call(Node):
    """A functor: `x + 1` is Call("+", (x, 1)), `cat(a, b)` is Call("cat", (a, b))."""

    name: str
    args: tuple[Term, ...]


@dataclass(frozen=True)
class Cast(Node):
    """`as(term, type)`."""

    term: Term
    type: TypeName


@dataclass(frozen=True)
class Lookup(Node):
    """`price[i]`: the value of a functional relation."""

    relation: str
    args: tuple[Term, ...]


@dataclass(frozen=True)
class AggregateTerm(Node):
    """`sum e : { body }`; `target` is None for a plain `count`."""

    op: str
    target: Term | None
    body: Formula


Term: TypeAlias = (
    Variable
    | Anonymous
    | IntLiteral
    | FloatLiteral
    | StringLiteral
    | BoolLiteral
    | NilLiteral
    | RecordTerm
    | BranchTerm
    | Call
    | Cast
    | Lookup
    | AggregateTerm
)


# --- formulas ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class AtomFormula(Node):
    """`relation(args)`."""

    relation: str
    args: tuple[Term, ...]


@dataclass(frozen=True)
class Compared(Node):
    """`left op right`, op one of = != < <= > >=."""

    op: str
    left: Term
    right: Term


@dataclass(frozen=True)
class Tested(Node):
    """`match(pattern, text)` or `contains(part, text)`."""

    name: str
    args: tuple[Term, ...]


@dataclass(frozen=True)
class Truth(Node):
    """`true` or `false` as a condition."""

    value: bool


@dataclass(frozen=True)
class Not(Node):
    """`! formula`."""

    formula: Formula


@dataclass(frozen=True)
class Both(Node):
    """`a, b, c`: all of the parts."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Either(Node):
    """`a ; b ; c`: one of the parts."""

    parts: tuple[Formula, ...]


Formula: TypeAlias = AtomFormula | Compared | Tested | Truth | Not | Both | Either


# --- declarations -----------------------------------------------------------------------------


@dataclass(frozen=True)
class TypeName(Node):
    """A type where it is used: `number`, `City`, `decimal(10,2)`, `set(symbol)`."""

    name: str
    numbers: tuple[int, ...] = ()
    element: TypeName | None = None

    def __str__(self) -> str:
        if self.element is not None:
            return f"{self.name}({self.element})"
        if self.numbers:
            return f"{self.name}({','.join(map(str, self.numbers))})"
        return self.name


@dataclass(frozen=True)
class Attribute(Node):
    """`name: type`."""

    name: str
    type: TypeName


@dataclass(frozen=True)
class Subtype(Node):
    """`.type A <: B`; `legacy` for the older `.symbol_type A`, `.number_type A` and `.type A`."""

    name: str
    base: TypeName
    legacy: bool = False


@dataclass(frozen=True)
class AliasOrUnion(Node):
    """`.type A = B` or `.type A = B | C`."""

    name: str
    members: tuple[TypeName, ...]


@dataclass(frozen=True)
class RecordDeclaration(Node):
    """`.type A = [x: t, y: u]`."""

    name: str
    fields: tuple[Attribute, ...]


@dataclass(frozen=True)
class Branch(Node):
    """`Circle { r: number }`."""

    name: str
    fields: tuple[Attribute, ...]


@dataclass(frozen=True)
class AlgebraicDeclaration(Node):
    """`.type Shape = Circle { r: number } | Square { a: number }`."""

    name: str
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class RelationName(Node):
    """A relation's name where a declaration or directive gives it."""

    name: str


@dataclass(frozen=True)
class ChoiceKey(Node):
    """A key of `choice-domain`: one column, or several in parentheses."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class RelationDeclaration(Node):
    """`.decl a, b(x: t) qualifiers`, or the functional `.decl price[x: t]: u`."""

    names: tuple[RelationName, ...]
    attributes: tuple[Attribute, ...]
    qualifiers: tuple[str, ...] = ()
    value: TypeName | None = None
    choice: tuple[ChoiceKey, ...] = ()


@dataclass(frozen=True)
class Parameter(Node):
    """`key=value` of a directive."""

    key: str
    value: str
    quoted: bool = field(default=True, compare=False)


@dataclass(frozen=True)
class DirectiveStatement(Node):
    """`.input`, `.output`, `.printsize`, `.limitsize` or `.view`."""

    kind: str
    names: tuple[RelationName, ...]
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True)
class ColumnName(Node):
    """A column's name where a directive gives it."""

    name: str


@dataclass(frozen=True)
class RetainBound(Node):
    """How long rows are retained: a duration in quotes, or a number."""

    text: str
    quoted: bool


@dataclass(frozen=True)
class RetainStatement(Node):
    """`.retain payment(at, "1h")`: rows that are older than the newest one by more are deleted."""

    relation: RelationName
    column: ColumnName
    bound: RetainBound


@dataclass(frozen=True)
class PragmaStatement(Node):
    """`.pragma "key" "value"`: accepted, without effect."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class PlanOrder(Node):
    """One `version: (order)` of a `.plan`."""

    version: int
    order: tuple[int, ...]


@dataclass(frozen=True)
class FunctionalHead(Node):
    """`price[i] = p` as the head of a rule."""

    relation: str
    args: tuple[Term, ...]
    value: Term


Head: TypeAlias = AtomFormula | FunctionalHead


@dataclass(frozen=True)
class RuleStatement(Node):
    """`heads :- body.`, or facts when `body` is None; `plan` is a hint that follows the rule."""

    heads: tuple[Head, ...]
    body: Formula | None = None
    plan: tuple[PlanOrder, ...] = ()


@dataclass(frozen=True)
class SubsumptionStatement(Node):
    """`p(x, d) <= p(x, e) :- e < d.`: a row for which there is a better one is left out."""

    worse: AtomFormula
    better: AtomFormula
    body: Formula


@dataclass(frozen=True)
class ComponentType(Node):
    """A component where it is used: `Graph<number>`, with types or components as arguments."""

    name: str
    args: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}<{', '.join(self.args)}>" if self.args else self.name


@dataclass(frozen=True)
class ComponentDeclaration(Node):
    """`.comp Graph<T> : Base<T> { statements }`."""

    name: str
    parameters: tuple[str, ...]
    bases: tuple[ComponentType, ...]
    body: tuple[Statement, ...] = ()


@dataclass(frozen=True)
class InitStatement(Node):
    """`.init roads = Graph<number>`."""

    name: str
    component: ComponentType


@dataclass(frozen=True)
class OverrideStatement(Node):
    """`.override edge`: the component takes no rules of `edge` from its bases."""

    relation: RelationName


Statement: TypeAlias = (
    Subtype
    | AliasOrUnion
    | RecordDeclaration
    | AlgebraicDeclaration
    | RelationDeclaration
    | DirectiveStatement
    | RetainStatement
    | PragmaStatement
    | ComponentDeclaration
    | InitStatement
    | OverrideStatement
    | RuleStatement
    | SubsumptionStatement
)


@dataclass(frozen=True)
class Comment:
    """A comment and where it stands; the printer puts it back near its statement."""

    text: str
    line: int
    end_line: int
    own_line: bool


@dataclass(frozen=True)
class Module:
    """A parsed program text."""

    source: SourceText = field(compare=False, repr=False)
    statements: tuple[Statement, ...]
    comments: tuple[Comment, ...] = field(default=(), compare=False, repr=False)
    unread: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Names whose declarations could not be read: rules that use them are not reported as well."""
    hides_names: bool = field(default=False, compare=False, repr=False)
    """Whether some names may be declared in an included file or in a broken component."""


def variables(term: Term) -> Iterator[str]:
    """Yield the names of the variables in a term, in order, without those in an aggregate."""
    return (node.name for node in variable_nodes(term))


def variable_nodes(term: Term) -> Iterator[Variable]:
    """Yield the variables in a term, in order, without those in an aggregate."""
    match term:
        case Variable():
            yield term
        case RecordTerm(args) | BranchTerm(_, args) | Call(_, args) | Lookup(_, args):
            for arg in args:
                yield from variable_nodes(arg)
        case Cast(inner):
            yield from variable_nodes(inner)


N = TypeVar("N", bound=Node)


@cache
def _names_of_fields(of: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(of))


def rewritten(node: N, change: Callable[[Any], Any]) -> N:
    """Return a node with `change` applied to its parts, innermost first, and then to itself.

    It is the same node if nothing in it changes.
    """

    def inside(value: Any) -> Any:
        if isinstance(value, tuple):
            items = tuple(map(inside, value))
            return value if all(map(operator.is_, items, value)) else items
        if not isinstance(value, Node):
            return value
        parts = {}
        kind: Any = type(value)
        for name in _names_of_fields(kind):
            old = getattr(value, name)
            if isinstance(old, tuple | Node):
                new = inside(old)
                if new is not old:
                    parts[name] = new
        return change(replace(value, **parts) if parts else value)

    result: N = inside(node)
    return result
