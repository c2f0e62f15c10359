"""`concat`, user-given semigroups, and extremes of values that only Python can compare.

What they have in common is an operation that is associative and cannot be undone. A scan tree over
the source (store/scan_tree.py) keeps partial results: for a changed row O(log n) of them are
renewed, whether it came or went, and the result of its group is put together from O(log n). A
deleted maximum does not make anybody look through its group.

    A[x] = s  :-  s = max s : { D(x, y, z, s) }        A[x] = scan(D, [x, -inf, ..], [x, +inf, ..])

The text of a `concat` over n rows has to be written out when it changes, O(its length): in the tree
it is a rope, a tree of pieces that share what has not changed. Each such text is a new symbol, and
symbols are kept for as long as the database is.
"""

from __future__ import annotations

import numpy as np

from tidelog.errors import EvaluationError
from tidelog.maintain.aggregate import Array
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.group_wise import GroupWise
from tidelog.maintain.joins import DomainOverflow
from tidelog.plan.externals import UNORDERED
from tidelog.plan.lowered import Aggregation
from tidelog.store.scan_operations import Combined, Concat, Extreme, text_of
from tidelog.store.scan_tree import NOTHING, Key, Scan
from tidelog.store.value_tree import ValueTree, key_part, value_tree
from tidelog.values.algebra import Semigroup


class Scans(GroupWise):
    """Keeps the results of an associative operation on the groups of a relation."""

    name = "scans"
    why = "a tree of partial results is renewed from the rows that change to its root"
    algebra = "semigroup"
    state = "a scan tree of partial results over the rows"
    reads_source = False

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether an aggregate is an operation on texts or records, or a user's own."""
        if aggregation.algebra is not None:
            return isinstance(aggregation.algebra, Semigroup)
        type_ = aggregation.target_type
        if aggregation.op in ("min", "max"):
            return type_ is not None and type_.kind in UNORDERED
        return aggregation.op == "concat"

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        super().__init__(catalog, aggregation)
        assert aggregation.target is not None
        assert aggregation.target_type is not None
        self._target, self._target_type = aggregation.target, aggregation.target_type
        self._encode = catalog.codec.encoder(aggregation.result_type)

    def prepare(self) -> None:
        """Make ready for small updates."""
        self._tree()
        self._held.prepare()

    def _tree(self) -> ValueTree:
        """Return the tree, which other aggregates may share; it is built for the first of them."""
        aggregation, catalog = self._aggregation, self._catalog
        rest = tuple(column for column in aggregation.order if column not in aggregation.group)
        return value_tree(
            self._source,
            catalog.codec,
            catalog.types(aggregation.source),
            aggregation.group,
            rest,
            self._target,
            in_order=aggregation.op not in ("min", "max"),
        )

    def _compute(self, groups: Array) -> Array:
        """Return the result rows of the groups, as ordinals; groups without rows have none."""
        tree = self._tree()
        tree.follow(self._source)
        columns = self._aggregation.group
        scan = tree.scans.setdefault(self._identity, self._scan())
        places = [columns.index(column) for column in tree.columns[: len(columns)]]
        ordinals = groups + self._source.biases[list(columns)]
        found, values = [], []
        for number, group in enumerate(ordinals.T.tolist()):
            start = tree.group_key([group[place] for place in places])
            try:
                value = self._result_of(tree, start, scan, group)
                if value is not None:
                    values.append(value)
                    found.append(number)
            except EvaluationError as error:
                self._fail(groups[:, number], error)
        domain = self._result.domains[-1]
        for value in (min(values), max(values)) if values else ():
            if not domain.covers(value, value):
                raise DomainOverflow(domain, value)
        return np.vstack([ordinals[:, found], np.array(values, np.int64).reshape(1, -1)])

    # --- operations ---

    @property
    def _identity(self) -> object:
        """What tells the operation from others on the same tree."""
        return (self._aggregation.op, self._aggregation.algebra)

    def _scan(self) -> Scan:
        codec, op = self._catalog.codec, self._aggregation.op
        algebra = self._aggregation.algebra
        if isinstance(algebra, Semigroup):
            return Combined(algebra, codec.decoder(self._target_type))
        if op == "concat":
            return Concat(codec.symbols.items)
        return Extreme(min if op == "min" else max, key_part(self._target_type, codec))

    def _result_of(self, tree: ValueTree, start: Key, scan: Scan, group: list[int]) -> int | None:
        """Return the ordinal of a group's result, None for a group without rows."""
        if self._aggregation.algebra is not None:
            partial = self._calls.computed(lambda: tree.fold(start, scan), group)
            return None if partial is NOTHING else self._calls.encoded(partial, group)
        partial = tree.fold(start, scan)
        if partial is NOTHING:
            return None
        if self._aggregation.op == "concat":
            return self._encode(text_of(partial))
        return int(partial[1])
