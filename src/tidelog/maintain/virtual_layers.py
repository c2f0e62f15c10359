"""The strategies of all layers that are propagated and filtered, and their tables.

Layers that store nothing share a `Prover`, so that all of them use what one has proved. A layer
that stores rows has one of its own: before the epoch its rows are looked up, afterwards proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tidelog.maintain.prover import Known, Prover
from tidelog.maintain.virtual import Virtual
from tidelog.plan.body import LoweredRule
from tidelog.plan.lowered import Layer, Lowered
from tidelog.plan.matching import rule_difference, shape
from tidelog.plan.propagation import PropagatedLayer
from tidelog.store.catalog import Catalog
from tidelog.store.versions import Version


class VirtualLayers:
    """Makes the strategies of the virtual layers of a program."""

    def __init__(self, catalog: Catalog, lowered: Lowered, before: Lowered | None = None) -> None:
        """Prepare; in an epoch that changes the program, `before` is the old one."""
        self._catalog, self._lowered = catalog, lowered
        self._before = lowered if before is None else before
        self._old = {n: layer for layer in self._before.layers for n in layer.relations}
        layers = [layer for layer in lowered.layers if layer.virtual is not None]
        self.names = _virtual(lowered)
        """The relations that are virtual."""
        self._shared = self._prover([layer for layer in layers if _stores_nothing(layer)])
        self.provers = [self._shared]
        """Their tables are cleared when an epoch ends."""

    def strategy(self, layer: Layer) -> Virtual:
        """Return the strategy of a layer; the rows of its virtual relations are computed by it."""
        assert layer.virtual is not None
        prover = self._shared
        if not _stores_nothing(layer):
            prover = self._prover([layer])
            self.provers.append(prover)
        for name in layer.virtual:
            self._catalog.computed[name] = partial(prover.rows, name)
        old, new = self._parts(layer)
        were_stored = (layer.virtual & self._old.keys()) - _virtual(self._before)
        has_changed = bool(old.changed or new.changed or were_stored)
        return Virtual(self._catalog, layer, prover, has_changed=has_changed)

    def serves(self, lowered: Lowered) -> bool:
        """Return whether all that is computed on demand is the same in another program."""
        if not self.names and all(layer.virtual is None for layer in lowered.layers):
            return True
        return _unstored_shapes(self._lowered) == _unstored_shapes(lowered)

    def can_follow(self, layer: Layer) -> bool:
        """Return whether a layer can follow the change of its rules.

        Otherwise it is computed as a whole, and compared. What is stored must have been stored as
        it is now, and what is not stored must have been derived by rules, or not at all.
        """
        assert layer.virtual is not None
        for name in layer.relations:
            before = self._old.get(name)
            if name not in layer.virtual:
                if before is None or before.virtual is None or name in before.virtual:
                    return False
            elif before is not None and before.virtual is None and not _has_only_rules(before):
                return False
        return True

    def _prover(self, layers: Sequence[Layer]) -> Prover:
        parts = [self._parts(layer) for layer in layers]
        own = {n for layer in layers for n in layer.relations}
        old = Known(self._before, [part for part, _ in parts], _on_demand(self._before))
        new = Known(self._lowered, [part for _, part in parts], _on_demand(self._lowered) | own)
        if self._before is self._lowered and new.on_demand == old.on_demand:
            old = new
        return Prover(self._catalog, {Version.OLD: old, Version.NEW: new})

    def _parts(self, layer: Layer) -> tuple[PropagatedLayer, PropagatedLayer]:
        """Return how a layer is propagated in the old and in the new version."""
        if self._before is self._lowered:
            part = PropagatedLayer(layer, layer.rules)
            return part, part
        kept, added, dropped = rule_difference(self._old_rules(layer), layer.rules)
        parts = [PropagatedLayer(layer, tuple(kept), tuple(rules)) for rules in (dropped, added)]
        return parts[0], parts[1]

    def _old_rules(self, layer: Layer) -> list[LoweredRule]:
        """Return the old rules of the relations of a layer."""
        old = {id(o): o for o in map(self._old.get, layer.relations) if o is not None}
        rules = [rule for o in old.values() for rule in o.rules]
        return [rule for rule in rules if rule.head.relation in layer.relations]


def _stores_nothing(layer: Layer) -> bool:
    return layer.virtual == frozenset(layer.relations)


def _virtual(lowered: Lowered) -> frozenset[str]:
    return frozenset(name for layer in lowered.layers for name in layer.virtual or ())


def _has_only_rules(layer: Layer) -> bool:
    others = (layer.aggregation, layer.recompute, layer.tree, layer.semi_join)
    return all(other is None for other in others) and not layer.judges


def _on_demand(lowered: Lowered) -> frozenset[str]:
    """Return the relations that are not stored: virtual ones, and those of join trees."""
    return _virtual(lowered) | {n for la in lowered.layers if la.tree for n in la.relations}


def _unstored_shapes(lowered: Lowered) -> dict[str, Any]:
    return {
        layer.relations[0]: shape(layer)
        for layer in lowered.layers
        if layer.virtual is not None or layer.tree is not None
    }
