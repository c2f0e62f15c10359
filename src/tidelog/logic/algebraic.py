"""Algebraic data types become records: one field for each branch, nil but for that of the value.

    .type Shape = Circle { r: number } | Square { a: number }

    .type $Circle = [r: number]
    .type $Square = [a: number]
    .type Shape = [$Square: $Square, $Circle: $Circle]

    $Circle(2)  ──►  [nil, [2]]

So all that stores, compares and joins records works for them. The last branch comes first: nil is
smaller than any record, and so a value of the first branch is smaller than one of the second. Only
text is different (values/nested.py): a record with `$` in the names of its fields is written as
`$Circle(2)`. The names of branches are unique in a program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelog.errors import did_you_mean
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.printer import format_term


@dataclass(frozen=True)
class _Place:
    """Where the values of a branch are in the record of their type."""

    type: str
    branch: s.Branch
    index: int
    count: int


def without_branches(module: s.Module, diagnostics: Diagnostics) -> s.Module:
    """Return the module with records for its algebraic data types and their values."""
    places: dict[str, _Place] = {}
    statements: list[s.Statement] = []
    for statement in module.statements:
        if not isinstance(statement, s.AlgebraicDeclaration):
            statements.append(statement)
            continue
        count = len(statement.branches)
        for i, branch in enumerate(statement.branches):
            if branch.name in places:
                first = places[branch.name].branch.span
                diagnostics.error(
                    "duplicate-type", f"branch `${branch.name}` is declared twice",
                    branch.span.word(branch.name), f"the first one is on line {first.line}",
                )  # fmt: skip
            else:
                places[branch.name] = _Place(statement.name, branch, count - 1 - i, count)
                name = f"${branch.name}"
                statements.append(s.RecordDeclaration(name, branch.fields, span=branch.span))
        statements.append(_record(statement))
    if not places and not (_has_dollars(module) and any(map(_has_branches, module.statements))):
        return module
    terms = _Terms(places, diagnostics)
    done = []
    for statement in statements:
        before = len(diagnostics)
        changed = s.rewritten(statement, terms.change)
        if len(diagnostics) == before:  # a rule with a wrong branch is not checked further
            done.append(changed)
    return replace(module, statements=tuple(done))


def _has_dollars(module: s.Module) -> bool:
    """Return whether the texts of a module have the sign with which branches begin."""
    sources = {id(statement.span.source): statement.span.source for statement in module.statements}
    return any("$" in source.text for source in sources.values())


def _has_branches(statement: s.Statement) -> bool:
    found: list[s.Node] = []

    def note(node: s.Node) -> s.Node:
        if isinstance(node, s.BranchTerm):
            found.append(node)
        return node

    s.rewritten(statement, note)
    return bool(found)


def _record(declared: s.AlgebraicDeclaration) -> s.RecordDeclaration:
    fields = (
        s.Attribute(f"${b.name}", s.TypeName(f"${b.name}", span=b.span), span=b.span)
        for b in reversed(declared.branches)
    )
    return s.RecordDeclaration(declared.name, tuple(fields), span=declared.span)


class _Terms:
    def __init__(self, places: dict[str, _Place], diagnostics: Diagnostics) -> None:
        self._places = places
        self._diagnostics = diagnostics

    def change(self, node: s.Node) -> s.Node:
        """Return the record of a value; other nodes as they are."""
        if not isinstance(node, s.BranchTerm):
            return node
        place = self._places.get(node.name)
        if place is None:
            self._diagnostics.error(
                "unknown-branch", f"there is no branch `${node.name}`", node.span,
                did_you_mean(node.name, self._places)
                or f"declare it in a type: `.type T = {node.name} {{ x: number }} | ..`",
            )  # fmt: skip
            return s.Anonymous(span=node.span)
        count = len(place.branch.fields)
        if len(node.args) != count:
            shown = ", ".join(f"{field.name}: {field.type}" for field in place.branch.fields)
            self._diagnostics.error(
                "wrong-arity",
                f"branch `${node.name}` has {count} field{'s' * (count != 1)},"
                f" not {len(node.args)}",
                node.span,
                f"it is declared as {node.name} {{ {shown} }}",
            )
            return s.Anonymous(span=node.span)
        parts: list[s.Term] = [s.NilLiteral(span=node.span)] * place.count
        parts[place.index] = s.RecordTerm(node.args, span=node.span)
        return s.RecordTerm(tuple(parts), place.type, format_term(node), span=node.span)
