"""Several counts, sums and means of the same rows, by the same groups (plan/siblings.py).

    result(g, n, s, m)  :  n = count, s = sum x, m = mean x   over the rows of g

Each is kept as it would be alone (maintain/sums.py), and a group's results are one row. It goes and
comes when any of them changes. So there is one relation and no join, and where the rule only
copies it, the rows are stored in the view alone.
"""

from __future__ import annotations

from tidelog.maintain.aggregate import Array
from tidelog.maintain.sums import Sums, operation_of
from tidelog.plan.lowered import Aggregation
from tidelog.store.accumulators import Accumulators
from tidelog.store.sibling_sums import SiblingSums


class Siblings(Sums):
    """Keeps several aggregates of the groups of a relation, in one."""

    state = "one support count a group for all, and one sum for each column"

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether these are several aggregates."""
        return bool(aggregation.parts)

    def _new_sums(self) -> SiblingSums:
        parts = self._aggregation.parts
        return SiblingSums(
            len(self._own_key), [(operation_of(part), part.target) for part in parts]
        )

    def _sums_of_parts(self) -> list[tuple[Aggregation, Accumulators]]:
        return list(zip(self._aggregation.parts, self._sums.of_parts, strict=True))

    def _add_to(self, sums: SiblingSums, columns: Array, added: int) -> tuple[Array, Array]:
        return sums.add(columns, self._key, added)
