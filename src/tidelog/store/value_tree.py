"""A scan tree over all rows of a stored relation, sorted by the values of some columns.

It serves every aggregate of one column whose groups are prefixes of its order: the maximum by x and
the one by (x, y) are intervals of the same tree over (x, y, z). It follows the relation: within an
epoch when it is first read, otherwise when the epoch commits. An abort undoes that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tidelog.plan.externals import UNORDERED
from tidelog.store.codec import Codec
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words
from tidelog.store.scan_tree import TOP, Key, ScanOperation, ScanTree
from tidelog.store.versions import Delta, Version
from tidelog.values.order import sort_key
from tidelog.values.types import Type

KeyPart = Callable[[int], Any]


class ValueTree:
    """The rows of a relation by the values of `columns`, with the ordinals of `target`."""

    def __init__(
        self,
        relation: StoredRelation,
        codec: Codec,
        types: Sequence[Type],
        columns: tuple[int, ...],
        target: int,
    ) -> None:
        """Take all rows of the last commit; `columns` identify them."""
        self.columns, self.target = columns, target
        self._parts = [key_part(types[column], codec) for column in columns]
        self.scans: dict[object, ScanOperation] = {}
        """The operations in use, by their identity, so that views share results."""
        self._applied: Delta | None = None
        self._tree = ScanTree()
        self._tree.change(self._entries(relation, relation.rows(Version.OLD)), ())
        self._tree.commit()

    def __len__(self) -> int:
        return len(self._tree)

    @property
    def nbytes(self) -> int:
        """Nothing: the tree consists of Python objects, whose memory is not known."""
        return 0

    def follow(self, relation: StoredRelation) -> None:
        """Apply the delta of the current epoch, once."""
        delta = relation.delta
        if delta is not self._applied and delta:
            gone = (key for key, _ in self._entries(relation, delta.deleted))
            self._tree.change(self._entries(relation, delta.inserted), gone)
        self._applied = delta

    def group_key(self, ordinals: Sequence[int]) -> Key:
        """Return the key that rows start with whose first columns have these ordinals."""
        return tuple(part(o) for part, o in zip(self._parts, ordinals, strict=False))

    def fold(self, start: Key, scan: ScanOperation) -> Any:
        """Return the partial result over the rows whose keys start with `start`, or NOTHING."""
        return self._tree.fold(start, (*start, TOP), scan)

    def between(self, start: Key, low: Any, high: Any, scan: ScanOperation) -> Any:
        """Return the same over those of them whose next part is in [low, high).

        None leaves a side open.
        """
        first = start if low is None else (*start, low)
        return self._tree.fold(first, (*start, TOP if high is None else high), scan)

    # --- the end of an epoch ---

    def commit(self, relation: StoredRelation) -> None:
        """Keep what the epoch has changed, whether it was read or not."""
        self.follow(relation)
        self._applied = None
        self._tree.commit()

    def abort(self) -> None:
        """Put everything back as it was before the epoch."""
        self._applied = None
        self._tree.abort()

    def _entries(self, relation: StoredRelation, rows: Words) -> Iterable[tuple[Key, int]]:
        ordinals = relation.ordinals(rows)
        keys = zip(
            *(
                map(part, ordinals[column].tolist())
                for part, column in zip(self._parts, self.columns, strict=True)
            ),
            strict=True,
        )
        return zip(keys, ordinals[self.target].tolist(), strict=True)

    def check(self, relation: StoredRelation) -> None:
        """Assert that the tree is sound, and has the rows of the relation."""
        self._tree.check()
        expected = dict(self._entries(relation, relation.rows(Version.OLD)))
        assert dict(self._tree) == expected, f"a tree over {relation.name} is stale"


def value_tree(
    relation: StoredRelation,
    codec: Codec,
    types: Sequence[Type],
    group: tuple[int, ...],
    rest: tuple[int, ...],
    target: int,
    *,
    in_order: bool,
) -> ValueTree:
    """Return a tree that has the rows of each group in one interval; made if there is none.

    `in_order` asks for the rows of a group in the order of the columns `rest`. Without it, any tree
    that begins with the group's columns will do.
    """
    for follower in relation.followers.values():
        if isinstance(follower, ValueTree) and follower.target == target:
            start, behind = follower.columns[: len(group)], follower.columns[len(group) :]
            if set(start) == set(group) and (behind == rest or not in_order):
                return follower
    made = ValueTree(relation, codec, types, (*group, *rest), target)
    relation.followers[ValueTree, made.columns, target] = made
    return made


def key_part(type_: Type, codec: Codec) -> KeyPart:
    """Return the function from the ordinals of a type to sort keys in the order of its values."""
    if type_.kind not in UNORDERED:
        return int
    key, decode = sort_key(type_, codec.records), codec.decoder(type_)
    return lambda ordinal: key(decode(ordinal))
