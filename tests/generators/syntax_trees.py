"""Hypothesis strategies for syntax trees: every node of `lang/syntax.py`, in every place.

The trees are those that a parser can give: conjunctions inside conjunctions are flat, a minus
before a plain number is part of the number, and a literal's text says its value.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tidelog.lang import syntax as s
from tidelog.source import SourceText, Span

SPAN = Span(SourceText("<generated>", ""), 1, 1, 1, 1)

# Operators and literals of the language. Names of functors, aggregates and qualifiers are no
# reserved words; they are tried one by one in test_round_trip.py.
OPERATORS = ("lor", "lxor", "land", "bor", "bxor", "band", "bshl", "bshr", "bshru")
INFIX = (*OPERATORS, "+", "-", "*", "/", "%", "^")
PREFIX = ("-", "bnot", "lnot")
RESERVED = frozenset({*OPERATORS, *PREFIX, "true", "false", "nil", "as", "autoinc", "_"})
AGGREGATES = ("count", "sum", "min", "max", "mean", "total", "setof", "concat")
QUALIFIERS = (
    "inline", "no_inline", "magic", "no_magic", "brie", "btree", "btree_delete",
    "overridable", "input", "output", "printsize",
)  # fmt: skip
CONTEXTUAL = frozenset({*AGGREGATES, *QUALIFIERS, "eqrel", "match", "contains"})
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


def node(kind: type[Any], *args: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for nodes of one kind."""
    return st.builds(lambda *values: kind(*values, span=SPAN), *args)


def tuples_of(items: st.SearchStrategy[Any], least: int = 0, most: int = 2) -> Any:
    return st.lists(items, min_size=least, max_size=most).map(tuple)


NAMES = st.one_of(
    st.sampled_from(
        ["x", "y", "z1", "?x", "x?y", "_x", "__", "A", "range", "cat", "edge", "e5", "u"]
    ),
    st.from_regex(r"[?A-Za-z_][?A-Za-z0-9_]{0,6}", fullmatch=True),
).filter(lambda name: name not in RESERVED and name not in CONTEXTUAL)


# --- terms ----------------------------------------------------------------------------------------


def _integer(value: int, base: str, unsigned: bool) -> s.IntLiteral:
    text = format(value, {"": "d", "0x": "x", "0X": "X", "0b": "b"}[base])
    text = base.lower() + text + ("u" if unsigned else "")
    return s.IntLiteral(value, text, unsigned, span=SPAN)


def _negative(literal: s.IntLiteral | s.FloatLiteral) -> s.IntLiteral | s.FloatLiteral:
    if isinstance(literal, s.FloatLiteral):
        return s.FloatLiteral(f"-{literal.text}", span=SPAN)
    return s.IntLiteral(-literal.value, f"-{literal.text}", False, span=SPAN)


_bases = st.sampled_from(["", "", "0x", "0X", "0b"])
_naturals = st.one_of(st.integers(0, 20), st.integers(0, 2**64), st.just(2**63))
SIGNED_LITERALS = st.builds(_integer, _naturals, _bases, st.just(False))
INTEGERS = st.one_of(
    SIGNED_LITERALS,
    st.builds(_integer, _naturals, _bases, st.just(True)),
    SIGNED_LITERALS.map(_negative),
)
_plain_floats = node(
    s.FloatLiteral,
    st.one_of(
        st.from_regex(r"[0-9]{1,4}\.[0-9]{1,4}([eE][+-]?[0-9]{1,2})?", fullmatch=True),
        st.from_regex(r"[0-9]{1,4}[eE][+-]?[0-9]{1,2}", fullmatch=True),
    ),
)
FLOATS = st.one_of(_plain_floats, _plain_floats.map(_negative))
STRINGS = node(
    s.StringLiteral,
    st.text(
        st.one_of(
            st.sampled_from("\"\\'\a\b\f\n\r\t\v\0 #/*{}_abn\u2028\u0085\ufeff\U0001f30a"),
            st.characters(codec="utf-8"),
        ),
        max_size=12,
    ),
)
TYPE_NAMES = st.recursive(
    st.one_of(
        node(s.TypeName, NAMES),
        st.builds(
            lambda p, q: s.TypeName("decimal", (p, q), span=SPAN),
            st.integers(1, 18),
            st.integers(0, 18),
        ),
    ),
    lambda inner: inner.map(lambda element: s.TypeName("set", (), element, span=SPAN)),
    max_leaves=2,
)
CAST_TYPES = st.one_of(
    node(s.TypeName, NAMES),
    st.builds(
        lambda p, q: s.TypeName("decimal", (p, q), span=SPAN), st.integers(1, 18), st.integers(0, 9)
    ),
)
LEAVES = st.one_of(
    node(s.Variable, NAMES),
    node(s.Variable, NAMES),
    st.just(s.Anonymous(span=SPAN)),
    INTEGERS,
    FLOATS,
    STRINGS,
    node(s.BoolLiteral, st.booleans()),
    st.just(s.NilLiteral(span=SPAN)),
)


