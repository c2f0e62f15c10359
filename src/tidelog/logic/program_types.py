"""The types that a program declares.

They answer two questions. What does a declared type *store* (its representation, a `Type`)? And
which declared types may flow into which? For the second, each type has an *extent*: the set of
declared names whose values it can have. A subtype adds its name to the extents of all its
supertypes. A union has the extents of its members. Then

    A may be used where B is expected   <=>   extent(A) is a subset of extent(B)
    A and B can have a common value     <=>   extent(A) and extent(B) intersect

    .type City <: symbol   .type Town <: symbol   .type Place = City | Town

gives extent(City) = {City}, extent(Place) = {City, Town}, extent(symbol) = {symbol, City, Town}.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tidelog.errors import did_you_mean
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.values.types import (
    MAX_DECIMAL_PRECISION,
    PRIMITIVES,
    Field,
    Type,
    decimal_type,
    record_type,
    set_type,
)


@dataclass(frozen=True)
class DeclaredType:
    """A type where it is used: how it is written, what it stores, and its extent."""

    name: str
    type: Type
    extent: frozenset[str]


_Declaration = s.Subtype | s.AliasOrUnion | s.RecordDeclaration

# What other languages call our types.
_ELSEWHERE = {
    **dict.fromkeys(("string", "str", "text", "char", "varchar"), "symbol"),
    **dict.fromkeys(("int", "integer", "bigint", "long", "int64", "i64", "smallint"), "number"),
    **dict.fromkeys(("uint", "uint64", "u64", "nat"), "unsigned"),
    **dict.fromkeys(("double", "real", "float64", "f64"), "float"),
    **dict.fromkeys(("boolean",), "bool"),
    **dict.fromkeys(("datetime", "instant"), "timestamp"),
    **dict.fromkeys(("numeric", "money"), "decimal(10,2)"),
}

# Soufflé does not have these types, so its programs may declare types of these names.
_OURS = frozenset({"bool", "date", "timestamp", "decimal", "set"})


def _is_legacy(statement: s.Statement) -> bool:
    """Return whether a statement makes Soufflé's legacy mode necessary."""
    match statement:
        case s.Subtype(legacy=legacy):
            return legacy
        case s.PragmaStatement(("legacy", *_)):
            return True
        case _:
            return False


