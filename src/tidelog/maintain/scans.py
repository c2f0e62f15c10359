"""`concat`, user-given semigroups, and extremes of values that only Python can compare.

Their operations are associative, but have no inverse. A scan tree over the source
(store/scan_tree.py) stores partial results: an inserted or deleted row updates O(log n) of them,
and the result of its group is combined from O(log n). So deleting a maximum does not require a scan
of its group.

    A[x] = s  :-  s = max s : { D(x, y, z, s) }        A[x] = scan(D, [x, -inf, ..], [x, +inf, ..])

The text of a `concat` has to be written out when it changes, O(its length). In the tree it is a
rope, a tree of pieces that shares what has not changed. Each such text is a new symbol, and symbols
are never freed.
"""

from __future__ import annotations

import numpy as np

from tidelog.errors import EvaluationError
from tidelog.maintain.aggregate import Array
from tidelog.maintain.group_wise import GroupWise
from tidelog.plan.externals import UNORDERED
from tidelog.plan.lowered import Aggregation
from tidelog.store.catalog import Catalog
from tidelog.store.scan_operations import Combined, Concat, Extreme, text_of
from tidelog.store.scan_tree import NOTHING, Key, ScanOperation
from tidelog.store.value_tree import ValueTree, key_part, value_tree
from tidelog.values.algebra import Semigroup


class Scans(GroupWise):
    """Maintains the results of an associative operation on the groups of a relation."""

    name = "scans"
    why = "the partial results of a scan tree are updated from the changed rows to its root"
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
        """Build the tree, and the order that updates read."""
        self._tree()
        self._held.prepare()

    def _tree(self) -> ValueTree:
        """Return the tree, which other aggregates may share; it is built on first use."""
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
        results = np.array(values, np.int64)
        self._result.domains[-1].require(results)
        return np.vstack([ordinals[:, found], results.reshape(1, -1)])

    # --- operations ---

    @property
    def _identity(self) -> object:
        """Identifies the operation among others on the same tree."""
        return (self._aggregation.op, self._aggregation.algebra)

    def _scan(self) -> ScanOperation:
        codec, op = self._catalog.codec, self._aggregation.op
        algebra = self._aggregation.algebra
        if isinstance(algebra, Semigroup):
            return Combined(algebra, codec.decoder(self._target_type))
        if op == "concat":
            return Concat(codec.symbols.items)
        return Extreme(min if op == "min" else max, key_part(self._target_type, codec))

    def _result_of(
        self, tree: ValueTree, start: Key, scan: ScanOperation, group: list[int]
    ) -> int | None:
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