def _reads_as_literal(name: str, operand: s.Term) -> bool:
    """Return whether a prefix minus would become part of the number after it."""
    match operand:
        case s.IntLiteral(text=text, unsigned=False) if not text.startswith("-"):
            return name == "-"
        case s.FloatLiteral(text) if not text.startswith("-"):
            return name == "-"
    return False


def _prefixed(name: str, operand: s.Term) -> s.Term:
    if _reads_as_literal(name, operand):
        return _negative(operand)
    return s.Call(name, (operand,), span=SPAN)


# Depths and not `st.recursive`, which is ten times slower here: terms and formulas hold each other.


@cache
def terms(depth: int) -> st.SearchStrategy[s.Term]:
    """Return a strategy for terms up to a depth."""
    if depth == 0:
        return LEAVES
    inner = terms(depth - 1)
    pairs = st.tuples(inner, inner)
    infix = node(s.Call, st.sampled_from(INFIX), pairs)
    return st.one_of(
        LEAVES,
        infix,
        infix,
        st.builds(_prefixed, st.sampled_from(PREFIX), inner),
        node(s.RecordTerm, tuples_of(inner)),
        node(s.BranchTerm, NAMES, tuples_of(inner)),
        node(s.Call, NAMES, tuples_of(inner)),
        node(s.Call, st.sampled_from(["min", "max", "count", "sum"]), tuples_of(inner, 2, 3)),
        node(s.Cast, inner, CAST_TYPES),
        node(s.Lookup, NAMES, tuples_of(inner)),
        node(s.AggregateTerm, st.just("count"), st.none(), formulas(depth - 1)),
        node(s.AggregateTerm, st.sampled_from(AGGREGATES), inner, formulas(depth - 1)),
    )


@cache
def formulas(depth: int) -> st.SearchStrategy[s.Formula]:
    """Return a strategy for formulas up to a depth."""
    inner_terms = terms(max(0, depth - 1))
    atoms = node(s.AtomFormula, NAMES, tuples_of(inner_terms))
    compared = node(s.Compared, st.sampled_from(COMPARISONS), inner_terms, inner_terms)
    simple = [
        atoms,
        compared,
        node(s.Tested, st.sampled_from(["match", "contains"]), tuples_of(inner_terms, 2, 2)),
        node(s.Truth, st.booleans()),
    ]
    if depth == 0:
        return st.one_of(simple)
    inner = formulas(depth - 1)
    several = tuples_of(inner, 2, 3)
    return st.one_of(
        *simple,
        node(s.Not, inner),
        several.map(lambda parts: _flat(s.Both, parts)),
        several.map(lambda parts: _flat(s.Either, parts)),
    )


def _flat(kind: type[s.Both] | type[s.Either], parts: tuple[s.Formula, ...]) -> s.Formula:
    flat: list[s.Formula] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, kind) else (part,))
    return kind(tuple(flat), span=SPAN)


TERMS = terms(3)
FORMULAS = formulas(3)


# --- statements -----------------------------------------------------------------------------------

