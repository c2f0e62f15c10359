"""What the kernel knows for proofs: the levels of rows, and joins that start from one row.

A rule is joined from its head (join/derivations.py), over the relations that are stored, and over
rows below a level if the rule is recursive. The rest of the rule is tested on what the join finds:
negations, aggregates, what only Python can compute, and rows that are not stored.

A layer that is re-evaluated in every epoch keeps neither levels nor its private relations. For a
proof it is evaluated once more (maintain/recompute.py), and stays until the proof is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType

import numpy as np

from tidelog.engine.kernel import KernelEngine
from tidelog.join.derivations import DerivationJoin
from tidelog.kernel.marks import ALIVE
from tidelog.logic import program as p
from tidelog.logic.program import Program
from tidelog.maintain.elastic import Elastic
from tidelog.maintain.recompute import Recompute
from tidelog.maintain.strategy import Strategy
from tidelog.plan.lower import lower_body
from tidelog.plan.lowered import Layer
from tidelog.proof.facts import StateRows
from tidelog.proof.rules import ProofRule, joinable
from tidelog.reference.solve import Assignment
from tidelog.runtime.interrupts import Interrupts
from tidelog.store.catalog import Catalog
from tidelog.store.domain import DomainOverflow
from tidelog.store.run import Words
from tidelog.values.types import Row


class JoinCache:
    """The joins from heads of one program, compiled when they are first needed."""

    def __init__(self, program: Program, engine: KernelEngine) -> None:
        self.program, self.engine = program, engine
        self._joins: dict[object, DerivationJoin] = {}
        self._current: dict[tuple[int, int], tuple[object, DerivationJoin]] = {}

    def join(self, catalog: Catalog, rule: ProofRule, stored: frozenset[str]) -> DerivationJoin:
        """Return the join of a rule; it is planned again when sizes have changed by much."""
        shortcut = (id(catalog), rule.rule.id)
        current = self._current.get(shortcut)
        if current is not None and current[0] is catalog.stamp:
            return current[1]
        found = self._join(catalog, rule, stored)
        self._current[shortcut] = (catalog.stamp, found)
        return found

    def _join(self, catalog: Catalog, rule: ProofRule, stored: frozenset[str]) -> DerivationJoin:
        names = [rule.relation, *(a.relation for a in rule.atoms if a.relation in stored)]
        key = (
            rule.rule.id,
            id(catalog),
            tuple(catalog.relations[name].stored.bit_length() // 4 for name in names),
            tuple(domain.generation for name in names for domain in catalog.domains(name)),
        )
        found = self._joins.get(key)
        if found is None:
            body = lower_body(self.program, joinable(rule, stored))
            found = self._joins[key] = DerivationJoin(catalog, body)
        return found


class StoredRows(StateRows):
    """The committed rows of the kernel. To be used in a `with` statement."""

    def __init__(self, cache: JoinCache) -> None:
        super().__init__(cache.program, cache.engine)
        self._cache = cache
        self._main = cache.engine.catalog
        self._recomputed = {
            name: strategy
            for layer, strategy in cache.engine.layers
            if isinstance(strategy, Recompute)
            for name in layer.relations
        }
        self._evaluated: dict[Recompute, Catalog] = {}
        self._leveled: dict[str, frozenset[str] | None] = {}
        self._stored_in: dict[Catalog, frozenset[str]] = {}
        self._packed: dict[tuple[str, Row], Words | None] = {}
        self._stamp = self._main.stamp
        self._open = ExitStack()

    def __enter__(self) -> StoredRows:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    # --- where rows are ---

    def _catalog(self, relation: str) -> Catalog:
        """Return the catalog in which the rules of a relation are joined."""
        strategy = self._recomputed.get(relation)
        if strategy is None:
            return self._main
        meter = self._main.meter
        while strategy not in self._evaluated:
            with Interrupts() as interrupts:
                meter.interrupts = interrupts
                meter.start()
                try:
                    self._evaluated[strategy] = self._open.enter_context(strategy.evaluated())
                except DomainOverflow as overflow:
                    # A state that was just opened may have no room for values that are not stored.
                    self._open.close()
                    self._evaluated.clear()
                    overflow.domain.widen(overflow.ordinal, overflow.ordinal)
                    self._main.relayout()
        return self._evaluated[strategy]

    def _stored(self, catalog: Catalog) -> frozenset[str]:
        """Return the relations of the program whose rows a catalog has."""
        found = self._stored_in.get(catalog)
        if found is None:
            found = self._stored_in[catalog] = frozenset(
                name
                for name in self.program.relations
                if name in catalog.relations
                and name not in catalog.computed
                and catalog.relations[name] not in catalog.passed_on
            )
        return found

    def _words(self, relation: str, row: Row) -> Words | None:
        """Return a row as it is stored; None if one of its values is in no row."""
        if self._main.stamp is not self._stamp:  # layouts may have changed
            self._packed.clear()
            self._stamp = self._main.stamp
        key = (relation, row)
        if key not in self._packed:
            self._packed[key] = self._pack(relation, row)
        return self._packed[key]

    def _pack(self, relation: str, row: Row) -> Words | None:
        catalog = self._main
        types = catalog.types(relation)
        ordinals = [catalog.codec.find(v, t) for v, t in zip(row, types, strict=True)] or [0]
        domains = catalog.domains(relation)
        for ordinal, domain in zip(ordinals, domains, strict=True):
            if ordinal is None or not domain.covers(ordinal, ordinal):
                return None
        stored = catalog.relations[relation]
        return stored.pack_ordinals(np.array(ordinals, np.int64).reshape(-1, 1))

    def has(self, relation: str, row: Row) -> bool:
        """Return whether a row is in a relation."""
        if relation not in self._stored(self._main):
            return super().has(relation, row)
        words = self._words(relation, row)
        return words is not None and bool(self._main.relations[relation].find(words).present[0])

    def is_given(self, relation: str, row: Row) -> bool:
        """Return whether a transaction has inserted the row."""
        words = self._words(relation, row)
        return words is not None and bool(self._main.given[relation].find(words).present[0])

    # --- levels ---

    def level(self, relation: str, row: Row) -> int | None:
        """Return the level of a row of a recursion; None if levels are not kept."""
        catalog = self._catalog(relation)
        if self._recursion(relation) is None:
            return None
        words = self._words(relation, row)
        if words is None:
            return None
        found = catalog.relations[relation].find(words)
        return int(found.marks[0]) if found.present[0] else None

    def _recursion(self, relation: str) -> frozenset[str] | None:
        """Return the relations of the recursion of which a relation has levels, if it has any."""
        if relation not in self._leveled:
            catalog = self._catalog(relation)
            stratum = next(s for s in self.program.strata if relation in s.relations)
            layers = (
                frozenset(layer.relations)
                for layer, strategy in self._leveled_layers(catalog)
                if isinstance(strategy, Elastic)
            )
            whole = next((names for names in layers if names.issuperset(stratum.relations)), None)
            self._leveled[relation] = whole
        return self._leveled[relation]

    def _leveled_layers(self, catalog: Catalog) -> Iterable[tuple[Layer, Strategy]]:
        """Return the layers of a catalog with their strategies."""
        if catalog is self._main:
            return self._cache.engine.layers
        recompute = next(s for s, found in self._evaluated.items() if found is catalog)
        return recompute.private_layers

    # --- derivations ---

    def derivations(
        self, rule: ProofRule, row: Row, level: int | None = None
    ) -> Iterator[Assignment]:
        """Yield the values of the rule's variables with which it derives a row."""
        catalog = self._catalog(rule.relation)
        words = self._words(rule.relation, row)
        if words is None:  # it is not stored, and has values that are in no stored row
            yield from super().derivations(rule, row)
            return
        stored = self._stored(catalog)
        recursion = self._recursion(rule.relation) or frozenset()
        join = self._cache.join(catalog, rule, stored)
        rest = tuple(goal for goal in rule.goals if not _is_joined(goal, stored))

        def limit(relation: str) -> int:
            return ALIVE if level is None or relation not in recursion else level - 1

        for ordinals in join.run(words, limit):
            known = self._values(join, rule, stored, ordinals)
            for found, failure in self.solver.solutions(rest, known):
                if failure is None:
                    yield found

    def _values(
        self, join: DerivationJoin, rule: ProofRule, stored: frozenset[str], ordinals: list[int]
    ) -> Assignment:
        """Return the values of variables in a derivation that the join has found."""
        values = {
            slot: decode(ordinal)
            for slot, decode, ordinal in zip(join.slots, join.decoders, ordinals, strict=True)
        }
        known = {slot: value for slot, value in values.items() if slot[0] != "%"}
        patterns = [rule.pattern, *(a.args for a in rule.atoms if a.relation in stored)]
        for args, atom in zip(patterns, join.atoms, strict=True):
            for arg, slot in zip(args, atom.args, strict=False):
                if isinstance(arg, p.MakeRecord):
                    known = next(self.solver.matched((arg,), (values[str(slot)],), known))
        return known


def _is_joined(goal: p.Literal, stored: frozenset[str]) -> bool:
    """Return whether the join has decided a goal: a positive atom of a stored relation."""
    return isinstance(goal, p.Atom) and not goal.negated and goal.relation in stored
