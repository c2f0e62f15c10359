"""The kernel under a database: stored relations, kept up to date stratum by stratum."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.arrow import ordinals_of
from tidelog.engine.changed_rows import ChangedRows
from tidelog.engine.explain_kernel import KernelDetails
from tidelog.engine.functional import FunctionalCheck
from tidelog.engine.given import Given, change_given, find_given, fit_given
from tidelog.engine.protocol import Effects, Ignored, NetChange, Requested
from tidelog.engine.recompute import Recompute
from tidelog.engine.report import EpochReport, LayerReport
from tidelog.engine.stored_reads import StoredReader
from tidelog.errors import EvaluationError
from tidelog.io.columns import CheckedTable
from tidelog.logic.program import Program
from tidelog.maintain.aggregations import class_of
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.counting import Counting
from tidelog.maintain.elastic import Elastic
from tidelog.maintain.interrupts import Interrupts
from tidelog.maintain.joins import DomainOverflow
from tidelog.maintain.limits import Limits
from tidelog.maintain.progress import Meter, Progress
from tidelog.maintain.strategy import Strategy
from tidelog.maintain.unexcused import Unexcused
from tidelog.plan.lower import lower
from tidelog.plan.lowered import Layer
from tidelog.store.codec import Codec
from tidelog.store.versions import Version
from tidelog.values.types import Row

Array = NDArray[np.int64]
_NO_ROWS: set[Row] = set()


class KernelEngine:
    """Keeps all relations of one program."""

    name = "kernel"

    def __init__(
        self,
        program: Program,
        given: Mapping[str, Iterable[Row]],
        progress: Callable[[Progress], object] | None = None,
        *,
        expects_updates: bool = True,
        limits: Limits | None = None,
        restore: Callable[[KernelEngine], None] | None = None,
    ) -> None:
        """Evaluate the program on given rows; or have `restore` put everything in its place."""
        self._program = program
        self._expects_updates = expects_updates
        self.journal: Callable[[Mapping[str, set[Row]]], None] | None = None
        """Called when an epoch is computed and not yet kept; what it raises undoes the epoch.

        It gets the given rows that the program states as well; the rest is in the catalogue.
        """
        self.journal_given: Callable[[Mapping[str, set[Row]]], None] | None = None
        """Called with the same, once in an epoch, when no view has been looked at yet."""
        self.journal_undone: Callable[[], None] | None = None
        """Called when an epoch has failed, and nothing of it is left here."""
        functional = frozenset(r.name for r in program.relations.values() if r.functional)
        self._catalog = Catalog(lower(program), Codec(program.records), functional)
        self._catalog.meter = Meter(progress, limits)
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
        self.last_epoch = EpochReport(0, 0.0, 0, 0, ())
        if restore is None:
            self._load(given)
        else:
            restore(self)

    def _strategy(self, layer: Layer) -> Strategy | None:
        if layer.recompute is not None:
            return Recompute(self._catalog, layer, self._program)
        if layer.aggregation is not None:
            return class_of(layer.aggregation)(self._catalog, layer.aggregation)
        if not layer.rules:
            return None
        if layer.errors_of is not None:
            return Unexcused(self._catalog, layer)
        return (Elastic if layer.recursive else Counting)(self._catalog, layer)

    @property
    def strategies(self) -> list[Strategy]:
        """What keeps the derived relations, from the lowest layer up."""
        return [strategy for _, strategy in self._strategies]

    # --- the first evaluation ---

    def _load(self, given: Mapping[str, Iterable[Row]]) -> None:
        encoded = {}
        given_facts = {}
        for name in self._program.relations:
            rows = given.get(name, ())
            stated = self._facts.get(name)
            given_facts[name] = stated.intersection(rows) if stated else set()
            encoded[name] = self._encode(name, chain(rows, stated) if stated else rows)
        self.load(encoded, given_facts)

    def load(self, encoded: Mapping[str, Array], given_facts: dict[str, set[Row]]) -> None:
        """Evaluate the program on given rows, as columns of ordinals, stated ones among them."""
        start = time.perf_counter()
        catalog = self._catalog
        catalog.meter.start()
        self._given_facts = given_facts
        for name, ordinals in encoded.items():
            catalog.fit(name, ordinals)
        self._fit_constants()
        catalog.relayout()
        for name, ordinals in encoded.items():
            catalog.given[name].replace(catalog.pack(name, ordinals), None, None)
        while True:
            try:
                layers = self._run_layers(first=True)
                self._functional.check(new_only=False)
                for relation in catalog.passed_on:
                    relation.replace_runs([])
                catalog.stamp = object()
                if self._expects_updates:
                    for _, strategy in self._strategies:
                        strategy.prepare()
                count = sum(map(self.given_count, self._program.relations))
                self.last_epoch = EpochReport(0, time.perf_counter() - start, count, 0, layers)
                return
            except EvaluationError:
                # Two values for one key often are the reason: that is the better message.
                self._functional.check(new_only=False)
                raise
            except DomainOverflow as overflow:
                overflow.domain.widen(overflow.ordinal, overflow.ordinal)
                catalog.relayout()

    def _encode(self, name: str, rows: Iterable[Row]) -> Array:
        """Return rows as columns of ordinals, those of a table column by column."""
        if isinstance(rows, CheckedTable):
            return ordinals_of(rows, self._catalog.types(name), self._catalog.codec)
        return self._catalog.encode(name, rows)

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

    def _run_layers(self, *, first: bool = False) -> tuple[LayerReport, ...]:
        """Bootstrap or update all layers; return what they did."""
        meter, layers = self._catalog.meter, []
        stored = self._catalog.relations
        meter.begin()
        end = time.perf_counter()
        for layer, strategy in self._strategies:
            start, before = end, meter.touched
            meter.enter(layer.relations)
            if first:
                self._catalog.stamp = object()  # the layers below have their sizes now
                strategy.bootstrap()
            else:
                strategy.update()
            inserted = deleted = 0
            for name in layer.relations:
                relation = stored[name]
                inserted += relation.stored if first else relation.delta.inserted.shape[1]
                deleted += relation.delta.deleted.shape[1]
            choice, end = strategy.choice, time.perf_counter()
            layers.append(
                LayerReport(
                    layer.relations, strategy.name, choice.what, choice.why, end - start,
                    inserted, deleted, meter.touched - before, choice.levels,
                )
            )  # fmt: skip
        return tuple(layers)

    # --- epochs ---

    def apply(
        self,
        inserted: Mapping[str, Requested],
        deleted: Mapping[str, Requested],
        interrupts: Interrupts | None = None,
    ) -> Effects:
        """Commit one epoch; an exception leaves everything as it was."""
        if interrupts is None:
            with Interrupts() as own:
                return self.apply(inserted, deleted, own)
        start = time.perf_counter()
        catalog = self._catalog
        catalog.meter.interrupts = interrupts
        encoded: dict[str, tuple[Array, Array]] = {}
        ignored: dict[str, Ignored] = {}
        given_facts = self._given_facts
        if self._facts:
            given_facts = {name: set(rows) for name, rows in given_facts.items()}
        tables: set[str] = set()
        came = went = 0  # stated rows that are given from now on, or no more
        for name in {**inserted, **deleted} if deleted else inserted:
            adds, removes = inserted.get(name, _NO_ROWS), deleted.get(name, _NO_ROWS)
            if isinstance(adds, CheckedTable) or isinstance(removes, CheckedTable):
                tables.add(name)
            stated = self._facts.get(name)
            if stated:
                adds, removes = set(adds), set(removes)
                adds, removes = adds - removes, removes - adds
                # Rows that the program states hold in any case; only that they are given changes.
                mine = given_facts.setdefault(name, set())
                ignored[name] = Ignored(
                    frozenset(adds & stated & mine), frozenset((removes & stated) - mine)
                )
                came += len((adds & stated) - mine)
                went += len(removes & stated & mine)
                mine |= adds & stated
                mine -= removes & stated
                adds, removes = adds - stated, removes - stated
            none = catalog.no_ordinals[name]
            encoded[name] = (
                none if adds is _NO_ROWS else self._encode(name, adds),
                none if removes is _NO_ROWS else self._encode(name, removes),
            )
            interrupts.check()
        found, layers, effects = self._keep(encoded, given_facts, tables)
        if ignored or found.ignored:
            for name, more in found.ignored.items():
                held = ignored.get(name, Ignored())
                ignored[name] = Ignored(held.inserted | more.inserted, held.deleted | more.deleted)
            ignored = {name: rows for name, rows in ignored.items() if rows}
        self.last_epoch = EpochReport(
            self.last_epoch.epoch + 1,
            time.perf_counter() - start,
            came + found.inserted,
            went + found.deleted,
            layers,
        )
        return Effects(effects, ignored)

    def change(self, encoded: Mapping[str, tuple[Array, Array]]) -> tuple[LayerReport, ...]:
        """Commit one epoch of given rows, as columns of ordinals, none of which is stated."""
        with Interrupts() as interrupts:
            self._catalog.meter.interrupts = interrupts
            return self._keep(encoded, self._given_facts, told=False)[1]

    def replay(
        self, encoded: Mapping[str, tuple[Array, Array]], given_facts: dict[str, set[Row]]
    ) -> None:
        """Commit given rows that come and go, as columns of ordinals: what a log remembers."""
        meter = self._catalog.meter
        with Interrupts() as interrupts, meter.unlimited():
            meter.interrupts = interrupts
            self._keep(encoded, given_facts, told=False)

    def _keep(
        self,
        encoded: Mapping[str, tuple[Array, Array]],
        given_facts: dict[str, set[Row]],
        tables: Collection[str] = (),
        *,
        told: bool = True,
    ) -> tuple[Given, tuple[LayerReport, ...], dict[str, NetChange]]:
        """Compute an epoch and commit it; return what it wrote, what was done, what changed.

        What changes nothing is `told` to those who ask for it.
        """
        try:
            return self._computed_and_kept(encoded, given_facts, tables, told)
        except BaseException:
            if self.journal_undone is not None:
                self.journal_undone()
            raise

    def _computed_and_kept(
        self,
        encoded: Mapping[str, tuple[Array, Array]],
        given_facts: dict[str, set[Row]],
        tables: Collection[str],
        told: bool,
    ) -> tuple[Given, tuple[LayerReport, ...], dict[str, NetChange]]:
        catalog = self._catalog
        catalog.meter.start()
        journal_given = self.journal_given
        fit_given(catalog, encoded)
        while True:
            try:
                found = find_given(catalog, encoded, tables, told=told)
                if journal_given is not None:
                    journal_given(given_facts)
                    journal_given = None  # once: wider domains change nothing in it
                change_given(catalog, found.places)
                layers = self._run_layers()
                if catalog.checked:
                    self._functional.check(new_only=True)
                effects = self._effects()
                if self.journal is not None:
                    self.journal(given_facts)
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
            if relation.touched:
                relation.commit()
                catalog.note_size(relation)
        self._given_facts = given_facts
        return found, layers, effects

    def _abort(self) -> None:
        for relation in self._catalog.everything():
            relation.abort()

    def _effects(self) -> dict[str, NetChange]:
        effects: dict[str, NetChange] = {}
        catalog = self._catalog
        codec, stored = catalog.codec, catalog.relations
        for name, declared in self._program.relations.items():
            relation = stored[name]
            if relation.touched:
                delta = relation.delta
                if delta.inserted.shape[1] or delta.deleted.shape[1]:
                    effects[name] = ChangedRows(codec, declared, relation)
        return effects

    # --- reading ---

    @property
    def memory(self) -> Mapping[str, int]:
        """The bytes that each relation takes, its own helpers included."""
        catalog = self._catalog
        found = {name: relation.nbytes for name, relation in catalog.relations.items()}
        for name, given in catalog.given.items():
            if given is not catalog.relations[name]:
                found[name] += given.nbytes
        return found

    def details(self) -> KernelDetails:
        """Return what there is to explain: strategies, orders, plans, and what the epoch did."""
        return KernelDetails(self._program, self._catalog, self.last_epoch)

    def given_count(self, relation: str) -> int:
        """Return how many rows of a relation are given."""
        facts = len(self._facts.get(relation, ()))
        return len(self._catalog.given[relation]) - facts + len(self._given_facts[relation])

    def reader(self, relation: str) -> StoredReader:
        """Return the committed rows of a relation, to be asked."""
        return StoredReader(self._catalog, self._program.relations[relation])

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
