"""Which changed rows can matter to rules, by the constants with which these read a relation.

    near(y) :- edge("a", y, n).         a change of edge("b", "c", 1) is irrelevant

So such a change is dropped before anything is asked, planned or joined.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidelog.plan.body import LoweredRule
from tidelog.store.catalog import Catalog
from tidelog.store.run import Words

_Use = dict[int, int]
"""For each column of an atom that is a constant: its ordinal."""


class Relevance:
    """The constants of the atoms of some rules."""

    def __init__(self, catalog: Catalog, rules: Sequence[LoweredRule]) -> None:
        self._catalog, self._rules = catalog, rules
        self._uses: dict[str, list[_Use] | None] = {}

    def relevant(self, name: str, rows: Words) -> Words:
        """Return the rows of a relation that some atom can match."""
        if name not in self._uses:
            self._uses[name] = self._found(name)
        uses = self._uses[name]
        if uses is None or not rows.shape[1]:
            return rows
        ordinals = self._catalog.relations[name].ordinals(rows)
        matched = np.zeros(rows.shape[1], np.bool_)
        for use in uses:
            columns = [ordinals[column] == ordinal for column, ordinal in use.items()]
            matched |= np.logical_and.reduce(columns)
        return rows if matched.all() else np.ascontiguousarray(rows[:, matched])

    def _found(self, name: str) -> list[_Use] | None:
        """Return the constants of each atom; None if one has none, so that it matches any row."""
        uses: list[_Use] = []
        for rule in self._rules:
            for atom in rule.atoms:
                if atom.relation == name:
                    use = self._constants(rule, atom.args)
                    if not use:
                        return None
                    if use not in uses:
                        uses.append(use)
        return uses or None

    def _constants(self, rule: LoweredRule, args: Sequence[str | None]) -> _Use:
        use: _Use = {}
        for column, slot in enumerate(args):
            constant = rule.constants.get(slot or "")
            if constant is not None:
                use[column] = self._catalog.codec.encoder(constant.type)(constant.value)
        return use
