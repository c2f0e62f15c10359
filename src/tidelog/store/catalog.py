"""The stored relations of a database, and the domains that their columns share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import EvaluationError
from tidelog.kernel import rows as kernel
from tidelog.logic.graph import UnionFind
from tidelog.plan.body import Assign, LoweredRule
from tidelog.plan.lowered import Aggregation, Layer, Lowered, TreeView, given_of, is_only_copied
from tidelog.plan.order import Stats
from tidelog.runtime.progress import Meter
from tidelog.runtime.workers import Workers
from tidelog.store.codec import FEW, Codec
from tidelog.store.domain import Domain
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words
from tidelog.store.sorting import sort_words
from tidelog.store.versions import Version
from tidelog.store.watch import RunWatch
from tidelog.values.types import Row, Type

CHUNK = 1 << 22  # columns of a buffer for the output of a join
_SAMPLE = 2048
_COLLECTED = (list, set, frozenset)


@dataclass
class CatalogChange:
    """What a catalog needs to finish or undo a change of its program."""

    before: dict[str, Any]
    """What the catalog had."""
    new: frozenset[str]
    """The relations that the old program does not have."""
    counted: list[StoredRelation] = field(default_factory=list)
    """The relations that had no rules before, and so no counts."""
    underived: list[str] = field(default_factory=list)
    """The relations that have no rules any more."""
    after: Catalog | None = None
    """The new program and its relations alone."""


class Catalog:
    """Everything that is stored."""

    def __init__(
        self,
        lowered: Lowered,
        codec: Codec,
        checked: frozenset[str] = frozenset(),
        domains: Mapping[str, tuple[Domain, ...]] | None = None,
    ) -> None:
        """Make the relations; `checked` are the functional ones, checked when an epoch ends."""
        self.lowered = lowered
        self.checked = checked
        self.codec = codec
        self._domains: Mapping[str, tuple[Domain, ...]] = (
            _shared_domains(lowered) if domains is None else domains
        )
        derived = {n for layer in lowered.layers if layer.aggregation for n in layer.relations}
        derived |= {rule.head.relation for layer in lowered.layers for rule in layer.rules}
        derived |= {name for layer in lowered.layers if layer.recompute for name in layer.relations}
        self.relations: dict[str, StoredRelation] = {}
        self.given: dict[str, StoredRelation] = {}
        self._everything: tuple[StoredRelation, ...] = ()
        for name in lowered.relations:
            own = self._domains[name]
            self.relations[name] = StoredRelation(name, own, counted=name in derived)
            # A relation that rules derive has its given rows apart; others are their given rows.
            self.given[name] = (
                StoredRelation(f"{name} (given)", own) if name in derived else self.relations[name]
            )
        self.derived = frozenset(derived)
        self.aliases = {
            given_of(name): name for name in self.relations if given_of(name) in self.relations
        }
        """The names under which rules read the given rows of derived relations."""
        for alias, name in self.aliases.items():
            self.relations[alias] = self.given[alias] = self.given[name]
        self.watch = RunWatch()
        """What short epochs and others have to tell each other."""
        self._note_everything()
        self.passed_on: list[StoredRelation] = []
        """Relations that pass on their deltas, and store rows only during a bootstrap."""
        self.has_reducts = True
        """Whether the rows of internal relations are here. Readers of a state have none."""
        self._trees = {n: la.tree for la in lowered.layers if la.tree for n in la.relations}
        self._virtual = frozenset(name for la in lowered.layers for name in la.virtual or ())
        self.computed: dict[str, Callable[[Version], Words]] = {}
        """For each relation whose rows are not stored: the function that returns them."""
        self.failures: dict[str, Callable[[NDArray[np.int64]], EvaluationError]] = {}
        """For each relation of failures: the function that returns the error of a row.

        It gets the ordinals of the row.
        """
        self._stats: dict[tuple[str, int], Stats] = {}
        self._buffers: dict[int, list[NDArray[np.int64]]] = {}
        self._fields: dict[Type, _RecordFields] = {}
        self._encoders: dict[str, list[Callable[[Any], int]]] = {}
        self.no_ordinals = {n: np.zeros((len(d), 0), np.int64) for n, d in self._domains.items()}
        self.meter = Meter()
        self.workers = Workers()
        """Run the parts of large joins."""
        self.stamp = object()
        """Replaced when plans may be out of date: when layouts have changed, or sizes by much."""
        self._sizes: dict[str, int] = {}

    # --- another program ---

    def begin_change(self, lowered: Lowered, checked: frozenset[str]) -> CatalogChange:
        """Take over another program between epochs, beside the present one.

        Relations of both programs stay, with their rows. Those of the old one alone can still be
        read, until the change is finished or undone.
        """
        before = {
            name: copy(held) if isinstance(held, dict | list) else held
            for name, held in vars(self).items()
        }
        domains = self._united_domains(lowered)
        self.relayout()
        made = Catalog(lowered, self.codec, checked, domains)
        change = CatalogChange(before, frozenset(made.relations.keys() - self.relations.keys()))
        for name in made.relations.keys() & self.relations.keys():
            if name in made.aliases:
                continue
            was_derived = self.given[name] is not self.relations[name]
            relation = made.relations[name] = self.relations[name]
            made.given[name] = self.given[name]
            if name in made.derived and not was_derived:
                made.given[name] = relation.copied(f"{name} (given)")
                relation.set_counted(True)
                change.counted.append(relation)
            elif was_derived and name not in made.derived:
                change.underived.append(name)
        for alias, name in made.aliases.items():
            made.relations[alias] = made.given[alias] = made.given[name]
        change.after = made
        self.lowered, self.checked, self.derived = lowered, checked, made.derived
        self.aliases = {**self.aliases, **made.aliases}
        self.relations = {**self.relations, **made.relations}
        self.given = {**self.given, **made.given}
        self._domains = {**self._domains, **made._domains}
        self.no_ordinals = {**self.no_ordinals, **made.no_ordinals}
        self._trees, self._virtual = made._trees, made._virtual
        self._encoders.clear()
        self._stats.clear()
        self._note_everything()
        return change

    def add_toggle(self, name: str, *, is_on: bool) -> StoredRelation:
        """Add a relation with one row or none, until the change of program is finished or undone.

        A relation without columns is stored with one, which holds 0.
        """
        domains = (Domain(),)
        toggle = self.relations[name] = self.given[name] = StoredRelation(name, domains)
        self._domains = {**self._domains, name: domains}
        self._note_everything()
        if is_on:
            toggle.replace(np.zeros((1, 1), np.int64), None, None)
        return toggle

    def finish_change(self, change: CatalogChange) -> None:
        """Forget the relations of the old program."""
        assert change.after is not None
        relations, given = change.after.relations, change.after.given
        for name in change.underived:
            relations[name].set_counted(False)
            given[name] = relations[name]
        self.relations = {name: relations[name] for name in self.lowered.relations}
        self.given = {name: given[name] for name in self.lowered.relations}
        self.aliases = {alias: n for alias, n in self.aliases.items() if alias in self.relations}
        self.computed = {n: rows for n, rows in self.computed.items() if not self.is_stored(n)}
        self.failures = {n: error for n, error in self.failures.items() if n in self.relations}
        held = set(map(id, self.relations.values()))
        self.passed_on = [relation for relation in self.passed_on if id(relation) in held]
        self._domains, self.no_ordinals = change.after._domains, change.after.no_ordinals
        self._note_everything()
        self.stamp = object()

    def undo_change(self, change: CatalogChange) -> None:
        """Put everything back. Domains stay as wide as they have become."""
        for relation in change.counted:
            relation.set_counted(False)
        vars(self).update(change.before)
        self._stats.clear()
        self.relayout()

    def _note_everything(self) -> None:
        names = self.relations
        self._everything = tuple(
            dict.fromkeys(r for n in names for r in (self.relations[n], self.given[n]))
        )
        self.watch.changed()
        for relation in self._everything:
            relation.share_watch(self.watch)

    def _united_domains(self, lowered: Lowered) -> dict[str, tuple[Domain, ...]]:
        """Return the domains of another program; columns that are here keep theirs.

        Domains that it shares are united, and stay so: that does no harm to any program.
        """
        fresh = _shared_domains(lowered)
        own: dict[Domain, Domain] = {}
        for name in fresh:
            for domain, shared in zip(self._domains.get(name, ()), fresh[name], strict=False):
                own.setdefault(shared, domain).unite(domain)
        return {name: tuple(own.get(d, d) for d in domains) for name, domains in fresh.items()}

    def nested(self, program: Lowered) -> Catalog:
        """Return a catalog for a program within this one: relations of its own, shared domains."""
        nested = Catalog(program, self.codec, self.checked, self._domains)
        nested.failures.update(self.failures)
        nested.workers = self.workers
        return nested

    def overlaid(
        self, program: Lowered, domains: Mapping[str, tuple[Domain, ...]], own: Collection[str]
    ) -> Catalog:
        """Return a catalog for a program that reads the stored relations of this one.

        Only its `own` relations, whose domains are given, are apart. The others are these here.
        """
        # In an epoch that changes the program, some are derived by its old or new rules only.
        apart = [n for n, given in self.given.items() if given is not self.relations[n]]
        known = {**self._domains, **{given_of(n): self._domains[n] for n in apart}}
        stored = {**{given_of(n): self.given[n] for n in apart}, **self.relations}
        # All rows are looked up, also where rules only copy them.
        overlaid = Catalog(program, self.codec, frozenset(own), {**known, **domains})
        for name in program.relations:
            if name not in own:
                overlaid.relations[name] = overlaid.given[name] = stored[name]
        overlaid._everything = tuple(
            dict.fromkeys(r for n in own for r in (overlaid.relations[n], overlaid.given[n]))
        )
        overlaid.workers = self.workers
        overlaid._buffers = self._buffers
        overlaid._fields = self._fields
        return overlaid

    # --- for joins ---

    def note_size(self, relation: StoredRelation) -> None:
        """Have joins planned again if the size of a relation has changed much."""
        size = relation.stored.bit_length()
        if self._sizes.get(relation.name) != size:
            self._sizes[relation.name] = size
            self.stamp = object()

    def buffer(self, height: int) -> NDArray[np.int64]:
        """Return an array for the output of a join, to be returned by `give_back`."""
        free = self._buffers.setdefault(height, [])
        return free.pop() if free else np.empty((height, CHUNK), np.int64)

    def give_back(self, buffer: NDArray[np.int64]) -> None:
        """Take back an array that `buffer` gave."""
        self._buffers[buffer.shape[0]].append(buffer)

    def record_address(self, type_: Type, field: int) -> int:
        """Return the address of the ordinals of a field, by the id of the record."""
        fields = self._fields.get(type_)
        if fields is None:
            fields = self._fields[type_] = _RecordFields(len(self.codec.records[type_.record]))
        return fields.address(self.codec.dictionary(type_).items, field)

    def everything(self) -> Sequence[StoredRelation]:
        """Return every stored relation once."""
        return self._everything

    def shown(self, layer: Layer) -> frozenset[str]:
        """Return the relations of a layer that others read within the same epoch."""
        if self.checked.intersection(layer.relations):
            return frozenset(layer.relations)  # a conflict is traced back through all of them
        read: set[str] = set(self.checked)
        for other in self.lowered.layers:
            if other.relations != layer.relations:
                read.update(atom.relation for rule in other.rules for atom in rule.atoms)
                if other.aggregation is not None:
                    read.add(other.aggregation.source)
                if other.recompute is not None:
                    read |= other.recompute.reads
        return frozenset(read.intersection(layer.relations))

    def is_only_copied(self, name: str) -> bool:
        """Return whether only rules that copy a relation read it, and so its deltas are enough."""
        return not self.checked and is_only_copied(self.lowered, name)

    # --- values ---

    def types(self, name: str) -> tuple[Type, ...]:
        """Return the types of the columns of a relation."""
        return self.lowered.relations[name]

    def domains(self, name: str) -> tuple[Domain, ...]:
        """Return the domains of the columns; a relation without columns has one, for a 0."""
        return self._domains[name]

    def encode(self, name: str, rows: Iterable[Row]) -> NDArray[np.int64]:
        """Return rows of values as columns of ordinals."""
        if not isinstance(rows, _COLLECTED):
            rows = list(rows)
        if not rows:
            return self.no_ordinals[name]
        encoders = self._encoders.get(name) or self._encoders_of(name)
        if not encoders:  # a relation without columns has one row
            return np.zeros((1, 1), np.int64)
        if len(rows) <= FEW:
            return self.codec.encode_few(rows, encoders)
        return self.codec.encode_rows(rows, self.types(name))

    def _encoders_of(self, name: str) -> list[Callable[[Any], int]]:
        """Return the encoders of the columns of a relation, made once."""
        found = self._encoders.get(name)
        if found is None:
            found = self._encoders[name] = [self.codec.encoder(t) for t in self.types(name)]
        return found

    def decode(self, name: str, words: Words) -> list[Row]:
        """Return stored rows as rows of values."""
        return self.decode_ordinals(name, self.relations[name].ordinals(words))

    def decode_ordinals(self, name: str, ordinals: NDArray[np.int64]) -> list[Row]:
        """Return columns of ordinals as rows of values."""
        types = self.types(name)
        if not types:
            return [()] * ordinals.shape[1]
        return self.codec.decode_rows(ordinals, types)

    def fit(self, name: str, ordinals: NDArray[np.int64]) -> bool:
        """Widen the domains of a relation for new ordinals; return whether any has changed."""
        changed = False
        domains = self._domains[name]
        for low, high, domain in extremes(ordinals, domains):
            changed |= domain.widen(low, high)
        return changed

    def relayout(self) -> None:
        """Rewrite the relations whose domains have widened. Between epochs only."""
        self.stamp = object()
        for relation in self.everything():
            if not relation.primary.layout.is_current(relation.domains):
                relation.relayout()

    def pack(self, name: str, ordinals: NDArray[np.int64]) -> Words:
        """Return columns of ordinals as sorted, distinct rows. They fit the domains."""
        relation = self.relations[name]
        if ordinals.shape[1] == 0:
            return relation.no_rows()
        rows = relation.pack_ordinals(ordinals)
        if rows.shape[1] == 1:
            return rows
        rows = sort_words(rows)
        counts = np.empty(rows.shape[1], np.int64)
        n = kernel.unique_sums(rows, rows.shape[1], counts, False, counts)
        return np.ascontiguousarray(rows[:, :n])

    def is_stored(self, name: str) -> bool:
        """Return whether the rows of a relation are stored, not only those that are given."""
        return name not in self._trees and name not in self._virtual

    def is_virtual(self, name: str) -> bool:
        """Return whether a relation is a virtual view, or only read by such."""
        return name in self._virtual

    def tree_of(self, name: str) -> TreeView | None:
        """Return how a relation is maintained without storing its rows, if it is."""
        return self._trees.get(name)

    def rows_of(self, name: str, version: Version) -> Words:
        """Return the rows of a relation, sorted; those that are not stored are computed."""
        computed = self.computed.get(name)
        return self.relations[name].rows(version) if computed is None else computed(version)

    # --- statistics ---

    def stats(self, name: str) -> Stats:
        """Return the size of a relation and the estimated distinct values of its columns."""
        relation = self.relations[name]
        size = sum(len(run) for run in relation.primary.all_runs())
        key = (name, size.bit_length())
        found = self._stats.get(key)
        if found is None:
            found = self._stats[key] = _estimate(relation, size)
        return found


def extremes(
    ordinals: NDArray[np.int64], domains: Sequence[Domain]
) -> Iterator[tuple[int, int, Domain]]:
    """Yield the smallest and the largest ordinal of each column, with its domain."""
    if ordinals.shape[1]:
        for column, domain in zip(ordinals, domains, strict=True):
            yield int(column.min()), int(column.max()), domain


class _RecordFields:
    """The fields of the records of one type as columns that grow."""

    def __init__(self, width: int) -> None:
        self._columns = np.zeros((width, 64), np.int64)
        # Joins under way hold the addresses of the arrays they started with.
        self._outgrown: list[NDArray[np.int64]] = []
        self._filled = 0

    def address(self, items: list[tuple[int, ...] | None], field: int) -> int:
        """Return the address of a column, after adding new records."""
        if self._filled < len(items):
            if len(items) > self._columns.shape[1]:
                larger = np.zeros((len(self._columns), 2 * len(items)), np.int64)
                larger[:, : self._filled] = self._columns[:, : self._filled]
                self._outgrown.append(self._columns)
                self._columns = larger
            for i in range(self._filled, len(items)):
                item = items[i]
                if item is not None:
                    self._columns[:, i] = item
            self._filled = len(items)
        return int(self._columns[field].__array_interface__["data"][0])


def _estimate(relation: StoredRelation, size: int) -> Stats:
    """Estimate distinct values from a sample of the largest run."""
    runs = relation.primary.all_runs()
    if not size:
        return Stats(1.0, (1.0,) * len(relation.domains))
    largest = max(runs, key=len)
    step = max(1, len(largest) // _SAMPLE)
    sample = relation.unpack(np.ascontiguousarray(largest.words[:, ::step][:, :_SAMPLE]))
    distinct = []
    for column in sample:
        _, repeats = np.unique(column, return_counts=True)
        once = int((repeats == 1).sum())
        scale = (size / sample.shape[1]) ** 0.5
        distinct.append(min(float(size), once * scale + (len(repeats) - once)))
    return Stats(float(size), tuple(distinct))


def _shared_domains(lowered: Lowered) -> dict[str, tuple[Domain, ...]]:
    """Return the domains of all columns: one for each class of columns that share variables."""
    classes = UnionFind[object]()
    find, union = classes.find, classes.union
    types = dict(lowered.relations)
    for relation, columns in types.items():
        if given_of(relation) in types:
            for column in range(max(1, len(columns))):
                union((relation, column), (given_of(relation), column))
    for layer in lowered.every_layer():
        for rule in layer.rules:
            for slot, other in _equal_slots(rule):
                union((rule.id, slot), (rule.id, other))
            for atom in chain((rule.head,), rule.atoms):
                for column, name in enumerate(atom.args):
                    if name is not None:
                        union((rule.id, name), (atom.relation, column))
        if layer.semi_join is not None:
            extreme, moved = layer.semi_join.extreme, layer.semi_join.moved
            last = len(types[extreme]) - 1
            for column in range(last + 1):
                union((extreme, column), (moved, column))
            union((extreme, last), (moved, last + 1))
        if layer.aggregation is not None:
            aggregation = layer.aggregation
            for i, column in enumerate(aggregation.group):
                union((aggregation.result, i), (aggregation.source, column))
                if aggregation.failed is not None:
                    union((aggregation.failed, i), (aggregation.source, column))
            for given, read in _ranged_columns(aggregation):
                union(given, read)
        if layer.recompute is not None:
            types.update(layer.recompute.program.relations)
            for into, source in layer.recompute.inserted.items():
                for column in range(max(1, len(types[into]))):
                    union((into, column), (source, column))
    domains: dict[object, Domain] = {}
    return {
        name: tuple(
            domains.setdefault(find((name, column)), Domain())
            for column in range(max(1, len(columns)))
        )
        for name, columns in types.items()
    }


def _ranged_columns(aggregation: Aggregation) -> Iterator[tuple[object, object]]:
    """Yield columns of relations that are given to an aggregate over ranges, and what they have."""
    join = aggregation.ranged
    if join is None or join.neighbours is None or join.reads[0] is None:
        return
    read, given = join.reads[0], join.neighbours
    for place, column in enumerate([*(column for _, column in read.keys), read.column]):
        yield (given.moved, place), (read.relation, column)
        yield (given.last, place), (read.relation, column)
    yield (given.moved, len(read.keys) + 1), (read.relation, read.column)


def _equal_slots(rule: LoweredRule) -> Iterator[tuple[str, str]]:
    for condition in rule.conditions:
        if isinstance(condition, Assign) and isinstance(condition.value, str):
            yield condition.into, condition.value
