"""The kernel under a database: stored relations, kept up to date stratum by stratum."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.functional import FunctionalCheck
from tidelog.engine.protocol import Effects, Ignored, NetChange
from tidelog.errors import EvaluationError
from tidelog.kernel.join import DEAD_NOW
from tidelog.logic.program import Program
from tidelog.maintain.aggregate import Aggregate
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.counting import Counting
from tidelog.maintain.elastic import Elastic
from tidelog.maintain.joins import DomainOverflow
from tidelog.maintain.recompute import Recompute
from tidelog.maintain.strategy import Strategy
from tidelog.plan.lower import lower
from tidelog.plan.lowered import Layer
from tidelog.store.codec import Codec
from tidelog.store.relation import Delta, Version
from tidelog.values.types import Row

Array = NDArray[np.int64]


@dataclass(frozen=True)
class LayerReport:
    """What one layer did in the last epoch."""

    relations: tuple[str, ...]
    strategy: str
    choice: str
    seconds: float
    inserted: int
    deleted: int


class KernelEngine:
    """Keeps all relations of one program."""

    name = "kernel"

    def __init__(self, program: Program, given: Mapping[str, Iterable[Row]]) -> None:
        self._program = program
        self._catalog = Catalog(lower(program), Codec(program.records))
        self._facts: dict[str, set[Row]] = {}
        for fact in program.facts:
            self._facts.setdefault(fact.relation, set()).add(fact.row)
        # Rows that are both stated by the program and given: only the latter can be deleted.
        self._given_facts: dict[str, set[Row]] = {}
        self._strategies = [
            (layer, strategy)
            for layer in self._catalog.lowered.layers
            if (strategy := self._strategy(layer)) is not None
        ]
        self._functional = FunctionalCheck(program, self._catalog)
        self.last_epoch: tuple[LayerReport, ...] = ()
        self._load(given)

    def _strategy(self, layer: Layer) -> Strategy | None:
        if layer.recompute is not None:
            return Recompute(self._catalog, layer, self._program)
        if layer.aggregation is not None:
            return Aggregate(self._catalog, layer.aggregation)
        if not layer.rules:
            return None
        return (Elastic if layer.recursive else Counting)(self._catalog, layer)

    # --- the first evaluation ---

    def _load(self, given: Mapping[str, Iterable[Row]]) -> None:
        catalog = self._catalog
        encoded = {}
        for name in self._program.relations:
            rows = set(given.get(name, ()))
            stated = self._facts.get(name, set())
            self._given_facts[name] = rows & stated
            encoded[name] = catalog.encode(name, rows | stated)
            catalog.fit(name, encoded[name])
        self._fit_constants()
        catalog.relayout()
        for name, ordinals in encoded.items():
            catalog.given[name].replace(catalog.pack(name, ordinals), None, None)
        while True:
            try:
                self._bootstrap()
                self._functional.check(new_only=False)
                return
            except EvaluationError:
                # Two values for one key often are the reason: that is the better message.
                self._functional.check(new_only=False)
                raise
            except DomainOverflow as overflow:
                overflow.domain.widen(overflow.ordinal, overflow.ordinal)
                catalog.relayout()

    def _fit_constants(self) -> None:
        """Make room for the constants that rules put into heads."""
        for layer in self._catalog.lowered.layers:
            for rule in layer.rules:
                domains = self._catalog.domains(rule.head.relation)
                for slot, domain in zip(rule.head.args, domains, strict=True):
                    constant = rule.constants.get(slot or "")
                    if constant is not None:
                        ordinal = self._catalog.codec.encoder(constant.type)(constant.value)
                        domain.widen(ordinal, ordinal)

    def _bootstrap(self) -> None:
        reports = []
        for layer, strategy in self._strategies:
            start = time.perf_counter()
            strategy.bootstrap()
            seconds = time.perf_counter() - start
            rows = sum(self._catalog.relations[name].stored for name in layer.relations)
            reports.append(
                LayerReport(layer.relations, strategy.name, "bootstrap", seconds, rows, 0)
            )
        self.last_epoch = tuple(reports)

    # --- epochs ---

    def apply(self, inserted: Mapping[str, Set[Row]], deleted: Mapping[str, Set[Row]]) -> Effects:
        """Commit one epoch; an exception leaves everything as it was."""
        catalog = self._catalog
        encoded: dict[str, tuple[Array, Array]] = {}
        ignored: dict[str, Ignored] = {}
        given_facts = {name: set(rows) for name, rows in self._given_facts.items()}
        widened = False
        for name in dict.fromkeys([*inserted, *deleted]):
            adds, removes = set(inserted.get(name, ())), set(deleted.get(name, ()))
            stated = self._facts.get(name)
            if stated:
                # Rows that the program states hold in any case; only that they are given changes.
                mine = given_facts.setdefault(name, set())
                ignored[name] = Ignored(
                    frozenset(adds & stated & mine), frozenset((removes & stated) - mine)
                )
                mine |= adds & stated
                mine -= removes & stated
                adds, removes = adds - stated, removes - stated
            encoded[name] = (catalog.encode(name, adds), catalog.encode(name, removes))
            for ordinals in encoded[name]:
                widened |= catalog.fit(name, ordinals)
        if widened:
            catalog.relayout()
        while True:
            try:
                unchanged = self._change_given(encoded)
                self._update()
                self._functional.check(new_only=True)
                effects = self._effects()
            except DomainOverflow as overflow:
                self._abort()
                overflow.domain.widen(overflow.ordinal, overflow.ordinal)
                catalog.relayout()
                continue
            except EvaluationError:
                try:
                    self._functional.check(new_only=False)
                finally:
                    self._abort()
                raise
            except BaseException:
                self._abort()
                raise
            break
        for relation in catalog.everything():
            relation.commit()
        self._given_facts = given_facts
        for name, more in unchanged.items():
            held = ignored.get(name, Ignored())
            ignored[name] = Ignored(held.inserted | more.inserted, held.deleted | more.deleted)
        return Effects(effects, {name: rows for name, rows in ignored.items() if rows})

    def _abort(self) -> None:
        for relation in self._catalog.everything():
            relation.abort()

    def _change_given(self, encoded: Mapping[str, tuple[Array, Array]]) -> dict[str, Ignored]:
        """Write the given rows of the epoch; return those that change nothing."""
        catalog = self._catalog
        ignored = {}
        for name, (adds, removes) in encoded.items():
            relation = catalog.given[name]
            packed_adds, packed_removes = catalog.pack(name, adds), catalog.pack(name, removes)
            present = relation.find(packed_adds).present
            there = relation.find(packed_removes).present
            new = np.ascontiguousarray(packed_adds[:, ~present])
            gone = np.ascontiguousarray(packed_removes[:, there])
            relation.add(new, None, None)
            relation.set_marks(gone, np.full(gone.shape[1], DEAD_NOW, np.int32))
            relation.delta = Delta(new, gone)
            no_adds = catalog.decode(name, np.ascontiguousarray(packed_adds[:, present]))
            no_removes = catalog.decode(name, np.ascontiguousarray(packed_removes[:, ~there]))
            if no_adds or no_removes:
                ignored[name] = Ignored(frozenset(no_adds), frozenset(no_removes))
        return ignored

    def _update(self) -> None:
        reports = []
        for layer, strategy in self._strategies:
            start = time.perf_counter()
            strategy.update()
            seconds = time.perf_counter() - start
            deltas = [self._catalog.relations[name].delta for name in layer.relations]
            inserted = sum(delta.inserted.shape[1] for delta in deltas)
            deleted = sum(delta.deleted.shape[1] for delta in deltas)
            choice = strategy.choice.what
            reports.append(
                LayerReport(layer.relations, strategy.name, choice, seconds, inserted, deleted)
            )
        self.last_epoch = tuple(reports)

    def _effects(self) -> dict[str, NetChange]:
        effects = {}
        for name in self._program.relations:
            delta = self._catalog.relations[name].delta
            if delta:
                effects[name] = NetChange(
                    frozenset(self._catalog.decode(name, delta.inserted)),
                    frozenset(self._catalog.decode(name, delta.deleted)),
                )
        return effects

    # --- reading ---

    def given_count(self, relation: str) -> int:
        """Return how many rows of a relation are given."""
        facts = len(self._facts.get(relation, ()))
        return len(self._catalog.given[relation]) - facts + len(self._given_facts[relation])

    def rows(self, relation: str) -> Set[Row]:
        """Return the committed rows of a relation, given and derived."""
        stored = self._catalog.relations[relation]
        return frozenset(self._catalog.decode(relation, stored.rows(Version.NEW)))

    def state(self, relation: str) -> dict[Row, tuple[int, int]]:
        """Return level and count of each row: what a fresh bootstrap is compared with."""
        stored = self._catalog.relations[relation]
        found: dict[Row, tuple[int, int]] = {}
        for run in stored.alive(Version.NEW):
            rows = self._catalog.decode(relation, run.words)
            marks = [0] * len(rows) if run.marks is None else run.marks.tolist()
            counts = [1] * len(rows) if run.counts is None else run.counts.tolist()
            found.update(zip(rows, zip(marks, counts, strict=True), strict=True))
        return found

    def _check(self) -> None:
        for relation in self._catalog.everything():
            relation._check()
        for _, strategy in self._strategies:
            strategy.check()
