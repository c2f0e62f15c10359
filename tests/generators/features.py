"""What a random case has in it: a generator that stops making something is noticed by counting."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tests.generators.programs import RandomCase, Row
from tidelog.logic import program as p
from tidelog.plan.lower import lower
from tidelog.values.types import Kind, Type

_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "mod", "pow", "neg"})


def features(case: RandomCase, program: p.Program) -> frozenset[str]:
    """Return the names of the features of a case; `program` is its program, parsed."""
    found = {f"column of {name}" for name in _column_types(program)}
    recursive = {name for s in program.strata if s.recursive for name in s.relations}
    found |= {"mutual recursion" for s in program.strata if s.recursive and len(s.relations) > 1}
    for stratum in program.strata:
        for rule in stratum.rules:
            found.update(_of_rule(rule, stratum, recursive))
    given = {name for name, rows in case.facts.items() if rows}
    given |= {name for epoch in case.epochs for name, (adds, _) in epoch.items() if adds}
    if given & program.derived:
        found.add("given and derived")
    if given & program.derived & recursive:
        found.add("given and derived recursively")
    for relation in program.relations.values():
        if relation.functional:
            found.add("functional relation")
        if relation.arity == 0:
            found.add("nullary relation")
        if relation.arity >= 8:
            found.add("wide rows")
    for fact in program.facts:
        found.add("facts of the program")
        if fact.relation in recursive:
            found.add("fact of a recursive relation")
        for adds, removes in (epoch.get(fact.relation, ((), ())) for epoch in case.epochs):
            if fact.row in adds and fact.row not in removes:
                found.add("fact that an epoch inserts")
            if fact.row in removes and fact.row not in adds:
                found.add("fact that an epoch deletes")
    if any(layer.recompute is not None for layer in lower(program).layers):
        found.add("aggregate grouped by what its recursion binds")
    found.update(_of_values(_values(case)))
    found.update(_of_epochs(case))
    return frozenset(found)


def count_features(found: Iterable[frozenset[str]]) -> Counter[str]:
    """Return how many cases have each feature."""
    return Counter(name for names in found for name in names)


# --- rules --------------------------------------------------------------------------------------


def _of_rule(rule: p.Rule, stratum: p.Stratum, recursive: set[str]) -> Iterator[str]:
    positive = [x for x in rule.body if isinstance(x, p.Atom) and not x.negated]
    own = [atom for atom in positive if atom.relation in stratum.relations]
    if stratum.recursive and own:
        yield f"{min(len(own), 3)} recursive atoms"
        if len({atom.relation for atom in own}) < len(own):
            yield "one recursive relation twice"
    if len({atom.relation for atom in positive}) < len(positive):
        yield "self-join"
    if _falls_apart(positive):
        yield "Cartesian product"
    if any(isinstance(arg, p.Const) for arg in rule.head.args):
        yield "constant in a head"
    for atom in positive:
        if any(isinstance(arg, p.Const) for arg in atom.args):
            yield "constant in a body"
        names = [arg.name for arg in atom.args if isinstance(arg, p.Var)]
        if len(set(names)) < len(names):
            yield "repeated variable"
    for literal in _all_literals(rule.body):
        match literal:
            case p.Atom(relation, negated=True):
                yield "negation"
                if relation in recursive:
                    yield "negation of a recursive relation"
                if stratum.recursive:
                    yield "negation within a recursion"
            case p.Compare():
                yield "comparison"
            case p.Test():
                yield "test of text"
            case p.Generate(target):
                yield "range" if target.type.kind is Kind.NUMBER else "range of another type"
            case p.Reduce(op=op):
                yield "aggregate"
                yield f"aggregate {op}"
                if stratum.recursive:
                    yield "aggregate within a recursion"
        for term in _terms(literal):
            match term:
                case p.Apply(op):
                    yield "arithmetic" if op in _ARITHMETIC else "other functor"
                case p.MakeRecord():
                    yield "record made or taken apart"


def _falls_apart(atoms: list[p.Atom]) -> bool:
    """Return whether some atoms share no variable, not even by way of others."""
    groups: list[set[str]] = []
    for atom in atoms:
        names = {name for term in atom.args for name in _names(term)}
        if not names:
            continue
        apart = [group for group in groups if not group & names]
        groups = [*apart, names.union(*(group for group in groups if group & names))]
    return len(groups) > 1


def _names(term: p.Term) -> Iterator[str]:
    match term:
        case p.Var(name):
            yield name
        case p.Apply(_, args) | p.MakeRecord(args):
            for arg in args:
                yield from _names(arg)


def _all_literals(body: Iterable[p.Literal]) -> Iterator[p.Literal]:
    for literal in body:
        yield literal
        if isinstance(literal, p.Reduce):
            yield from _all_literals(literal.body)


def _terms(literal: p.Literal) -> Iterator[p.Term]:
    def walk(terms: Iterable[p.Term]) -> Iterator[p.Term]:
        for term in terms:
            yield term
            if isinstance(term, p.Apply | p.MakeRecord):
                yield from walk(term.args)

    match literal:
        case p.Atom(args=args) | p.Test(args=args):
            yield from walk(args)
        case p.Compare(_, left, right):
            yield from walk((left, right))
        case p.Generate(target, args):
            yield from walk((target, *args))


# --- values -------------------------------------------------------------------------------------


def _column_types(program: p.Program) -> Iterator[str]:
    for relation in program.relations.values():
        for column in relation.columns:
            yield _type_name(column.type)


def _type_name(type_: Type) -> str:
    if type_.kind is not Kind.SET:
        return type_.kind.name.lower()
    assert type_.element is not None
    return "nested set" if type_.element.kind in (Kind.SET, Kind.RECORD) else "set"


def _values(case: RandomCase) -> Iterator[Any]:
    rows: list[Row] = [row for rows in case.facts.values() for row in rows]
    rows += [row for epoch in case.epochs for adds, _ in epoch.values() for row in adds]
    for row in rows:
        yield from row


def _of_values(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        match value:
            case bool():
                pass
            case int() if value >= 2**63:
                yield "unsigned beyond 63 bits"
            case int() if value <= -(2**62) or value >= 2**62:
                yield "number of 63 bits or more"
            case float() if not math.isfinite(value):
                yield "infinity or NaN"
            case str() if len(value) > 64:
                yield "long symbol"


def _of_epochs(case: RandomCase) -> Iterator[str]:
    sizes = [sum(len(i) + len(d) for i, d in epoch.values()) for epoch in case.epochs]
    if any(size >= 20 for size in sizes) and any(0 < size <= 5 for size in sizes):
        yield "epochs of mixed size"
    seen: Counter[tuple[str, Row]] = Counter()
    for epoch in case.epochs:
        for name, (adds, removes) in epoch.items():
            seen.update({(name, row) for row in {*adds} ^ {*removes}})
    if any(times >= 4 for times in seen.values()):
        yield "rows that come and go repeatedly"
    at_first = [abs(v) for rows in case.facts.values() for row in rows for v in row if _is_int(v)]
    later = [abs(value) for value in _values(case) if _is_int(value)]
    if later and max(later) > 16 * max([1, *at_first]):
        yield "domains that widen"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
