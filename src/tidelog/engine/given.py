"""The given rows of an epoch: their net change, and how it is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.protocol import Ignored
from tidelog.store.catalog import Catalog
from tidelog.store.domain import DomainOverflow
from tidelog.store.relation import NOWHERE, StoredRelation, without
from tidelog.store.run import Words
from tidelog.store.versions import Delta

Array = NDArray[np.int64]
Encoded = Mapping[str, tuple[Array, Array]]
"""What to insert and what to delete, by relation: columns of ordinals."""


@dataclass(slots=True)
class Given:
    """The net change of the given rows of an epoch."""

    inserted: int = 0
    deleted: int = 0
    ignored: dict[str, Ignored] = field(default_factory=dict)
    places: dict[str, Array] = field(default_factory=dict)
    """Where the deleted rows are stored."""


def find_given(
    catalog: Catalog, encoded: Encoded, tables: Collection[str], *, report_ignored: bool
) -> Given:
    """Find the net change of given rows; with `report_ignored` also the rows that change nothing.

    The rows of `tables` are sorted here for the first time: a row may be inserted and deleted.
    """
    found = Given()
    for name, (adds, removes) in encoded.items():
        relation = catalog.given[name]
        new = gone = present = absent = relation.no_rows()
        places = NOWHERE
        if _is_single(adds, removes):
            if adds.shape[1]:
                row, place = _placed(relation, adds)
                new, present = (row, new) if place[0, 0] < 0 else (new, row)
            else:
                row, place = _placed(relation, removes)
                if place[0, 0] >= 0:
                    gone, places = row, place
                else:
                    absent = row
        else:
            more, less = catalog.pack(name, adds), catalog.pack(name, removes)
            if name in tables and more.shape[1] and less.shape[1]:
                more, less = without(more, less), without(less, more)
            new, present = relation.split(more)
            gone, places, absent = relation.present(less)
        relation.record(Delta(new, gone))
        found.places[name] = places
        found.inserted += new.shape[1]
        found.deleted += gone.shape[1]
        if report_ignored and name not in tables and (present.shape[1] or absent.shape[1]):
            found.ignored[name] = Ignored(
                frozenset(catalog.decode(name, present)), frozenset(catalog.decode(name, absent))
            )
    return found


def fit_given(catalog: Catalog, encoded: Encoded) -> None:
    """Widen domains for the ordinals of rows, before the epoch starts: layouts may change.

    A single row is left out. Whether it fits is checked when it is looked up.
    """
    is_wider = False
    for name, (adds, removes) in encoded.items():
        if not _is_single(adds, removes):
            for ordinals in (adds, removes):
                if ordinals.shape[1]:
                    is_wider |= catalog.fit(name, ordinals)
    if is_wider:
        catalog.relayout()


def change_given(catalog: Catalog, places: Mapping[str, Array]) -> None:
    """Write the net change of given rows; the deleted ones are at these places."""
    for name, where in places.items():
        relation = catalog.given[name]
        inserted, deleted = relation.delta.inserted, relation.delta.deleted
        if deleted.shape[1]:
            relation.remove(deleted, where)
        if inserted.shape[1]:
            relation.add(inserted, None, None)


def _is_single(adds: Array, removes: Array) -> bool:
    """Return whether there is one row only. It is looked up in one call: the usual case."""
    return len(adds[0]) + len(removes[0]) == 1


def _placed(relation: StoredRelation, ordinals: Array) -> tuple[Words, Array]:
    """Return a row as it is stored, and its place."""
    row, place, misfit = relation.placed(ordinals)
    if misfit >= 0:
        raise DomainOverflow(relation.domains[misfit], int(ordinals[misfit, 0]))
    return row, place
