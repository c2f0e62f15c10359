"""The meaning of a program by its textbook definition: try every row for every atom, until nothing
new comes. No indexes, no deltas, no join order; only for tiny inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tidelog.logic import program as p

Assignment = dict[str, Any]
Tables = dict[str, set[p.Row]]

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def evaluate(
    program: p.Program, facts: Mapping[str, Iterable[p.Row]]
) -> dict[str, frozenset[p.Row]]:
    """Return the rows of every relation of `program`."""
    tables: Tables = {name: set(facts.get(name, ())) for name in program.relations}
    for fact in program.facts:
        tables[fact.relation].add(fact.row)
    for stratum in program.strata:
        size = -1
        while size != (size := sum(map(len, tables.values()))):
            for rule in stratum.rules:
                new = {
                    tuple(_value(arg, found) for arg in rule.head.args)
                    for found in _solutions(rule.body, {}, tables)
                }
                tables[rule.head.relation] |= new
    return {name: frozenset(rows) for name, rows in tables.items()}


def _solutions(
    body: tuple[p.Literal, ...], known: Assignment, tables: Tables
) -> Iterator[Assignment]:
    """Nested loops over the positive atoms as they stand, then everything else."""
    atoms = [x for x in body if isinstance(x, p.Atom) and not x.negated]
    rest = [x for x in body if x not in atoms]
    found = [known]
    for atom in atoms:
        found = [
            new
            for before in found
            for row in tables[atom.relation]
            if (new := _matched(atom.args, row, before)) is not None
        ]
    for assignment in found:
        yield from _conditions(rest, assignment, tables)


def _matched(args: tuple[p.Term, ...], row: p.Row, known: Assignment) -> Assignment | None:
    known = dict(known)
    for arg, value in zip(args, row, strict=True):
        if isinstance(arg, p.Wildcard):
            continue
        if isinstance(arg, p.Var):
            arg_value = known.setdefault(arg.name, value)
        else:
            arg_value = _value(arg, known)
        if arg_value != value:
            return None
    return known


def _conditions(rest: list[p.Literal], known: Assignment, tables: Tables) -> Iterator[Assignment]:
    """Take the first condition whose variables are bound; checks go before computations."""
    if not rest:
        yield known
        return
    ready = [x for x in rest if _checks(x, known)] or [x for x in rest if _binds(x, known)]
    literal = ready[0]
    others = [x for x in rest if x is not literal]
    for extended in _condition(literal, known, tables):
        yield from _conditions(others, extended, tables)


def _names(*terms: p.Term) -> set[str]:
    out: set[str] = set()
    for term in terms:
        if isinstance(term, p.Var):
            out.add(term.name)
        elif isinstance(term, p.Apply):
            out |= _names(*term.args)
    return out


def _checks(literal: p.Literal, known: Assignment) -> bool:
    match literal:
        case p.Compare(_, left, right):
            return _names(left, right) <= known.keys()
        case p.Atom(args=args):
            return _names(*args) <= known.keys()
    return False


def _binds(literal: p.Literal, known: Assignment) -> bool:
    match literal:
        case p.Compare(p.Comparison.EQ, left, right):
            return (isinstance(left, p.Var) and _names(right) <= known.keys()) or (
                isinstance(right, p.Var) and _names(left) <= known.keys()
            )
        case p.Generate(_, args):
            return _names(*args) <= known.keys()
        case p.Reduce(group=group):
            return set(group) <= known.keys()
    return False


def _condition(literal: p.Literal, known: Assignment, tables: Tables) -> Iterator[Assignment]:
    match literal:
        case p.Compare(op, left, right):
            if _names(left, right) <= known.keys():
                if _COMPARE[op.value](_value(left, known), _value(right, known)):
                    yield known
            elif isinstance(left, p.Var) and left.name not in known:
                yield {**known, left.name: _value(right, known)}
            else:
                assert isinstance(right, p.Var)
                yield {**known, right.name: _value(left, known)}
        case p.Atom(relation, args, negated=True):
            if all(_matched(args, row, known) is None for row in tables[relation]):
                yield known
        case p.Generate(target, args):
            start, stop, *step = (_value(arg, known) for arg in args)
            by = step[0] if step else 1 if start <= stop else -1
            for number in range(start, stop, by):
                if (new := _matched((target,), (number,), known)) is not None:
                    yield new
        case p.Reduce(result, op, target, body, group, local):
            outer = {name: known[name] for name in group}
            assignments = {
                tuple(found[name] for name in local): found
                for found in _solutions(body, outer, tables)
            }
            values = [None if target is None else _value(target, a) for a in assignments.values()]
            if values or op in ("count", "sum"):
                value = {"count": len, "sum": sum, "min": min, "max": max}[op](values)
                if (new := _matched((result,), (value,), known)) is not None:
                    yield new
        case _:
            raise NotImplementedError(literal)


def _value(term: p.Term, known: Assignment) -> Any:
    match term:
        case p.Var(name):
            return known[name]
        case p.Const(value):
            return value
        case p.Apply(op, args):
            values = [_value(arg, known) for arg in args]
            return _FUNCTORS[op](*values)
    raise NotImplementedError(term)


def _divide(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_FUNCTORS: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "div": _divide,
    "mod": lambda a, b: a - b * _divide(a, b),
}
