"""Levels and counts by their definition, slowly: what the kernel's state is compared with.

Naive evaluation: in every round all rules are tried on all rows found before it. A row's level is
the round that finds it first (0 for given rows), its count the number of solutions that find it in
that round. A relation without recursion has no levels; its count is the number of all solutions,
and one more if the row is given. A fact of the program is a rule without a body, which has one
solution.

An atom that an aggregate of the body makes needless is solved once for each group, however many
rows it has (plan/redundant.py). And in a rule with an aggregate, what an atom says and nothing else
asks for makes no further solutions (plan/redundant.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidelog.logic.program import Atom, Literal, Program, Reduce, Rule, Stratum, Var
from tidelog.logic.variables import literal_variables, term_variables
from tidelog.plan.redundant import without_redundant_atoms
from tidelog.reference.solve import IndexedRows, Solver
from tidelog.values.types import Row

State = dict[Row, tuple[int, int]]
Head = tuple[str, Row]


def levels_and_counts(program: Program, given: Mapping[str, Iterable[Row]]) -> dict[str, State]:
    """Return level and count of each row of each relation. No rule may fail on the facts."""
    relations = {name: IndexedRows() for name in program.relations}
    states: dict[str, State] = {name: {} for name in program.relations}
    for name, rows in given.items():
        for row in rows:
            relations[name].add(row)
            states[name][row] = (0, 1)
    facts = sorted({(fact.relation, fact.row) for fact in program.facts}, key=repr)
    solver = Solver(relations, program.records)
    for stratum in program.strata:
        own = [head for head in facts if head[0] in stratum.relations]
        if stratum.recursive:
            _rounds(stratum, own, solver, relations, states)
        else:
            _once(stratum, own, solver, relations, states)
    return states


def _rounds(
    stratum: Stratum,
    facts: list[Head],
    solver: Solver,
    relations: dict[str, IndexedRows],
    states: dict[str, State],
) -> None:
    level = 0
    found: Counter[Head] = Counter()
    while level == 0 or found:
        level += 1
        heads = [
            head for rule in stratum.rules for head in _heads(solver, rule, stratum, relations)
        ]
        found = Counter((name, row) for name, row in heads + facts if row not in states[name])
        for (name, row), count in found.items():
            states[name][row] = (level, count)
            relations[name].add(row)


def _once(
    stratum: Stratum,
    facts: list[Head],
    solver: Solver,
    relations: dict[str, IndexedRows],
    states: dict[str, State],
) -> None:
    heads = [head for rule in stratum.rules for head in _heads(solver, rule, stratum, relations)]
    found = Counter(heads + facts)
    for (name, row), count in found.items():
        states[name][row] = (0, count + states[name].get(row, (0, 0))[1])
        relations[name].add(row)


def _heads(
    solver: Solver, rule: Rule, stratum: Stratum, relations: dict[str, IndexedRows]
) -> list[Head]:
    heads = []
    seen = set()
    asked = _asked(rule, stratum)
    for known, failure in solver.solutions(_body(rule, relations), {}):
        assert failure is None, failure
        if asked is not None:
            solution = tuple(known[name] for name in asked)
            if solution in seen:
                continue
            seen.add(solution)
        row = tuple(solver.value(arg, known) for arg in rule.head.args)
        heads.append((rule.head.relation, row))
    return heads


def _body(rule: Rule, relations: dict[str, IndexedRows]) -> tuple[Literal, ...]:
    """Return the body, its needless atoms over relations that have one row for each group."""
    kept = without_redundant_atoms(rule.body)
    body: list[Literal] = []
    for literal in rule.body:
        if literal in kept:
            body.append(literal)
            continue
        assert isinstance(literal, Atom)
        groups: dict[Row, Row] = {}
        for row in relations[literal.relation].rows:
            columns = zip(row, literal.args, strict=True)
            groups[tuple(value for value, arg in columns if isinstance(arg, Var))] = row
        name = f"{literal.relation}, each group once"
        relations[name] = IndexedRows()
        for row in groups.values():
            relations[name].add(row)
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
