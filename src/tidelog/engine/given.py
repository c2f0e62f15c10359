"""The given rows of an epoch: which of them come and go, and where they are written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.protocol import Ignored
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.joins import DomainOverflow
from tidelog.store.relation import NOWHERE, StoredRelation, without
from tidelog.store.run import Words
from tidelog.store.versions import Delta

Array = NDArray[np.int64]
Encoded = Mapping[str, tuple[Array, Array]]
"""What to insert and what to delete, by relation: columns of ordinals."""


@dataclass(slots=True)
class Given:
    """What becomes of the given rows of an epoch."""

    inserted: int = 0
    deleted: int = 0
    ignored: dict[str, Ignored] = field(default_factory=dict)
    places: dict[str, Array] = field(default_factory=dict)
    """Where the rows are that go."""


def find_given(catalog: Catalog, encoded: Encoded, tables: Collection[str], *, told: bool) -> Given:
    """Find out which given rows come and go; tell those that change nothing, if they are `told`.

    What came in `tables` is sorted here for the first time: rows may be on both sides.
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
        relation.touched = True  # so that an abort forgets this, too
        relation.delta = Delta(new, gone)
        found.places[name] = places
        found.inserted += new.shape[1]
        found.deleted += gone.shape[1]
        if told and name not in tables and (present.shape[1] or absent.shape[1]):
            found.ignored[name] = Ignored(
                frozenset(catalog.decode(name, present)), frozenset(catalog.decode(name, absent))
            )
    return found


def fit_given(catalog: Catalog, encoded: Encoded) -> None:
    """Make room for the ordinals of rows. That a single one fits is seen when it is looked up.

    Not within an epoch: it may change layouts.
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
    """Write the given rows of the epoch; those that go are at these places."""
    for name, where in places.items():
        relation = catalog.given[name]
        inserted, deleted = relation.delta.inserted, relation.delta.deleted
        if deleted.shape[1]:
            relation.remove(deleted, where)
        if inserted.shape[1]:
            relation.add(inserted, None, None)


def _is_single(adds: Array, removes: Array) -> bool:
    """Return whether there is but one row, the usual case, which is looked up in one call."""
    return len(adds[0]) + len(removes[0]) == 1


def _placed(relation: StoredRelation, ordinals: Array) -> tuple[Words, Array]:
    """Return a row, and its place."""
    row, place, misfit = relation.placed(ordinals)
    if misfit >= 0:
        raise DomainOverflow(relation.domains[misfit], int(ordinals[misfit, 0]))
    return row, place
