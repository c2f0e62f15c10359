"""The versions of a relation during an epoch, its net change, and what follows it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel.marks import ALIVE, DEAD_NOW
from tidelog.store.run import Words
from tidelog.store.sorting import sort_pieces

if TYPE_CHECKING:
    from tidelog.store.capture import SumsCapture
    from tidelog.store.relation import StoredRelation


class Version(enum.Enum):
    """Which rows of a relation a reader sees during an epoch: (with the tail?, largest mark)."""

    OLD = (False, DEAD_NOW)
    NEW = (True, ALIVE)
    KEPT = (False, ALIVE)  # alive before and after
    EITHER = (True, DEAD_NOW)  # alive before or after

    @property
    def with_tail(self) -> bool:
        """Whether rows that this epoch added are seen."""
        return self.value[0]

    @property
    def limit(self) -> int:
        """The largest mark of a row that is seen."""
        return self.value[1]


class UnsortedRows:
    """Distinct rows in several arrays, in no order: as delta joins have found them."""

    __slots__ = ("arrays", "size")

    def __init__(self, arrays: Sequence[Words]) -> None:
        self.arrays = arrays
        self.size: int = sum([words.shape[1] for words in arrays])

    def sorted(self) -> Words:
        """Return the rows in one array, sorted."""
        return sort_pieces(np.concatenate(self.arrays, axis=1))


class Delta:
    """The net change of an epoch: rows in the primary layout, the two sets disjoint.

    Rows that come in pieces are sorted when somebody needs them so, and only then.
    """

    __slots__ = ("_deleted", "_inserted")

    def __init__(self, inserted: Words | UnsortedRows, deleted: Words | UnsortedRows) -> None:
        self._inserted, self._deleted = inserted, deleted

    @property
    def inserted(self) -> Words:
        """The inserted rows, sorted."""
        if isinstance(self._inserted, UnsortedRows):
            self._inserted = self._inserted.sorted()
        return self._inserted

    @property
    def deleted(self) -> Words:
        """The deleted rows, sorted."""
        if isinstance(self._deleted, UnsortedRows):
            self._deleted = self._deleted.sorted()
        return self._deleted

    @property
    def as_found(self) -> tuple[Words | UnsortedRows, Words | UnsortedRows]:
        """The inserted and the deleted rows, in pieces if nobody has sorted them yet."""
        return self._inserted, self._deleted

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of inserted and of deleted rows."""
        inserted, deleted = self._inserted, self._deleted
        return (
            inserted.size if isinstance(inserted, UnsortedRows) else inserted.shape[1],
            deleted.size if isinstance(deleted, UnsortedRows) else deleted.shape[1],
        )

    def __bool__(self) -> bool:
        return self.sizes != (0, 0)


class FoundRows:
    """Where rows are in the primary order, with their marks and counts (kernel/descriptors.py)."""

    def __init__(self, columns: NDArray[np.int64]) -> None:
        self.columns = columns

    @property
    def run(self) -> NDArray[np.int64]:
        """The run of each row, -1 for none."""
        found: NDArray[np.int64] = self.columns[0]
        return found

    @property
    def position(self) -> NDArray[np.int64]:
        """The position of each row in its run."""
        found: NDArray[np.int64] = self.columns[1]
        return found

    @property
    def marks(self) -> NDArray[np.int64]:
        """The marks that the rows had when they were found; 0 for rows that were not."""
        found: NDArray[np.int64] = self.columns[2]
        return found

    @property
    def counts(self) -> NDArray[np.int64]:
        """The counts that the rows had when they were found; 0 for rows that were not."""
        found: NDArray[np.int64] = self.columns[3]
        return found

    @property
    def present(self) -> NDArray[np.bool_]:
        """Which of the rows were found."""
        return self.run >= 0


class Follower(Protocol):
    """Something that is computed from all rows of a relation, and follows their changes."""

    @property
    def nbytes(self) -> int:
        """Return its memory, as far as it is known."""

    def commit(self, relation: StoredRelation) -> None:
        """Keep what the epoch has changed, `relation.delta`, whether it was read or not."""

    def abort(self) -> None:
        """Put everything back as it was before the epoch."""

    def check(self, relation: StoredRelation) -> None:
        """Assert that it agrees with the rows of the relation."""


class Attached(Protocol):
    """What is kept beside the rows of a relation, and follows its epochs."""

    @property
    def nbytes(self) -> int:
        """Return its memory."""

    def commit(self) -> None:
        """Make what the epoch has changed the only version."""

    def abort(self) -> None:
        """Put everything back as it was before the epoch."""

    def capture(self, *, use_files: bool) -> SumsCapture:
        """Return it as it is, for a snapshot; with `use_files` files may be referred to."""

    def release(self) -> None:
        """Stop noting changes for a snapshot."""

    def keep(self, source: Any) -> None:
        """Take it from files when it is first needed."""
