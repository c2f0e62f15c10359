"""Rows, terms and literals of checked rules as text, with variables or with their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.lang.printer import format_string
from tidelog.logic import program as p
from tidelog.logic.functors import INFIX
from tidelog.logic.variables import terms_of, typed_variables
from tidelog.values.order import Records
from tidelog.values.text import format_value
from tidelog.values.types import Kind, Type

_SIGNS = {signature.op: sign for sign, signature in INFIX.items()}
_QUOTED = frozenset({Kind.SYMBOL, Kind.DATE, Kind.TIMESTAMP})


@dataclass(frozen=True)
class AnyValue:
    """A column that may have any value; the same in all columns with the same name."""

    name: str = ""

    def __str__(self) -> str:
        return self.name or "_"


ANY = AnyValue()


class Words:
    """Writes values and literals of one program."""

    def __init__(self, program: p.Program) -> None:
        self._program = program
        self._records: Records = program.records

    def value(self, value: Any, type_: Type) -> str:
        """Return a value as the program would write it."""
        text = format_value(value, type_, self._records)
        return format_string(text) if type_.kind in _QUOTED else text

    def values(self, rule: p.Rule, values: Mapping[str, Any]) -> dict[str, str]:
        """Return the values of a rule's variables as text."""
        terms = (*rule.head.args, *(term for part in rule.body for term in terms_of(part)))
        types = dict(typed_variables(terms))
        return {name: self.value(value, types[name]) for name, value in values.items()}

    def row(self, relation: str, row: Sequence[Any]) -> str:
        """Return `relation(values)`; columns that may have any value are `_`."""
        columns = self._program.relations[relation].columns
        return self._atom(
            relation,
            [self._pattern(value, column.type) for value, column in zip(row, columns, strict=True)],
        )

    def _pattern(self, value: Any, type_: Type) -> str:
        if isinstance(value, AnyValue):
            return str(value)
        if not has_any(value):
            return self.value(value, type_)
        fields = self._records[type_.record]
        parts = (self._pattern(v, f.type) for v, f in zip(value, fields, strict=True))
        return f"[{', '.join(parts)}]"

    def _atom(self, relation: str, texts: Sequence[str]) -> str:
        if self._program.relations[relation].functional:
            return f"{relation}[{', '.join(texts[:-1])}] = {texts[-1]}"
        return f"{relation}({', '.join(texts)})"

    def term(self, term: p.Term, known: Mapping[str, Any], *, inner: bool = False) -> str:
        """Return a term; variables that are known are replaced by their values."""
        match term:
            case p.Var(name, type_):
                if name in known:
                    return self.value(known[name], type_)
                return "_" if name.startswith("$") else name
            case p.Const(value, type_):
                return self.value(value, type_)
            case p.Wildcard():
                return "_"
            case p.MakeRecord(args):
                return f"[{', '.join(self.term(arg, known) for arg in args)}]"
            case p.Apply(op, (left, right)) if op in _SIGNS:
                texts = [self.term(side, known, inner=True) for side in (left, right)]
                text = f" {_SIGNS[op]} ".join(texts)
                return f"({text})" if inner else text
            case p.Apply(op, args):
                return f"{op}({', '.join(self.term(arg, known) for arg in args)})"

    def literal(self, literal: p.Literal, known: Mapping[str, Any]) -> str:
        """Return a literal; variables that are known are replaced by their values."""
        match literal:
            case p.Atom(relation, args, negated=negated):
                text = self._atom(relation, [self.term(arg, known) for arg in args])
                return f"!{text}" if negated else text
            case p.Compare(op, left, right):
                return f"{self.term(left, known)} {op.value} {self.term(right, known)}"
            case p.Test(name, args, negated=negated):
                text = f"{name}({', '.join(self.term(arg, known) for arg in args)})"
                return f"!{text}" if negated else text
            case p.Generate(target, args):
                texts = ", ".join(self.term(arg, known) for arg in args)
                return f"{self.term(target, known)} = range({texts})"
            case p.Reduce(result, op, target, body, group):
                inside = {name: known[name] for name in group if name in known}
                of = "" if target is None else f" {self.term(target, inside)}"
                texts = ", ".join(self.literal(part, inside) for part in body)
                return f"{self.term(result, known)} = {op}{of} : {{ {texts} }}"


def has_any(value: Any) -> bool:
    """Return whether a part of a value may be anything."""
    return isinstance(value, AnyValue) or (isinstance(value, tuple) and any(map(has_any, value)))
