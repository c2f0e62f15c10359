"""Levels and counts by their definition, slowly: what the kernel's state is compared with.

Naive evaluation: in every round all rules are tried on all rows found before it. A row's level is
the round that finds it first (0 for given rows), its count the number of solutions that find it in
that round. A relation without recursion has no levels; its count is the number of all solutions,
and one more if the row is given.

An atom that an aggregate of the body makes needless is solved once for each group, however many
rows it has (plan/implied.py). And in a rule with an aggregate, what an atom says and nothing else
asks for makes no further solutions (plan/outer.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidelog.logic.program import Atom, Literal, Program, Reduce, Rule, Stratum, Var
from tidelog.logic.safety import literal_variables, term_variables
from tidelog.plan.implied import without_implied
from tidelog.reference.solve import Solver
from tidelog.reference.tables import Table
from tidelog.values.types import Row

State = dict[Row, tuple[int, int]]


def levels_and_counts(program: Program, given: Mapping[str, Iterable[Row]]) -> dict[str, State]:
    """Return level and count of each row of each relation. No rule may fail on the facts."""
    tables = {name: Table() for name in program.relations}
    states: dict[str, State] = {name: {} for name in program.relations}
    stated = [(fact.relation, fact.row) for fact in program.facts]
    for name, row in [*stated, *((name, row) for name, rows in given.items() for row in rows)]:
        tables[name].add(row)
        states[name][row] = (0, 1)
    solver = Solver(tables, program.records)
    for stratum in program.strata:
        if stratum.recursive:
            _rounds(stratum, solver, tables, states)
        elif stratum.rules:
            _once(stratum, solver, tables, states)
    return states


def _rounds(
    stratum: Stratum, solver: Solver, tables: dict[str, Table], states: dict[str, State]
) -> None:
    level = 0
    found: Counter[tuple[str, Row]] = Counter()
    while level == 0 or found:
        level += 1
        found = Counter(
            (name, row)
            for rule in stratum.rules
            for name, row in _heads(solver, rule, stratum, tables)
            if row not in states[name]
        )
        for (name, row), count in found.items():
            states[name][row] = (level, count)
            tables[name].add(row)


def _once(
    stratum: Stratum, solver: Solver, tables: dict[str, Table], states: dict[str, State]
) -> None:
    found = Counter(
        head for rule in stratum.rules for head in _heads(solver, rule, stratum, tables)
    )
    for (name, row), count in found.items():
        states[name][row] = (0, count + states[name].get(row, (0, 0))[1])
        tables[name].add(row)


def _heads(
    solver: Solver, rule: Rule, stratum: Stratum, tables: dict[str, Table]
) -> list[tuple[str, Row]]:
    heads = []
    seen = set()
    asked = _asked(rule, stratum)
    for known, failure in solver.solutions(_body(rule, tables), {}):
        assert failure is None, failure
        if asked is not None:
            solution = tuple(known[name] for name in asked)
            if solution in seen:
                continue
            seen.add(solution)
        row = tuple(solver.value(arg, known) for arg in rule.head.args)
        heads.append((rule.head.relation, row))
    return heads


def _body(rule: Rule, tables: dict[str, Table]) -> tuple[Literal, ...]:
    """Return the body, its needless atoms over tables that have one row for each group."""
    kept = without_implied(rule.body)
    body: list[Literal] = []
    for literal in rule.body:
        if literal in kept:
            body.append(literal)
            continue
        assert isinstance(literal, Atom)
        groups: dict[Row, Row] = {}
        for row in tables[literal.relation].rows:
            columns = zip(row, literal.args, strict=True)
            groups[tuple(value for value, arg in columns if isinstance(arg, Var))] = row
        name = f"{literal.relation}, each group once"
        tables[name] = Table()
        for row in groups.values():
            tables[name].add(row)
        body.append(replace(literal, relation=name))
    return tuple(body)


def _asked(rule: Rule, stratum: Stratum) -> list[str] | None:
    """Return the variables that tell solutions of a rule apart; None: each solution counts."""
    atoms = [literal for literal in rule.body if isinstance(literal, Atom)]
    recursive = stratum.recursive and any(a.relation in stratum.relations for a in atoms)
    if recursive or not any(isinstance(literal, Reduce) for literal in rule.body):
        return None
    used = Counter(name for literal in rule.body for name in literal_variables(literal))
    used.update(term_variables(rule.head.args))
    alone = {
        arg.name
        for atom in atoms
        if not atom.negated
        for arg in atom.args
        if isinstance(arg, Var) and used[arg.name] == 1
    }
    return sorted(used.keys() - alone)