class ProgramTypes:
    """All types of a program."""

    def __init__(self, module: s.Module, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._unread = module.unread
        self._hides_names = module.hides_names
        self._declarations: dict[str, _Declaration] = {}
        self.legacy = any(map(_is_legacy, module.statements))
        """Whether values may flow between declared types that store the same."""
        self._types: dict[str, Type | None] = dict(PRIMITIVES)
        for statement in module.statements:
            if isinstance(statement, s.Subtype | s.AliasOrUnion | s.RecordDeclaration):
                self._declare(statement)
        for name in self._declarations:
            self._representation(name, ())
        self._extents = self._compute_extents()
        self.records: dict[str, tuple[Field, ...]] = {}
        for declaration in self._declarations.values():
            if isinstance(declaration, s.RecordDeclaration):
                self.records[declaration.name] = self._fields(declaration)
        self._drop_broken_records()

    def _declare(self, declaration: _Declaration) -> None:
        name = declaration.name
        if name in PRIMITIVES and name not in _OURS:
            self._diagnostics.error(
                "duplicate-type", f"`{name}` is a built-in type", declaration.span.word(name),
                "choose another name",
            )  # fmt: skip
        elif name in self._declarations:
            first = self._declarations[name].span
            self._diagnostics.error(
                "duplicate-type", f"type `{name}` is declared twice", declaration.span.word(name),
                f"the first declaration is on line {first.line}",
            )  # fmt: skip
        else:
            self._declarations[name] = declaration
            self._types.pop(name, None)

    def _representation(self, name: str, path: tuple[str, ...]) -> Type | None:
        """Return what type `name` stores; None when its declaration is wrong (and reported)."""
        if name in self._types:
            return self._types[name]
        declaration = self._declarations.get(name)
        if declaration is None:
            return None
        if name in path:
            steps = (*path[path.index(name) :], name)
            cycle = ", ".join(f"`{a}` needs `{b}`" for a, b in pairwise(steps))
            self._diagnostics.error(
                "cyclic-type", f"type `{name}` is defined by itself: {cycle}",
                declaration.span.word(name),
                "only the fields of a record may have the type of the record itself",
            )  # fmt: skip
            return None
        result: Type | None
        if isinstance(declaration, s.RecordDeclaration):
            result = record_type(name)
        else:
            bases = (
                (declaration.base,) if isinstance(declaration, s.Subtype) else declaration.members
            )
            found = [self._resolve(base, (*path, name)) for base in bases]
            result = found[0]
            for base, other in zip(bases, found, strict=True):
                if result is not None and other is not None and other != result:
                    self._diagnostics.error(
                        "mixed-union",
                        f"the union `{name}` mixes {_shown(bases[0], result)}"
                        f" with {_shown(base, other)}",
                        base.span,
                        "all members of a union must be stored the same way",
                    )
                if other is None:
                    result = None
        self._types[name] = result
        return result

    def _resolve(self, name: s.TypeName, path: tuple[str, ...] = ()) -> Type | None:
        """Return the representation of a type where it is used; report what is wrong with it."""
        if name.name in self._declarations:
            pass
        elif name.name == "decimal":
            if len(name.numbers) != 2:
                self._diagnostics.error(
                    "bad-type", "`decimal` needs its digits: decimal(precision, scale)", name.span,
                    "for example decimal(10,2)",
                )  # fmt: skip
                return None
            precision, scale = name.numbers
            if not 1 <= precision <= MAX_DECIMAL_PRECISION or not 0 <= scale <= precision:
                self._diagnostics.error(
                    "bad-type",
                    f"`{name}` is out of range: 1 <= precision <= {MAX_DECIMAL_PRECISION}"
                    " and 0 <= scale <= precision",
                    name.span,
                    f"decimals have up to {MAX_DECIMAL_PRECISION} digits:"
                    f" decimal({MAX_DECIMAL_PRECISION},2) has 2 of them after the point",
                )
                return None
            return decimal_type(precision, scale)
        elif name.name == "set":
            if name.element is None:
                self._diagnostics.error(
                    "bad-type", "`set` needs its element type", name.span, "for example set(number)"
                )
                return None
            element = self._resolve(name.element, path)
            return None if element is None else set_type(element)
        if name.name not in self._types and name.name not in self._declarations:
            self._report_unknown(name)
            return None
        if name.numbers or name.element is not None:
            self._diagnostics.error(
                "bad-type", f"type `{name.name}` takes no parameters", name.span,
                f"write `{name.name}`",
            )  # fmt: skip
            return None
        return self._representation(name.name, path)

    def _report_unknown(self, name: s.TypeName) -> None:
        if name.name in self._unread or self._hides_names:
            return  # follows from a mistake that was reported
        self._unread |= {name.name}  # once is enough
        known = [*PRIMITIVES, "decimal", "set", *self._declarations]
        hint = did_you_mean(name.name, known)
        if name.name.lower() in _ELSEWHERE:
            hint = f"it is called `{_ELSEWHERE[name.name.lower()]}` here"
        self._diagnostics.error(
            "unknown-type", f"type `{name.name}` is not declared", name.span.first(len(name.name)),
            hint or f"declare it, for example `.type {name.name} <: symbol`",
        )  # fmt: skip

    def _compute_extents(self) -> dict[str, frozenset[str]]:
        extents: dict[str, set[str]] = {name: {name} for name in PRIMITIVES}
        for name, declaration in self._declarations.items():
            is_new = isinstance(declaration, s.Subtype | s.RecordDeclaration)
            extents[name] = {name} if is_new else set()
        changed = True
        while changed:  # a few rounds: as many as subtypes are nested
            changed = False
            for name, declaration in self._declarations.items():
                if isinstance(declaration, s.Subtype):
                    flows = [(name, declaration.base.name)]
                elif isinstance(declaration, s.AliasOrUnion):
                    flows = [(member.name, name) for member in declaration.members]
                    if len(declaration.members) == 1:  # an alias holds what its base holds
                        flows.append((name, declaration.members[0].name))
                else:
                    flows = []
                for lower, upper in flows:
                    if (
                        upper in extents
                        and lower in extents
                        and not extents[lower] <= extents[upper]
                    ):
                        extents[upper] |= extents[lower]
                        changed = True
        # A union's values have its representation: they may flow into the primitive type as well.
        for name, type_ in self._types.items():
            if type_ is not None and type_.kind.value in PRIMITIVES:
                extents[type_.kind.value] |= extents[name]
        return {name: frozenset(extent) for name, extent in extents.items()}

    def use(self, name: s.TypeName) -> DeclaredType | None:
        """Return the type named where a column or field is declared; report it if it is wrong."""
        type_ = self._resolve(name)
        if type_ is None:
            return None
        extent = self._extents.get(name.name, frozenset({str(type_)}))
        return DeclaredType(str(name), type_, extent)

    def _fields(self, record: s.RecordDeclaration) -> tuple[Field, ...]:
        names: set[str] = set()
        for part in record.fields:
            if part.name in names:
                self._diagnostics.error(
                    "duplicate-column", f"two fields are called `{part.name}`",
                    part.span.first(len(part.name)), "give one of them another name",
                )  # fmt: skip
            names.add(part.name)
        return tuple(
            Field(a.name, used.type, used.name)
            for a in record.fields
            if (used := self.use(a.type)) is not None
        )

    def _drop_broken_records(self) -> None:
        """Drop records with a wrong field, and all that uses them: the mistake was reported."""
        size = -1
        broken: set[str] = set()
        while len(broken) != size:
            size = len(broken)
            for name, fields in self.records.items():
                declaration = self._declarations[name]
                assert isinstance(declaration, s.RecordDeclaration)
                inside = {part.type.record for part in fields}
                if len(fields) != len(declaration.fields) or inside & broken:
                    broken.add(name)
        for name, type_ in self._types.items():
            if type_ is not None and type_.record in broken:
                self._types[name] = None

    def extent_of_declared(self, declared: str) -> frozenset[str]:
        """Return the extent of a type by the text it was declared with."""
        return self._extents.get(declared, frozenset({declared}))


def _shown(name: s.TypeName, type_: Type) -> str:
    """Return a type as it was written, and what it stores if the name does not say so."""
    return f"`{name}`" if str(name) == str(type_) else f"`{name}` (a {type_})"
