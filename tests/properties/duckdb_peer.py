"""A checked program as SQL, evaluated by DuckDB: a subset, but with 64-bit integers.

Each stratum is one table, a recursive one `WITH RECURSIVE .. UNION` (which removes duplicates). So
a recursive stratum must be a single relation whose rules read it once each; other programs are
`Unsupported`. Every table has a column `present`, since SQL has no relations without columns.
Negation is NOT EXISTS, an aggregate a correlated subquery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import duckdb

from tidelog.logic import program as p

_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "//", "mod": "%"}
_TYPES = {"number": "BIGINT", "symbol": "VARCHAR"}


class Unsupported(Exception):
    """The program is outside of the subset."""


def evaluate(
    program: p.Program, facts: Mapping[str, Iterable[p.Row]]
) -> dict[str, frozenset[p.Row]]:
    """Return the rows of every relation, as DuckDB computes them."""
    given: dict[str, set[p.Row]] = {name: set(facts.get(name, ())) for name in program.relations}
    for fact in program.facts:
        given[fact.relation].add(fact.row)
    found = {}
    with duckdb.connect(config={"threads": 1}) as connection:
        for stratum in program.strata:
            for name in stratum.relations:
                connection.execute(_create(program, stratum, name, given[name]))
                columns = ", ".join(f"c{i}" for i in range(program.relations[name].arity))
                rows = connection.execute(f"SELECT {columns or 'present'} FROM r_{name}").fetchall()
                found[name] = frozenset(rows if columns else [()] * bool(rows))
    return found


def _create(program: p.Program, stratum: p.Stratum, name: str, given: set[p.Row]) -> str:
    relation = program.relations[name]
    recursive = [rule for rule in stratum.rules if _reads(rule, name)]
    if len(stratum.relations) > 1 or any(_reads(rule, name) > 1 for rule in recursive):
        raise Unsupported("recursion that SQL does not have")
    columns = [f"c{i} {_TYPES[str(c.type)]}" for i, c in enumerate(relation.columns)]
    types = [str(c.type) for c in relation.columns]
    empty = _select([_cast("NULL", type_) for type_ in types]) + " WHERE false"
    base = [empty]
    base += [
        _select([_cast(_constant(v), t) for v, t in zip(row, types, strict=True)]) for row in given
    ]
    base += [_rule(rule, types) for rule in stratum.rules if rule not in recursive]
    steps = [_rule(rule, types) for rule in recursive]
    query = " UNION ".join(f"({part})" for part in base)
    names = ", ".join([*(column.split()[0] for column in columns), "present"])
    if steps:
        step = " UNION ALL ".join(f"({part})" for part in steps)
        query = f"({query}) UNION ({step})"
    return (
        f"CREATE TABLE r_{name} AS WITH RECURSIVE r_{name}({names}) AS ({query})"
        f" SELECT DISTINCT * FROM r_{name}"
    )


def _reads(rule: p.Rule, name: str) -> int:
    return sum(isinstance(literal, p.Atom) and literal.relation == name for literal in rule.body)


def _select(expressions: list[str]) -> str:
    return f"SELECT {', '.join([*expressions, 'true'])}"


def _cast(expression: str, type_: str) -> str:
    return f"CAST({expression} AS {_TYPES[type_]})"


def _constant(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return f"({value})"


def _rule(rule: p.Rule, types: list[str]) -> str:
    query = _Query({}, "t")
    query.add(rule.body)
    head = [_cast(query.term(a), t) for a, t in zip(rule.head.args, types, strict=True)]
    return query.text(_select(head))


class _Query:
    """FROM and WHERE of a body. `names` maps variables to the expressions that bind them."""

    def __init__(self, names: dict[str, str], prefix: str) -> None:
        self.names = names
        self._prefix = prefix
        self._tables: list[str] = []
        self._conditions: list[str] = []

    def text(self, select: str) -> str:
        tables = f" FROM {', '.join(self._tables)}" if self._tables else ""
        where = f" WHERE {' AND '.join(self._conditions)}" if self._conditions else ""
        return f"{select}{tables}{where}"

    def add(self, body: tuple[p.Literal, ...]) -> None:
        """Add the literals, atoms first, the others as soon as their variables are bound."""
        for literal in body:
            if isinstance(literal, p.Atom) and not literal.negated:
                alias = f"{self._prefix}{len(self._tables)}"
                self._tables.append(f"r_{literal.relation} {alias}")
                for i, arg in enumerate(literal.args):
                    self._match(arg, f"{alias}.c{i}")
        waiting = [x for x in body if not isinstance(x, p.Atom) or x.negated]
        while waiting:
            later = [literal for literal in waiting if not self._condition(literal)]
            assert len(later) < len(waiting), later
            waiting = later

    def _match(self, term: p.Term, expression: str) -> None:
        if isinstance(term, p.Wildcard):
            return
        if isinstance(term, p.Var) and term.name not in self.names:
            self.names[term.name] = expression
        else:
            self._conditions.append(f"{self.term(term)} = {expression}")

    def _known(self, *terms: p.Term) -> bool:
        return all(
            term.name in self.names if isinstance(term, p.Var)
            else self._known(*term.args) if isinstance(term, p.Apply)
            else True
            for term in terms
        )  # fmt: skip

    def _condition(self, literal: p.Literal) -> bool:
        """Add a condition if its variables are bound; return whether they are."""
        match literal:
            case p.Compare(p.Comparison.EQ, p.Var() as left, right) if self._known(right):
                self._match(left, f"({self.term(right)})")
            case p.Compare(p.Comparison.EQ, left, p.Var() as right) if self._known(left):
                self._match(right, f"({self.term(left)})")
            case p.Compare(op, left, right) if self._known(left, right):
                sign = "<>" if op is p.Comparison.NE else op.value
                self._conditions.append(f"{self.term(left)} {sign} {self.term(right)}")
            case p.Atom(relation, args, negated=True) if self._known(*args):
                inner = _Query(dict(self.names), self._prefix + "n")
                inner.add((p.Atom(relation, args, literal.span),))
                self._conditions.append(f"NOT EXISTS ({inner.text('SELECT 1')})")
            case p.Reduce(group=group) if all(name in self.names for name in group):
                self._aggregate(literal)
            case p.Generate() | p.Test():
                raise Unsupported("range and tests")
            case _:
                return False
        return True

    def _aggregate(self, literal: p.Reduce) -> None:
        # Rows are sets and `_` is a variable here: a row of the join is an assignment.
        inner = _Query({name: self.names[name] for name in literal.group}, self._prefix + "a")
        inner.add(literal.body)
        if literal.target is None:
            select = "count(*)"
        else:
            select = f"{literal.op}({inner.term(literal.target)})"
        if literal.op == "sum":
            select = f"coalesce({select}, 0)"
        value = f"({inner.text(f'SELECT {select}')})"
        if literal.op in ("min", "max"):
            self._conditions.append(f"{value} IS NOT NULL")
        self._match(literal.result, value)

    def term(self, term: p.Term) -> str:
        match term:
            case p.Var(name):
                return self.names[name]
            case p.Const(value):
                return _constant(value)
            # DuckDB may compute before it filters: 128 bits hold what a guard would have kept out.
            case p.Apply("neg", (operand,)):
                return f"(-({self.term(operand)})::HUGEINT)"
            case p.Apply(op, (left, right)):
                return f"(({self.term(left)})::HUGEINT {_OPERATORS[op]} {self.term(right)})"
        raise Unsupported(repr(term))
