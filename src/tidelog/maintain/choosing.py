"""`choice-domain`: which of some rows are chosen, the smallest first.

A row is chosen unless one that is chosen before agrees with it in a key. So in each group of a key
only the smallest row can be next, and a row that is the smallest in all of its groups is chosen:

    until no row is left:
        choose the rows that are the smallest in their groups, for every key
        drop the rows that agree with one of them
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tidelog.plan.externals import UNORDERED
from tidelog.store.codec import Codec
from tidelog.values.order import sort_key
from tidelog.values.types import Type

Ordinals = NDArray[np.int64]


def ranks(ordinals: Ordinals, types: Sequence[Type], codec: Codec) -> NDArray[np.int64]:
    """Return the place of each row in the order of values, column by column."""
    columns = [_in_order(o, t, codec) for o, t in zip(ordinals, types, strict=True)]
    order = np.lexsort(columns[::-1])
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order))
    return found


def _in_order(ordinals: NDArray[np.int64], type_: Type, codec: Codec) -> NDArray[np.int64]:
    """Return numbers that compare as the values of a column do."""
    if type_.kind not in UNORDERED:
        return ordinals
    distinct, inverse = np.unique(ordinals, return_inverse=True)
    decode, key = codec.decoder(type_), sort_key(type_, codec.records)
    keys = [key(decode(ordinal)) for ordinal in distinct.tolist()]
    place = np.empty(len(keys), np.int64)
    place[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    return place[inverse]


def chosen_rows(
    ordinals: Ordinals,
    places: NDArray[np.int64],
    before: Ordinals,
    keys: Sequence[tuple[int, ...]],
) -> NDArray[np.int64]:
    """Return which rows are chosen, as sorted positions.

    `places` has the place of each row in the order in which they are taken, `before` the rows that
    are chosen already.
    """
    n = ordinals.shape[1]
    together = np.concatenate([ordinals, before], axis=1)
    groups = [_groups(together[list(key)]) for key in keys]
    left = np.ones(n, np.bool_)
    for group in groups:
        left &= ~np.isin(group[:n], group[n:])
    rows = np.flatnonzero(left)
    rows = rows[np.argsort(places[rows])]
    chosen = []
    while len(rows):
        is_first = np.ones(len(rows), np.bool_)
        for group in groups:
            first = np.zeros(len(rows), np.bool_)
            first[np.unique(group[rows], return_index=True)[1]] = True
            is_first &= first
        chosen.append(rows[is_first])
        stays = ~is_first
        for group in groups:
            stays &= ~np.isin(group[rows], group[rows[is_first]])
        rows = rows[stays]
    return np.sort(np.concatenate(chosen)) if chosen else np.zeros(0, np.int64)


def _groups(columns: Ordinals) -> NDArray[np.int64]:
    """Return a number for each row, equal for rows with equal columns."""
    return np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)