RELATION_NAMES = node(s.RelationName, NAMES)
ATTRIBUTES = node(s.Attribute, NAMES, TYPE_NAMES)
PARAMETERS = st.one_of(
    node(s.Parameter, NAMES, STRINGS.map(lambda text: text.value)),
    node(s.Parameter, NAMES, st.sampled_from(["file", "true", "12", "1.5"]), st.just(False)),
)
HEADS = st.one_of(
    node(s.AtomFormula, NAMES, tuples_of(terms(1))),
    node(s.FunctionalHead, NAMES, tuples_of(terms(1)), terms(1)),
)
_PLANS = node(s.PlanOrder, st.integers(0, 3), tuples_of(st.integers(0, 5)))
RULES = node(
    s.RuleStatement,
    tuples_of(HEADS, 1, 2),
    st.one_of(st.none(), formulas(2), formulas(2)),
    st.one_of(st.just(()), st.just(()), tuples_of(_PLANS, 1, 2)),
)
_QUALIFIERS = tuples_of(st.sampled_from(QUALIFIERS), 0, 2)
BOUNDS = st.one_of(
    node(s.RetainBound, STRINGS.map(lambda text: text.value), st.just(True)),
    node(s.RetainBound, st.integers(0, 10**18).map(str), st.just(False)),
)
STATEMENTS = st.one_of(
    RULES,
    RULES,
    RULES,
    node(s.Subtype, NAMES, TYPE_NAMES),
    node(
        s.Subtype,
        NAMES,
        st.sampled_from(["symbol", "number"]).map(lambda name: s.TypeName(name, span=SPAN)),
        st.just(True),
    ),
    node(s.AliasOrUnion, NAMES, tuples_of(TYPE_NAMES, 1)),
    node(s.RecordDeclaration, NAMES, tuples_of(ATTRIBUTES)),
    node(
        s.AlgebraicDeclaration,
        NAMES,
        tuples_of(node(s.Branch, NAMES, tuples_of(ATTRIBUTES)), 1, 3),
    ),
    node(
        s.RelationDeclaration, tuples_of(RELATION_NAMES, 1, 2), tuples_of(ATTRIBUTES), _QUALIFIERS
    ),
    node(
        s.RelationDeclaration,
        tuples_of(RELATION_NAMES, 1, 1),
        tuples_of(ATTRIBUTES),
        _QUALIFIERS,
        TYPE_NAMES,
    ),
    node(
        s.RelationDeclaration,
        tuples_of(RELATION_NAMES, 1, 2),
        tuples_of(ATTRIBUTES),
        _QUALIFIERS,
        st.none(),
        tuples_of(node(s.ChoiceKey, tuples_of(NAMES, 1, 3)), 1, 3),
    ),
    NAMES.flatmap(
        lambda name: node(
            s.SubsumptionStatement,
            node(s.AtomFormula, st.just(name), tuples_of(terms(1))),
            node(s.AtomFormula, st.just(name), tuples_of(terms(1))),
            formulas(1),
        )
    ),
    node(
        s.DirectiveStatement,
        st.sampled_from(["input", "output", "printsize", "view"]),
        tuples_of(RELATION_NAMES, 1, 2),
        tuples_of(PARAMETERS),
    ),
    node(s.RetainStatement, RELATION_NAMES, node(s.ColumnName, NAMES), BOUNDS),
    node(s.PragmaStatement, tuples_of(STRINGS.map(lambda text: text.value), 1, 2)),
)
COMPONENT_TYPES = node(s.ComponentType, NAMES, tuples_of(NAMES, 0, 2))
INSIDE = st.one_of(
    STATEMENTS,
    node(s.OverrideStatement, RELATION_NAMES),
    node(s.InitStatement, NAMES, COMPONENT_TYPES),
)
COMPONENTS = node(
    s.ComponentDeclaration,
    NAMES,
    tuples_of(NAMES, 0, 2),
    tuples_of(COMPONENT_TYPES, 0, 2),
    tuples_of(INSIDE, 0, 3),
)
MODULES = st.builds(
    lambda statements: s.Module(SPAN.source, statements),
    tuples_of(st.one_of(STATEMENTS, STATEMENTS, COMPONENTS), 0, 4),
)
