"""The kernel engine: stored relations, maintained layer by layer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
from numpy.typing import NDArray

from tidelog.durable.epochs import NewProgram
from tidelog.durable.extents import Arrays
from tidelog.durable.saved import SavedSnapshot
from tidelog.engine.arrow import ordinals_of
from tidelog.engine.changed_rows import ChangedRows
from tidelog.engine.demand_reads import DemandReader
from tidelog.engine.fact_files import encoded_files
from tidelog.engine.functional import FunctionalCheck
from tidelog.engine.given import Encoded, Given, change_given, find_given, fit_given
from tidelog.engine.probe import Probe, ProbedError
from tidelog.engine.program_change import (
    ProgramChange,
    functional_relations,
    recomputed,
)
from tidelog.engine.protocol import Answer, Effects, EpochObserver, NetChange, NoObserver, Requested
from tidelog.engine.queries import Queries
from tidelog.engine.report import EpochReport, LayerReport
from tidelog.engine.retention import RetainedRelations
from tidelog.engine.short_epochs import ShortEpoch, ShortEpochs
from tidelog.engine.state import EngineState
from tidelog.engine.stored_reads import StoredReader
from tidelog.engine.strategy_choice import strategy_of
from tidelog.engine.tree_reads import TreeReader, committed_rows, relation_reader
from tidelog.errors import EvaluationError
from tidelog.io.columns import CheckedTable
from tidelog.io.facts import FactsFile
from tidelog.join.joins import LARGE_CHANGE
from tidelog.kernel.compile_all import ensure_compiled
from tidelog.logic.program import Program
from tidelog.logic.rule_changes import check_change
from tidelog.maintain.changed_layers import NewLayer
from tidelog.maintain.recompute import Recompute
from tidelog.maintain.strategy import Strategy
from tidelog.maintain.virtual_layers import VirtualLayers
from tidelog.plan.demand import bound_by_recursion
from tidelog.plan.forced import NOTHING_FORCED
from tidelog.plan.lowered import Layer
from tidelog.plan.planned import planned
from tidelog.runtime.interrupts import Interrupts
from tidelog.runtime.limits import Limits
from tidelog.runtime.progress import Meter, Progress
from tidelog.runtime.workers import Workers
from tidelog.store.catalog import Catalog
from tidelog.store.codec import Codec
from tidelog.store.domain import DomainOverflow
from tidelog.store.versions import Version
from tidelog.values.types import Row

Array = NDArray[np.int64]
_NO_ROWS: set[Row] = set()


def _is_load(found: Given, layers: Sequence[LayerReport]) -> bool:
    """Return whether relations may be so much larger now that updates need other orders."""
    return found.inserted >= LARGE_CHANGE or "bootstrap" in [layer.choice for layer in layers]


class KernelEngine:
    """Stores all relations of one program, and maintains those that rules derive."""

    name = "kernel"

    def __init__(
        self,
        program: Program,
        given: Mapping[str, Iterable[Row]] | None,
        progress: Callable[[Progress], object] | None = None,
        *,
        expects_updates: bool = True,
        limits: Limits | None = None,
        strategies: Mapping[str, str] = NOTHING_FORCED,
        codec: Codec | None = None,
        threads: int = 1,
    ) -> None:
        """Evaluate the program on given rows; None leaves the engine `empty`.

        `strategies` has strategies that are forced, by relation. Large joins run on `threads`.
        """
        ensure_compiled()
        self._expects_updates = expects_updates
        self._change: ProgramChange | None = None
        self.observer: EpochObserver = NoObserver()
        """It is called at the steps of each epoch."""
        self._workers = Workers(threads)
        self._plan(program, strategies, codec, Meter(progress, limits))
        if given is not None:
            self.load(given)

    def _plan(
        self, program: Program, strategies: Mapping[str, str], codec: Codec | None, meter: Meter
    ) -> None:
        """Plan a program, and make its relations, without rows."""
        self._program, self.forced = program, strategies
        codec = Codec(program.records) if codec is None else codec
        self._catalog = Catalog(planned(program, strategies), codec, functional_relations(program))
        self._catalog.meter, self._catalog.workers = meter, self._workers
        virtual = self._virtual = VirtualLayers(self._catalog, self._catalog.lowered)
        self._strategies = [
            (layer, strategy)
            for layer in self._catalog.lowered.layers
            if (
                strategy := strategy_of(self._catalog, layer)
                if layer.virtual is None
                else virtual.strategy(layer)
            )
            is not None
        ]
        self._retained = RetainedRelations(program, self._catalog)
        self._functional = FunctionalCheck(program, self._catalog, self._recomputed)
        self.state = EngineState(program, self._catalog, self._strategies)
        """Captures and restores what is stored."""
        self._names: Mapping[str, str] = {}
        self.last_epoch = EpochReport(0, 0.0, 0, 0, ())
        self.short_epochs = ShortEpochs(self._catalog, self._strategies)
        """Runs the epochs of few rows, where it can."""
        self._queries: Queries | None = None
        self._on_demand: Collection[str] = virtual.names
        """The relations that are computed when they are read."""

    def restart(self, program: Program, strategies: Mapping[str, str]) -> None:
        """Become an empty engine of another program."""
        self._plan(program, strategies, None, self._catalog.meter)

    @classmethod
    def empty(
        cls,
        program: Program,
        progress: Callable[[Progress], object] | None = None,
        *,
        expects_updates: bool = True,
        limits: Limits | None = None,
        strategies: Mapping[str, str] = NOTHING_FORCED,
        codec: Codec | None = None,
        threads: int = 1,
    ) -> KernelEngine:
        """Return an engine that has evaluated nothing: `load` or `restore` has to follow.

        With `codec` it shares the dictionaries of another engine.
        """
        return cls(
            program,
            None,
            progress,
            expects_updates=expects_updates,
            limits=limits,
            strategies=strategies,
            codec=codec,
            threads=threads,
        )

    @property
    def program(self) -> Program:
        """The program that is maintained; in an epoch that changes it, the new one."""
        return self._program

    @property
    def new_program(self) -> NewProgram | None:
        """The program from the epoch under way on, if that changes it: for the log."""
        if self._change is None:
            return None
        program = self._program
        declared = tuple(name for name in program.relations if name in self._change.new)
        return NewProgram(program.text, program.name, self.state.strategies(), declared)

    @property
    def catalog(self) -> Catalog:
        """All stored relations, their domains and the codec."""
        return self._catalog

    @property
    def layers(self) -> Sequence[tuple[Layer, Strategy]]:
        """The layers of derived relations with their strategies, from the lowest up."""
        return self._strategies

    @property
    def strategies(self) -> list[Strategy]:
        """The strategies that maintain derived relations, from the lowest layer up."""
        return [strategy for _, strategy in self._strategies]

    @property
    def last_epoch(self) -> EpochReport:
        """What the last committed epoch did."""
        short = self._last_short
        if short is not None:  # nobody has looked at it yet
            epoch, layers = short
            self.last_epoch = self._last_epoch._replace(layers=epoch.layers(layers))
        return self._last_epoch

    @last_epoch.setter
    def last_epoch(self, report: EpochReport) -> None:
        self._last_epoch = report
        self._last_short: tuple[ShortEpoch, Sequence[tuple[Layer, Strategy]]] | None = None

    # --- the first evaluation ---

    def load(self, given: Mapping[str, Iterable[Row]]) -> None:
        """Evaluate the program on given rows."""
        rows = self._encode_all(given)
        rows, late = self._retained.loaded(rows)
        self.load_ordinals(rows)
        self.last_epoch = self.last_epoch._replace(late=late)

    def load_facts(self, given: Mapping[str, Iterable[Row]]) -> None:
        """Store given rows, and evaluate nothing: what is read is computed on demand.

        A recursion that binds the groups of its own aggregates needs an evaluation, so then the
        whole program is evaluated.
        """
        if bound_by_recursion(self._catalog.lowered):
            self.load(given)
            return
        start = time.perf_counter()
        rows = self._encode_all(given)
        rows, late = self._retained.loaded(rows)
        self._store_given(rows)
        self._catalog.stamp = object()
        self._on_demand = self._catalog.derived
        count = sum(map(self.given_count, self._program.relations))
        self.last_epoch = EpochReport(0, time.perf_counter() - start, count, 0, (), late)

    def load_ordinals(self, given: Mapping[str, Array]) -> None:
        """Evaluate the program on given rows, as columns of ordinals."""
        with self._workers.active():
            self._load_ordinals(given)

    def _load_ordinals(self, given: Mapping[str, Array]) -> None:
        start = time.perf_counter()
        catalog = self._catalog
        self._store_given(given)
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
                    if not self._virtual.names:
                        self.short_epochs.prepare()
                count = sum(map(self.given_count, self._program.relations))
                self.last_epoch = EpochReport(0, time.perf_counter() - start, count, 0, layers)
                return
            except EvaluationError:
                # Two values for one key are often the cause. Then that error says more.
                self._functional.check(new_only=False)
                raise
            except DomainOverflow as overflow:
                overflow.domain.widen(overflow.ordinal, overflow.ordinal)
                catalog.relayout()

    def _store_given(self, given: Mapping[str, Array]) -> None:
        """Store the given rows and the facts of the program."""
        catalog = self._catalog
        catalog.meter.start()
        none = catalog.no_ordinals
        encoded = {name: given.get(name, none[name]) for name in self._program.relations}
        for name, rows in catalog.lowered.facts.items():
            encoded[name] = catalog.encode(name, rows)
        for name, ordinals in encoded.items():
            catalog.fit(name, ordinals)
        self._fit_constants()
        catalog.relayout()
        for name, ordinals in encoded.items():
            catalog.given[name].replace(catalog.pack(name, ordinals), None, None)

    def _encode_all(self, given: Mapping[str, Iterable[Row]]) -> dict[str, Array]:
        """Return the given rows of each relation as columns of ordinals."""
        files = {
            name: rows
            for name in self._program.relations
            if isinstance(rows := given.get(name), FactsFile)
        }
        encoded = encoded_files(files, self._catalog.codec, self._workers) if files else {}
        for name in self._program.relations:
            if name not in encoded:
                rows = given.get(name, ())
                if isinstance(rows, FactsFile):  # not a plain one
                    rows = rows.read()
                encoded[name] = self._encode(name, rows)
        return encoded

    def _encode(self, name: str, rows: Iterable[Row]) -> Array:
        """Return rows as columns of ordinals, those of a table column by column."""
        if isinstance(rows, CheckedTable):
            return ordinals_of(rows, self._catalog.types(name), self._catalog.codec)
        return self._catalog.encode(name, rows)

    def _fit_constants(self) -> None:
        """Make room for the constants that rules put into heads."""
        for layer in self._catalog.lowered.every_layer():
            for rule in layer.rules:
                domains = self._catalog.domains(rule.head.relation)
                for slot, domain in zip(rule.head.args, domains, strict=True):
                    constant = rule.constants.get(slot or "")
                    if constant is not None:
                        ordinal = self._catalog.codec.encoder(constant.type)(constant.value)
                        domain.widen(ordinal, ordinal)

    def _recomputed(self, name: str) -> Recompute | None:
        return recomputed(self._strategies, name)

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
                for name, delta in strategy.update().items():
                    stored[name].record(delta)
            inserted = deleted = 0
            for name in layer.relations:
                relation = stored[name]
                is_new = first or isinstance(strategy, NewLayer)
                added, removed = relation.delta.sizes
                inserted += relation.stored if is_new else added
                deleted += removed
            choice, end = strategy.choice, time.perf_counter()
            layers.append(
                LayerReport(
                    layer.relations, strategy.name, choice.what, choice.why, end - start,
                    inserted, deleted, meter.touched - before, choice.levels,
                    choice.propagated, choice.filtered, choice.disqualified, choice.work,
                )
            )  # fmt: skip
        return tuple(layers)

    # --- epochs ---

    def apply(
        self,
        inserted: Mapping[str, Requested],
        deleted: Mapping[str, Requested],
        interrupts: Interrupts | None = None,
        program: Program | None = None,
    ) -> Effects:
        """Commit one epoch; an exception leaves everything as it was.

        It can change the program: the net changes include those that the new rules lead to.
        """
        if interrupts is None:
            with Interrupts() as own:
                return self.apply(inserted, deleted, own, program)
        if program is not None:
            with self._changing(program):
                return self.apply(inserted, deleted, interrupts)
        start = time.perf_counter()
        catalog = self._catalog
        catalog.meter.interrupts = interrupts
        encoded: dict[str, tuple[Array, Array]] = {}
        tables: set[str] = set()
        for name in {**inserted, **deleted} if deleted else inserted:
            adds, removes = inserted.get(name, _NO_ROWS), deleted.get(name, _NO_ROWS)
            if isinstance(adds, CheckedTable) or isinstance(removes, CheckedTable):
                tables.add(name)
                if name in self._retained and adds is not _NO_ROWS and removes is not _NO_ROWS:
                    # A row in both must not move time on.
                    adds, removes = set(adds) - set(removes), set(removes) - set(adds)
            none = catalog.no_ordinals[name]
            encoded[name] = (
                none if adds is _NO_ROWS else self._encode(name, adds),
                none if removes is _NO_ROWS else self._encode(name, removes),
            )
            interrupts.check()
        changes: Encoded = encoded
        late: Mapping[str, int] = {}
        if self._retained:
            changes, late = self._retained.epoch(encoded)
        short = self._run_short(changes, tables)
        if short is not None:
            epoch, seconds = self._last_epoch.epoch + 1, time.perf_counter() - start
            self.last_epoch = EpochReport(epoch, seconds, *short.given, (), late)
            self._last_short = short, self._strategies
            return Effects(self._short_effects(short), short.ignored, late)
        found, layers, effects = self._run_epoch(changes, tables)
        self.last_epoch = EpochReport(
            self._last_epoch.epoch + 1,
            time.perf_counter() - start,
            found.inserted,
            found.deleted,
            layers,
            late,
        )
        return Effects(effects, found.ignored, late)

    def _run_short(
        self, encoded: Encoded, tables: Collection[str], *, report_ignored: bool = True
    ) -> ShortEpoch | None:
        """Run an epoch of few rows in one call, and commit it; None if that is impossible."""
        if tables or self._virtual.names or self._change is not None:
            return None
        try:
            return self.short_epochs.run(encoded, self.observer, report_ignored=report_ignored)
        except BaseException:
            self.observer.undone()
            raise

    def _short_effects(self, short: ShortEpoch) -> dict[str, NetChange]:
        codec, declared = self._catalog.codec, self._program.relations
        return {
            name: ChangedRows(codec, declared[name], *change)
            for name, change in short.changed.items()
            if name in declared
        }

    @contextmanager
    def _changing(
        self, program: Program, strategies: Mapping[str, str] | None = None
    ) -> Iterator[None]:
        """Let the epoch in this block change the program; an exception puts the old one back.

        `strategies` are forced in place of those that the caller of the engine asks for.
        """
        old, catalog = self._program, self._catalog
        check_change(old, program, {name: self.given_count(name) for name in old.relations})
        if strategies is None:
            strategies = {n: s for n, s in self.forced.items() if n in program.relations}
        lowered = planned(program, strategies)
        catalog.codec.add_records(program.records)
        before = (old, self._strategies, self._retained, self._functional, self._virtual)
        change = ProgramChange(
            catalog, self._strategies, lowered, program, strategy_of, self._virtual
        )
        try:
            self._change = change
            self._program, self._strategies, self._virtual = program, change.layers, change.virtual
            self._retained = RetainedRelations(program, catalog)
            self._functional = FunctionalCheck(program, catalog, self._recomputed)
            self.state.now_of(program, change.layers, {})
            change.fit()
            self._fit_constants()
            catalog.relayout()
            yield
        except BaseException:
            self._abort()
            change.undo()
            (
                self._program, self._strategies, self._retained, self._functional, self._virtual,
            ) = before  # fmt: skip
            self.state.now_of(old, self._strategies, self._names)
            raise
        finally:
            self._change, self._queries = None, None
        change.finish()
        self._strategies, self._names = change.final, change.names
        self._virtual = change.final_virtual
        self._on_demand = self._virtual.names
        self.short_epochs = ShortEpochs(catalog, self._strategies)
        self.state.now_of(program, self._strategies, self._names)

    def apply_ordinals(self, encoded: Encoded) -> tuple[LayerReport, ...]:
        """Commit one epoch of given rows, as columns of ordinals; return what each layer did."""
        with Interrupts() as interrupts:
            self._catalog.meter.interrupts = interrupts
            return self._run_epoch(encoded, report_ignored=False)[1]

    def probe(self, given: Mapping[str, Array], views: Collection[str]) -> dict[str, Array]:
        """Return the rows that given rows would add to views, all as columns of ordinals.

        It is an epoch that is computed and then undone: nothing is committed, and no observer sees
        it. So rules can answer a question at the cost of an epoch of that size.
        """
        catalog, observer = self._catalog, self.observer
        self.observer = found = Probe(catalog, views)
        try:
            with Interrupts() as interrupts:
                catalog.meter.interrupts = interrupts
                encoded = {name: (rows, catalog.no_ordinals[name]) for name, rows in given.items()}
                self._run_epoch(encoded, report_ignored=False)
        except ProbedError:
            return found.rows
        finally:
            self.observer = observer
        raise AssertionError("a probe was committed")

    def restore(self, saved: SavedSnapshot, arrays: Arrays) -> None:
        """Restore all relations from a snapshot; `resume` has to follow.

        Raises OtherShapeError if they were stored differently; the engine is empty then.
        """
        self.state.restore(saved, arrays)
        self.last_epoch = EpochReport(saved.epoch, 0.0, 0, 0, ())

    def resume(self, saved: SavedSnapshot) -> None:
        """Make a restored engine ready for updates, when the dictionaries are complete."""
        self.state.resume(saved)

    def replay(self, encoded: Encoded, epoch: int, new: NewProgram | None = None) -> None:
        """Commit the given rows of a log, as columns of ordinals, up to an epoch.

        The epoch may have changed the program.
        """
        meter = self._catalog.meter
        changing: AbstractContextManager[None] = nullcontext()
        if new is not None:
            changing = self._changing(Program.parse(new.text, new.name), new.strategies)
        with Interrupts() as interrupts, meter.unlimited():
            meter.interrupts = interrupts
            with changing:
                if self._run_short(encoded, (), report_ignored=False) is None:
                    self._run_epoch(encoded, report_ignored=False)
        self.last_epoch = self.last_epoch._replace(epoch=epoch)

    def _run_epoch(
        self, encoded: Encoded, tables: Collection[str] = (), *, report_ignored: bool = True
    ) -> tuple[Given, tuple[LayerReport, ...], dict[str, NetChange]]:
        """Compute an epoch and commit it; return given rows, layers and net changes.

        With `report_ignored` the given rows include those that change nothing.
        """
        try:
            return self._compute_and_commit(encoded, tables, report_ignored)
        except BaseException:
            self.observer.undone()
            raise

    def _compute_and_commit(
        self, encoded: Encoded, tables: Collection[str], report_ignored: bool
    ) -> tuple[Given, tuple[LayerReport, ...], dict[str, NetChange]]:
        catalog = self._catalog
        catalog.watch.changed()
        catalog.meter.start()
        is_announced = False
        fit_given(catalog, encoded)
        while True:
            try:
                found = find_given(catalog, encoded, tables, report_ignored=report_ignored)
                if not is_announced:
                    self.observer.given()
                    is_announced = True  # a wider domain does not change the given rows
                change_given(catalog, found.places)
                if self._change is not None:
                    self._change.start()
                layers = self._run_layers()
                if self._change is not None:
                    self._change.complete()
                if catalog.checked:
                    self._functional.check(new_only=True)
                effects = self._effects()
                self.observer.computed()
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
        for prover in self._virtual.provers:
            prover.clear()
        for relation in catalog.everything():
            if relation.touched:
                relation.commit()
                catalog.note_size(relation)
        if self._change is None and _is_load(found, layers):
            for _, strategy in self._strategies:
                strategy.loaded()
            if not self._virtual.names:
                self.short_epochs.prepare()
        return found, layers, effects

    def _abort(self) -> None:
        for prover in self._virtual.provers:
            prover.clear()
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
                if delta:
                    effects[name] = ChangedRows(codec, declared, relation, delta)
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

    def given_count(self, relation: str) -> int:
        """Return how many rows of a relation are given."""
        return len(self._catalog.given[relation])

    def is_given(self, relation: str, row: Row) -> bool:
        """Return whether a transaction has inserted a row."""
        given = self._catalog.given[relation]
        return row in StoredReader(self._catalog.codec, given, self._program.relations[relation])

    def reader(self, relation: str) -> StoredReader | TreeReader | DemandReader:
        """Return a reader for the committed rows of a relation."""
        if relation in self._on_demand:
            declared = self._program.relations[relation]
            return DemandReader(self.queries, declared, self._program.records)
        return relation_reader(self._catalog, self._program.relations[relation])

    def query(self, text: str) -> Answer:
        """Return the answers to a query; relations that are not stored are computed on demand."""
        with Interrupts() as interrupts:
            self._catalog.meter.interrupts = interrupts
            self._catalog.meter.start()
            return self.queries.ask(text)

    @property
    def queries(self) -> Queries:
        """Answers questions about the committed rows."""
        if self._queries is None:
            computed = {*self._on_demand, *self._catalog.computed}
            self._queries = Queries(self._program, self._catalog, lambda n: n not in computed)
        return self._queries

    def rows(self, relation: str) -> Set[Row]:
        """Return the committed rows of a relation, given and derived."""
        words = committed_rows(self._catalog, relation)
        return frozenset(self._catalog.decode(relation, words))

    def levels_and_counts(self, relation: str) -> dict[Row, tuple[int, int]]:
        """Return level and count of each row: what a fresh bootstrap is compared with."""
        stored = self._catalog.relations[relation]
        found: dict[Row, tuple[int, int]] = {}
        if relation in self._catalog.computed:
            return dict.fromkeys(self.rows(relation), (0, 1))
        for run in stored.alive(Version.NEW):
            rows = self._catalog.decode(relation, run.words)
            marks = [0] * len(rows) if run.marks is None else run.marks.tolist()
            counts = [1] * len(rows) if run.counts is None else run.counts.tolist()
            found.update(zip(rows, zip(marks, counts, strict=True), strict=True))
        return found

    def check(self) -> None:
        """Assert the invariants of all that is stored. A debugging aid, and slow."""
        for relation in self._catalog.everything():
            relation.check()
        while True:
            try:
                for _, strategy in self._strategies:
                    strategy.check()
                return
            except DomainOverflow as overflow:
                # A recursion that is re-evaluated has values that are not stored, so a state that
                # was just opened may have no room for them.
                overflow.domain.widen(overflow.ordinal, overflow.ordinal)
                self._catalog.relayout()
