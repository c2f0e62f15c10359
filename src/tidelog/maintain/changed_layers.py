"""Layers whose rules change: how they are brought up to date in the epoch of the change.

A layer that keeps its kind is maintained by its own strategy. Each added or dropped rule is guarded
by a *toggle*, a relation without columns that exists for this epoch only:

    reach(x, z) :- rule@1(), reach(x, y), road(y, z).       added: rule@1() is inserted
    reach(x, y) :- rule@2(), ferry(x, y).                   dropped: rule@2() is deleted

The insertion of a toggle drives a delta join: it evaluates the rule as after the epoch, and its
deletion as before. So counts and levels become those of the changed rules, at the cost of an epoch
that changes the same rows.

A layer that is new is bootstrapped. One that changes its kind (it becomes recursive, say) is
bootstrapped beside its old rows, and compared with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from tidelog.maintain.strategy import Choice, Deltas, Strategy
from tidelog.plan.body import AtomUse, Constant, LoweredRule
from tidelog.plan.lowered import Layer
from tidelog.store.catalog import Catalog
from tidelog.store.relation import StoredRelation, without
from tidelog.store.run import Words
from tidelog.store.versions import Delta, Version
from tidelog.values.types import NUMBER

StrategyOf = Callable[[Catalog, Layer], Strategy | None]
_SLOT = "#toggle"
_IS_NEW = "the program has got it"
_IS_OTHER = "its rules have become of another kind"


def guarded(rule: LoweredRule, toggle: str, *, is_first: bool) -> LoweredRule:
    """Return a rule that needs a toggle; `is_first` says where its atom is put.

    The atoms after a driver are read as before the epoch, those before it as after the epoch.
    """
    atom = AtomUse(toggle, (_SLOT,))
    return replace(
        rule,
        atoms=(atom, *rule.atoms) if is_first else (*rule.atoms, atom),
        constants=MappingProxyType({**rule.constants, _SLOT: Constant(0, NUMBER)}),
        types=MappingProxyType({**rule.types, _SLOT: NUMBER}),
    )


class NewLayer(Strategy):
    """Bootstraps a layer that the program did not have."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.name = strategy.name

    def bootstrap(self) -> None:
        """Compute the relations."""
        self.strategy.bootstrap()

    def update(self) -> Deltas:
        """Compute the relations. Whatever reads them is new as well, and needs no deltas."""
        self.strategy.bootstrap()
        self.choice = replace(self.strategy.choice, why=_IS_NEW)
        return {}


class RebuiltLayer(Strategy):
    """Bootstraps a layer that changes its kind, beside its old rows."""

    def __init__(self, catalog: Catalog, layer: Layer, strategy_of: StrategyOf, name: str) -> None:
        """Prepare; `name` is that of the strategy that the layer will have."""
        self._catalog, self._layer, self._strategy_of = catalog, layer, strategy_of
        self._computed = {n: catalog.computed.get(n) for n in layer.relations}
        self.strategy: Strategy | None = None
        """What has bootstrapped the layer."""
        self.name = name

    def bootstrap(self) -> None:
        """Do nothing: this is for an epoch only."""

    def update(self) -> Deltas:
        """Compute the relations, and compare them with their old rows."""
        catalog, names = self._catalog, self._layer.relations
        before = {name: self._rows_before(name) for name in names}
        stored = {name: catalog.relations[name] for name in names}
        into = {name: relation.empty_copy() for name, relation in stored.items()}
        for name in names:
            catalog.computed.pop(name, None)
        catalog.relations.update(into)
        try:
            after = self._bootstrapped(into)
        finally:
            catalog.relations.update(stored)
        deltas = {}
        for name, relation in stored.items():
            relation.replace_at_commit(into[name])
            gained, lost = without(after[name], before[name]), without(before[name], after[name])
            deltas[name] = Delta(gained, lost)
        levels = 0 if self.strategy is None else self.strategy.choice.levels
        self.choice = Choice("bootstrap", _IS_OTHER, levels)
        return deltas

    def _bootstrapped(self, into: Mapping[str, StoredRelation]) -> dict[str, Words]:
        catalog = self._catalog
        self.strategy = self._strategy_of(catalog, self._layer)
        if self.strategy is not None:
            self.strategy.bootstrap()
        else:
            for name, relation in into.items():
                rows = catalog.given[name].rows(Version.NEW)
                relation.replace(rows, None, np.ones(rows.shape[1], np.int64))
        return {name: catalog.rows_of(name, Version.NEW) for name in into}

    def _rows_before(self, name: str) -> Words:
        computed = self._computed[name]
        if computed is not None:
            return computed(Version.OLD)
        return self._catalog.relations[name].rows(Version.OLD)
