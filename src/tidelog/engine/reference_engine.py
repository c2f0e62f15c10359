"""The reference engine under a database: re-evaluates the program in every epoch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Set
from contextlib import nullcontext

from tidelog.engine.protocol import Answer, Effects, Ignored, NetChange, Requested
from tidelog.engine.reads import SetReader
from tidelog.engine.report import EpochReport, LayerReport
from tidelog.logic.program import Program
from tidelog.logic.query import ANSWERS, QueryChecker
from tidelog.logic.rule_changes import check_change
from tidelog.reference import evaluate
from tidelog.reference.retention import retained
from tidelog.runtime.interrupts import Interrupts
from tidelog.values.types import Row

_WHY = "this engine re-evaluates the program in every epoch"


class ReferenceEngine:
    """Re-evaluates the program in every epoch. Slow, and obviously right."""

    name = "reference"

    def __init__(self, program: Program, given: Mapping[str, Iterable[Row]]) -> None:
        start = time.perf_counter()
        self._program = program
        self._given = {name: frozenset(given.get(name, ())) for name in program.relations}
        late = {}
        for name, retain in program.retained.items():
            old, _ = retained(retain, frozenset(), self._given[name])
            self._given[name] -= old
            late.update({name: len(old)} if old else {})
        self._rows = evaluate(program, self._given)
        rows = sum(len(self._rows[name]) for name in program.derived)
        held = sum(map(len, self._given.values()))
        report = self._report(0, time.perf_counter() - start, (held, 0), (rows, 0))
        self.last_epoch = report._replace(late=late)

    @property
    def memory(self) -> Mapping[str, int]:
        """Nothing: rows are Python objects, which are not counted."""
        return {}

    def given_count(self, relation: str) -> int:
        """Return how many rows of a relation are given."""
        return len(self._given[relation])

    def is_given(self, relation: str, row: Row) -> bool:
        """Return whether a transaction has inserted a row."""
        return row in self._given[relation]

    def reader(self, relation: str) -> SetReader:
        """Return a reader for the committed rows of a relation."""
        return SetReader(
            self._rows[relation], self._program.relations[relation], self._program.records
        )

    def rows(self, relation: str) -> Set[Row]:
        """Return the committed rows of a relation."""
        return self._rows[relation]

    def query(self, text: str) -> Answer:
        """Return the answers to a query: the program is evaluated with its rules."""
        query = QueryChecker(self._program).check(text)
        rows = evaluate(query.within(self._program), {**self._given, ANSWERS: frozenset()})
        reader = SetReader(rows[ANSWERS], query.shown, self._program.records)
        return Answer(query.shown, reader)

    def apply(
        self,
        inserted: Mapping[str, Requested],
        deleted: Mapping[str, Requested],
        interrupts: Interrupts | None = None,
        program: Program | None = None,
    ) -> Effects:
        """Commit one epoch: change the given rows and the program, evaluate, and compare."""
        start = time.perf_counter()
        none: frozenset[Row] = frozenset()
        if program is None:
            program, given = self._program, dict(self._given)
        else:
            check_change(self._program, program, {n: len(r) for n, r in self._given.items()})
            given = {name: self._given.get(name, none) for name in program.relations}
        ignored, late = {}, {}
        more = less = 0
        for name in dict.fromkeys([*inserted, *deleted]):
            adds, removes = frozenset(inserted.get(name, ())), frozenset(deleted.get(name, ()))
            adds, removes = adds - removes, removes - adds
            if name in program.retained:
                old, expired = retained(program.retained[name], given[name], adds)
                adds, removes = adds - old, removes | expired
                late.update({name: len(old)} if old else {})
            unused = Ignored(frozenset(adds & given[name]), frozenset(removes - given[name]))
            if unused:
                ignored[name] = unused
            more += len(adds) - len(unused.inserted)
            less += len(removes) - len(unused.deleted)
            given[name] = (given[name] - removes) | adds
        with nullcontext() if interrupts is None else interrupts.allowed():
            rows = evaluate(program, given)  # raises before anything is changed
        changes = {
            name: NetChange(after - before, before - after)
            for name, after in rows.items()
            if after != (before := self._rows.get(name, none))
        }
        derived = [net for name, net in changes.items() if name in program.derived]
        self._program = program
        self.last_epoch = self._report(
            self.last_epoch.epoch + 1,
            time.perf_counter() - start,
            (more, less),
            (sum(len(net.inserted) for net in derived), sum(len(net.deleted) for net in derived)),
        )
        self.last_epoch = self.last_epoch._replace(late=late)
        self._given, self._rows = given, rows
        return Effects(changes, ignored, late)

    def _report(
        self, epoch: int, seconds: float, given: tuple[int, int], derived: tuple[int, int]
    ) -> EpochReport:
        """Return the report of an evaluation: one layer for everything that rules derive."""
        names = tuple(name for name in self._program.relations if name in self._program.derived)
        layer = LayerReport(names, "recompute", "bootstrap", _WHY, seconds, *derived)
        return EpochReport(epoch, seconds, *given, (layer,) if names else ())
