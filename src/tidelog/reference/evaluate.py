"""The model of a program on given facts: stratum by stratum, each to its fixpoint.

Within a stratum, evaluation is semi-naive: after the first round a rule is only tried with at
least one recursive atom matched by a row that the round before found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from tidelog.errors import EvaluationError, FunctionalConflict
from tidelog.logic import program as p
from tidelog.logic.pruning import row_variables
from tidelog.reference.functors import FunctorFailure
from tidelog.reference.solve import UNKNOWN, Assignment, IndexedRows, Solver
from tidelog.values.order import sort_rows
from tidelog.values.text import format_value
from tidelog.values.types import Row


class Watch(Protocol):
    """Observes an evaluation, and may stop it with an exception."""

    def found(self, instantiations: int, /) -> None:
        """Receive the number of rows that were examined."""

    def reached(self, level: int, rows: int, /) -> None:
        """Receive the number of rows after a round."""


def evaluate(
    program: p.Program, facts: Mapping[str, Iterable[Row]], watch: Watch | None = None
) -> dict[str, frozenset[Row]]:
    """Return the rows of every relation of `program`, given `facts` besides its own."""
    return _Evaluation(program, facts, watch).run()


class _Evaluation:
    def __init__(
        self, program: p.Program, facts: Mapping[str, Iterable[Row]], watch: Watch | None
    ) -> None:
        self._watch = watch
        self._program = program
        self._given = {name: set(rows) for name, rows in facts.items()}
        self._relations = {name: IndexedRows() for name in program.relations}
        self._keys: dict[str, dict[Row, Row]] = {
            name: {} for name, relation in program.relations.items() if relation.functional
        }
        if watch is None:
            self._solver = Solver(self._relations, program.records)
        else:
            self._solver = Solver(self._relations, program.records, watch.found)

    def run(self) -> dict[str, frozenset[Row]]:
        for fact in self._program.facts:
            self._add(fact.relation, fact.row)
        for name, rows in self._given.items():
            for row in rows:
                self._add(name, row)
        for stratum in self._program.strata:
            if self._program.pruned.keys().isdisjoint(stratum.relations):
                self._stratum(stratum)
            else:
                self._pruned_stratum(stratum)
        return {name: frozenset(relation.rows) for name, relation in self._relations.items()}

    def _pruned_stratum(self, stratum: p.Stratum) -> None:
        """Evaluate the stratum again and again, with more candidates each time."""
        own = {name: set(self._relations[name].rows) for name in stratum.relations}
        pruned = {n: kept for n, kept in self._program.pruned.items() if n in own}
        rules = tuple(rule for rule in stratum.rules if rule.head.relation not in pruned)
        others = replace(stratum, rules=rules)
        candidates: dict[str, set[Row]] = {name: set() for name in pruned}
        rows: dict[str, set[Row]] = {name: set() for name in pruned}
        # Only the rows of the last round must have one value for each key.
        keys = {name: self._keys.pop(name) for name in own if name in self._keys}
        while True:
            for name, first in own.items():
                self._relations[name] = IndexedRows(rows.get(name, first))
            self._stratum(others)
            new = {name: own[name] - candidates[name] for name in pruned}
            for rule in stratum.rules:
                if rule.head.relation in pruned:
                    derived = set(self._derive(rule, None))
                    new[rule.head.relation] |= derived - candidates[rule.head.relation]
            if not any(new.values()):
                break
            for name, kept in pruned.items():
                candidates[name] |= new[name]
                if isinstance(kept, p.ChoiceDomain):
                    rows[name] |= self._chosen(name, kept, rows[name], new[name])
                else:
                    rows[name] = candidates[name] - self._worse(name, kept, candidates[name])
        self._keys.update(keys)
        for name in keys:
            found, self._relations[name] = self._relations[name].rows, IndexedRows(own[name])
            for row in found:
                self._add(name, row)

    def _chosen(self, name: str, choice: p.ChoiceDomain, old: set[Row], new: set[Row]) -> set[Row]:
        """Return the new rows that agree with no other row in any key, the smallest first."""
        taken = {(key, tuple(row[i] for i in key)) for row in old for key in choice.keys}
        chosen: set[Row] = set()
        for row in sort_rows(new, self._program.relations[name].columns, self._program.records):
            wanted = {(key, tuple(row[i] for i in key)) for key in choice.keys}
            if not wanted & taken:
                taken |= wanted
                chosen.add(row)
        return chosen

    def _worse(self, name: str, kept: p.Subsumption, candidates: set[Row]) -> set[Row]:
        """Return the candidates for which there is a better one."""
        self._relations[name] = IndexedRows(candidates)
        pairs: set[tuple[Row, Row]] = set()
        for rule in kept.rules:
            for known, failure in self._solver.solutions(rule.body, {}):
                worse, better = (
                    tuple(self._solver.value(arg, known) for arg in variables)
                    for variables in row_variables(rule)
                )
                if worse == better:
                    continue
                if failure is not None:
                    raise self._error(rule, known, failure)
                pairs.add((worse, better))
        columns, records = self._program.relations[name].columns, self._program.records
        place = {row: i for i, row in enumerate(sort_rows(candidates, columns, records))}
        return {
            worse
            for worse, better in pairs
            if (better, worse) not in pairs or place[better] < place[worse]
        }

    def _stratum(self, stratum: p.Stratum) -> None:
        new = {name: IndexedRows() for name in stratum.relations}
        for rule in stratum.rules:
            for row in list(self._derive(rule, None)):
                if self._add(rule.head.relation, row):
                    new[rule.head.relation].add(row)
        level = 0
        while stratum.recursive and any(table.rows for table in new.values()):
            level += 1
            if self._watch is not None:
                rows = sum(len(self._relations[name].rows) for name in stratum.relations)
                self._watch.reached(level, rows)
            last, new = new, {name: IndexedRows() for name in stratum.relations}
            for rule in stratum.rules:
                for i, literal in enumerate(rule.body):
                    if not (isinstance(literal, p.Atom) and literal.relation in last):
                        continue
                    for row in list(self._derive(rule, (i, last[literal.relation]))):
                        if self._add(rule.head.relation, row):
                            new[rule.head.relation].add(row)

    def _derive(self, rule: p.Rule, focus: tuple[int, IndexedRows] | None) -> Iterator[Row]:
        for known, failure in self._solver.solutions(rule.body, {}, focus):
            if failure is not None:
                raise self._error(rule, known, failure)
            try:
                yield tuple(self._solver.value(arg, known) for arg in rule.head.args)
            except FunctorFailure as error:
                raise self._error(rule, known, error) from None

    def _error(self, rule: p.Rule, known: Assignment, failure: FunctorFailure) -> EvaluationError:
        values = {
            name: value
            for name, value in (known if failure.group is None else failure.group).items()
            if not name.startswith("$") and value is not UNKNOWN
        }
        return EvaluationError(str(failure), rule.text, rule.span, values)

    # --- functional relations ---

    def _add(self, name: str, row: Row) -> bool:
        is_new = self._relations[name].add(row)
        if is_new and name in self._keys:
            other = self._keys[name].setdefault(row[:-1], row)
            if other != row:
                raise self._conflict(self._program.relations[name], other, row)
        return is_new

    def _conflict(self, relation: p.Relation, *rows: Row) -> FunctionalConflict:
        def shown(row: Row, start: int, stop: int | None) -> str:
            columns = relation.columns[start:stop]
            values = zip(row[start:stop], columns, strict=True)
            return ", ".join(format_value(v, c.type, self._program.records) for v, c in values)

        key = shown(rows[0], 0, -1)
        lines = [f"`{relation.name}[{key}]` has two values"]
        for row in rows:
            lines.append(f"  = {shown(row, -1, None)}: {self._origin(relation.name, row)}")
        lines.append("  help: a functional relation has one value for each key")
        return FunctionalConflict("\n".join(lines))

    def _origin(self, name: str, row: Row) -> str:
        """Say where a row comes from."""
        if row in self._given.get(name, ()):
            return "a given fact"
        for fact in self._program.facts:
            if fact.relation == name and fact.row == row:
                return f"a fact of the program, {fact.span}"
        for rule in self._program.rules:
            if rule.head.relation != name:
                continue
            for known, failure in self._solver.solutions(rule.body, {}):
                if failure is None and row == self._head_or_none(rule, known):
                    values = ", ".join(
                        f"{n} = {v!r}" for n, v in known.items() if not n.startswith("$")
                    )
                    return f"derived by {rule.text}  ({rule.span})" + (
                        f" with {values}" if values else ""
                    )
        raise AssertionError(f"{name}{row} comes from nowhere")

    def _head_or_none(self, rule: p.Rule, known: Assignment) -> Row | None:
        """Return the row that a rule derives; None where it fails on rows that are news to it."""
        try:
            return tuple(self._solver.value(arg, known) for arg in rule.head.args)
        except FunctorFailure:
            return None
