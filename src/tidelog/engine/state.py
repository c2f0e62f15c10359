"""The state of an engine, as persistence and shards see it.

`EngineState` captures all that is stored for a snapshot, restores it from one, and returns what the
epoch under way changes. A snapshot has the domains, all runs in all orders, the dictionaries, and
the statistics of the strategies. Strategies rebuild everything else from the restored relations
(`Strategy.restored`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tidelog.durable.dictionaries import pieces
from tidelog.durable.dictionaries import restore as restore_entries
from tidelog.durable.epochs import PackedChange, Role
from tidelog.durable.extents import Arrays, Extent
from tidelog.durable.saved import (
    RunInFiles,
    SavedEntries,
    SavedRelation,
    SavedRun,
    SavedSnapshot,
    SumsInFiles,
)
from tidelog.durable.snapshot import LARGE, Image
from tidelog.io.columns import CheckedTable
from tidelog.logic.program import Program
from tidelog.logic.strategies import STRATEGIES
from tidelog.maintain.strategy import Strategy
from tidelog.plan.lowered import Layer
from tidelog.store.catalog import Catalog
from tidelog.store.codec import Codec
from tidelog.store.domain import Domain
from tidelog.store.kept_items import Pieces
from tidelog.store.lazy_run import LazyRun
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run
from tidelog.values.types import Kind, Row, Type

Array = NDArray[np.int64]


class OtherShapeError(Exception):
    """The snapshot stores the program's relations differently; its text says why.

    The program has to be re-evaluated on the given rows. Nothing was restored.
    """

    def __init__(
        self, why: str = "this version of Tidelog stores the relations in another way"
    ) -> None:
        super().__init__(why)


def strategies_of(saved: SavedSnapshot, program: Program) -> dict[str, str]:
    """Return how the relations that rules derive were maintained when a snapshot was written.

    An engine for which these are forced can restore it, whatever was forced then.
    """
    return {
        name: strategy
        for names, strategy, _ in saved.statistics
        for name in names
        if name in program.derived and strategy in STRATEGIES
    }


class EngineState:
    """Captures and restores what an engine stores. Only for use between epochs, unless noted."""

    def __init__(
        self, program: Program, catalog: Catalog, strategies: Sequence[tuple[Layer, Strategy]]
    ) -> None:
        self._program, self._catalog, self._strategies = program, catalog, strategies
        self._names: Mapping[str, str] = {}

    def now_of(
        self,
        program: Program,
        strategies: Sequence[tuple[Layer, Strategy]],
        names: Mapping[str, str],
    ) -> None:
        """Follow a change of program.

        `names` has, for relations with another name than the program alone would give them, that
        name. Snapshots use it, so that the program's text is enough to restore them.
        """
        self._program, self._strategies, self._names = program, strategies, names

    @property
    def codec(self) -> Codec:
        """The dictionaries, and how values become ordinals."""
        return self._catalog.codec

    # --- snapshots ---

    def capture(self, epoch: int, *, use_files: bool = False) -> Image:
        """Return an image of everything stored; it stays valid while epochs go on.

        Call `release` when it is written. With `use_files` large runs that have not been read since
        the database was opened are captured as the files they are in.
        """
        catalog, least = self._catalog, LARGE if use_files else None
        numbers = _numbered_domains(catalog)
        relations = []
        for name, is_given, stored in _everything(catalog):
            captured = stored.capture(in_files_from=least)
            domains = tuple(numbers[domain] for domain in stored.domains)
            saved_as = self._names.get(name, name)
            relations.append(
                SavedRelation(saved_as, is_given, domains, captured.orders, captured.attached)
            )
        return Image(
            epoch,
            [(domain.bias, domain.bits) for domain in numbers],
            relations,
            [(type_, entries, len(entries)) for type_, entries in catalog.codec.dictionaries()],
            [
                (
                    tuple(self._names.get(n, n) for n in layer.relations),
                    s.name,
                    dict(s.statistics()),
                )
                for layer, s in self._strategies
            ],
        )

    def release(self) -> None:
        """Stop noting changes for an image."""
        for relation in self._catalog.everything():
            relation.release()

    def compact(self) -> None:
        """Merge all runs of every order into one, without dead rows."""
        for relation in self._catalog.everything():
            relation.compact()

    def keep_files(self, names: Collection[str]) -> None:
        """Forget that runs are in files, except in those named: the others may be removed."""
        for relation in self._catalog.everything():
            for run in relation.runs():
                if isinstance(run.saved, Extent) and run.saved.file not in names:
                    run.saved = None

    def restore(self, saved: SavedSnapshot, arrays: Arrays) -> None:
        """Restore all relations from a snapshot. Nothing is stored so far.

        Raises OtherShapeError if they were stored differently.
        """
        strategies = [(layer.relations, strategy.name) for layer, strategy in self._strategies]
        if strategies != [(names, strategy) for names, strategy, _ in saved.statistics]:
            own = {n: s for names, s in strategies for n in names if s in STRATEGIES}
            others = {
                n: s for n, s in strategies_of(saved, self._program).items() if own.get(n, s) != s
            }
            if others:
                name, strategy = next(iter(others.items()))
                raise OtherShapeError(
                    f"`{name}` is maintained by `{own[name]}` now, and no longer by `{strategy}`"
                )
            raise OtherShapeError
        restore_relations(self._catalog, saved, arrays)

    def resume(self, saved: SavedSnapshot) -> None:
        """Make restored strategies ready for updates.

        Joins are planned when they are first needed: the orders that they read exist, and the
        statistics of columns would read relations that may never be used.
        """
        for _, strategy in self._strategies:
            strategy.restored()
        for (_, strategy), (_, _, own) in zip(self._strategies, saved.statistics, strict=True):
            strategy.restore_statistics(own)

    def strategies(self) -> dict[str, str]:
        """Return how the relations that rules derive are maintained."""
        return {
            name: strategy.name
            for layer, strategy in self._strategies
            for name in layer.relations
            if name in self._program.derived and strategy.name in STRATEGIES
        }

    # --- the epoch under way ---

    def given_changes(self) -> list[PackedChange]:
        """Return the net changes of given rows."""
        catalog = self._catalog
        changes = []
        for name in self._program.relations:
            given = catalog.given[name]
            if given.touched and given.delta:
                role = Role.BOTH if given is catalog.relations[name] else Role.GIVEN
                changes.append(_packed(name, role, given))
        return changes

    def view_changes(self) -> list[PackedChange]:
        """Return the net changes of derived relations, when they are computed."""
        catalog = self._catalog
        return [
            _packed(name, Role.VIEW, relation)
            for name in self._program.relations
            if (relation := catalog.relations[name]).touched
            and relation.delta
            and relation is not catalog.given[name]
        ]

    def read_for_commit(self) -> None:
        """Read from files what the commit may need; an error here can still abort the epoch."""
        for relation in self._catalog.everything():
            if relation.touched:
                relation.read_for_commit()

    # --- rows ---

    def given_rows(self, name: str) -> list[Row]:
        """Return the given rows of a relation."""
        return self._catalog.decode_ordinals(name, self.given_ordinals(name))

    def given_table(self, name: str) -> CheckedTable:
        """Return the given rows of a relation of scalars, in columns."""
        import pyarrow as pa

        from tidelog.engine.arrow import arrow_column

        ordinals = self.given_ordinals(name)
        columns = {
            column.name: arrow_column(ordinals[i], column.type, self.codec)
            for i, column in enumerate(self._program.relations[name].columns)
        }
        return CheckedTable(pa.table(columns))

    def given_ordinals(self, name: str) -> Array:
        """Return the given rows of a relation, as columns of ordinals."""
        stored = self._catalog.given[name]
        return stored.ordinals(stored.rows())


def _packed(name: str, role: Role, relation: StoredRelation) -> PackedChange:
    delta = relation.delta
    return PackedChange(name, role, *relation.codes, delta.inserted, delta.deleted)


def _everything(catalog: Catalog) -> Iterator[tuple[str, bool, StoredRelation]]:
    """Yield name, whether these are only the given rows, and relation."""
    for name, relation in catalog.relations.items():
        if name in catalog.aliases:
            continue
        yield name, False, relation
        if catalog.given[name] is not relation:
            yield name, True, catalog.given[name]


def _numbered_domains(catalog: Catalog) -> dict[Domain, int]:
    numbers: dict[Domain, int] = {}
    for relation in catalog.relations.values():
        for domain in relation.domains:
            numbers.setdefault(domain, len(numbers))
    return numbers


# --- restoring a catalog ----------------------------------------------------------------------


def restore_relations(
    catalog: Catalog, saved: SavedSnapshot, arrays: Arrays, *, rows_only: bool = False
) -> None:
    """Restore the relations of an empty catalog; with `rows_only` views in one order, for reading.

    Of views whose rows are not stored these are the given rows.

    Raises OtherShapeError, before anything is changed, if they were stored differently.
    """
    _restore_domains(catalog, saved)
    arrays.hold(saved.files())
    _restore_dictionaries(catalog.codec, saved, arrays)
    for relation in saved.relations:
        if rows_only and (
            "@" in relation.name or relation.is_given == catalog.is_stored(relation.name)
        ):
            continue
        given = catalog.given[relation.name]
        stored = given if relation.is_given else catalog.relations[relation.name]
        identity = stored.primary.layout.order
        stored.install(
            {
                order: [_run(run, arrays, rows_only) for run in runs]
                for order, runs in relation.orders.items()
                if order == identity or not rows_only
            },
            () if rows_only else [SumsInFiles(sums, arrays) for sums in relation.sums],
        )
    catalog.stamp = object()


def _restore_domains(catalog: Catalog, saved: SavedSnapshot) -> None:
    """Restore the domains; raise OtherShapeError if columns share them differently.

    Columns may have shared them in rules that the program has no longer: then they still do.
    """
    wanted = {(name, is_given): stored for name, is_given, stored in _everything(catalog)}
    if [(r.name, r.is_given) for r in saved.relations] != list(wanted):
        raise OtherShapeError
    numbered: dict[int, Domain] = {}
    for relation in saved.relations:
        stored = wanted[relation.name, relation.is_given]
        if len(relation.domains) != len(stored.domains):
            raise OtherShapeError
        for number, domain in zip(relation.domains, stored.domains, strict=True):
            numbered.setdefault(number, domain).unite(domain)
        counted = stored.counted and not relation.is_given
        primary = relation.orders.get(stored.primary.layout.order)
        if primary is None or any((run.counts is not None) != counted for run in primary):
            raise OtherShapeError
    if len(set(numbered.values())) != len(numbered):
        raise OtherShapeError  # columns share a domain that they did not share
    for number, domain in numbered.items():
        domain.bias, domain.bits = saved.domains[number]
        domain.generation += 1
    catalog.relayout()


def _restore_dictionaries(codec: Codec, saved: SavedSnapshot, arrays: Arrays) -> None:
    """Restore the dictionaries: sets now, symbols and records when they are first needed."""
    parts: dict[Type, list[SavedEntries]] = {}
    for part in saved.dictionaries:
        if part.type.kind is Kind.SET:
            restore_entries(codec, part.read(arrays))
        elif part.count:
            parts.setdefault(part.type, []).append(part)
    for type_, held in parts.items():
        size = sum(part.count for part in held)
        codec.dictionary(type_).keep(size, partial(_read_pieces, held, arrays))


def _read_pieces(parts: Sequence[SavedEntries], arrays: Arrays) -> Pieces:
    return pieces([part.read(arrays) for part in parts])


def _run(saved: SavedRun, arrays: Arrays, rows_only: bool) -> Run:
    return LazyRun(saved.words.shape[1], saved.dead, RunInFiles(saved, arrays, rows_only))
