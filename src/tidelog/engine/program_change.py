"""A change of the program, as part of an epoch: live rules.

The new program is lowered and compared with the old one, layer by layer (plan/matching.py).
Relations of both keep their rows, and layers that are the same their strategies. The others are
brought up to date as maintain/changed_layers.py describes. Until the epoch commits, the relations
of both programs can be read; if it fails, the old program is in place again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tidelog.logic.program import Program
from tidelog.maintain.aggregations import class_of
from tidelog.maintain.changed_layers import NewLayer, RebuiltLayer, StrategyOf, guarded
from tidelog.maintain.elastic import Elastic
from tidelog.maintain.recompute import Recompute
from tidelog.maintain.strategy import UPDATE, Strategy
from tidelog.maintain.sums import Sums
from tidelog.maintain.virtual import Virtual
from tidelog.maintain.virtual_layers import VirtualLayers
from tidelog.plan.lowered import Layer, Lowered, is_only_copied
from tidelog.plan.matching import alike, rule_difference, shape
from tidelog.plan.traces import NAME as LEAPFROG
from tidelog.store.catalog import Catalog
from tidelog.store.relation import StoredRelation
from tidelog.store.versions import Delta, Version
from tidelog.values.types import Row

Array = NDArray[np.int64]
Layers = list[tuple[Layer, Strategy]]
_NO_ROWS = np.zeros((1, 0), np.int64)
_ONE_ROW = np.zeros((1, 1), np.int64)
_NO_RULES = "no rules"
_PLAIN = ("counting", "elastic", "judging", "errors")


def functional_relations(program: Program) -> frozenset[str]:
    """Return the functional relations of a program."""
    return frozenset(r.name for r in program.relations.values() if r.functional)


def recomputed(layers: Iterable[tuple[Layer, Strategy]], name: str) -> Recompute | None:
    """Return what re-evaluates a relation, if something does."""
    for layer, strategy in layers:
        if name in layer.relations:
            inner: Strategy | None = strategy
            if isinstance(strategy, NewLayer | RebuiltLayer):
                inner = strategy.strategy
            return inner if isinstance(inner, Recompute) else None
    return None


class ProgramChange:
    """One change of program, from its beginning to its commit or its abort."""

    def __init__(
        self,
        catalog: Catalog,
        layers: Sequence[tuple[Layer, Strategy]],
        lowered: Lowered,
        program: Program,
        strategy_of: StrategyOf,
        virtual: VirtualLayers,
    ) -> None:
        """Take over the new program, beside the old one; `virtual` are the old virtual layers.

        `lowered` is what `program` becomes.
        """
        checked = functional_relations(program)
        self._catalog, self._stored_strategy_of = catalog, strategy_of
        self._old = {n: (layer, strategy) for layer, strategy in layers for n in layer.relations}
        self._toggles: list[tuple[StoredRelation, bool]] = []
        passed_on = {relation.name for relation in catalog.passed_on}
        before = catalog.lowered
        bare = {name: layer for layer in before.layers for name in layer.relations}

        known = {shape(rule) for layer in before.layers for rule in layer.rules}

        def can_keep(whole: Lowered, layer: Layer) -> bool:
            # Sums that are only copied store no rows. A new reader would find none.
            aggregation = None if layer.virtual is not None else layer.aggregation
            if aggregation is None or not issubclass(class_of(aggregation), Sums):
                return True
            result = aggregation.result
            if result not in bare:
                return True
            if result not in passed_on:
                return bool(checked) or not is_only_copied(whole, result)
            readers = [r for la in whole.layers for r in la.rules if result in r.reads]
            copied = not checked and is_only_copied(whole, result)
            return copied and all(shape(rule) in known for rule in readers)

        found = alike(lowered, before, can_keep, program.relations)
        self.names = found.names
        """For each relation with another name than its program alone gives it: that name."""
        self._bare = bare
        self._change = catalog.begin_change(found.lowered, checked)
        try:
            self._facts = _changed_facts(catalog, before, found.lowered)
            self.virtual = virtual
            """The virtual layers, with the rules of both programs where these differ."""
            self._keeps_virtual = virtual.serves(found.lowered)
            if not self._keeps_virtual:
                self.virtual = VirtualLayers(catalog, found.lowered, before)
            self.layers: Layers = []
            """What the epoch runs."""
            for layer in found.lowered.layers:
                strategy = self._strategy_in_epoch(layer)
                if strategy is not None:
                    self.layers.append((layer, strategy))
        except BaseException:
            self.undo()
            raise
        self.final: Layers = []
        """What maintains the layers afterwards."""
        self.final_virtual = virtual
        """The virtual layers afterwards."""

    @property
    def new(self) -> frozenset[str]:
        """The relations that the old program does not have."""
        return self._change.new

    # --- the epoch ---

    def _strategy_in_epoch(self, layer: Layer) -> Strategy | None:
        """Return what brings a layer up to date; None if it has no rules, before and after."""
        catalog, old = self._catalog, {id(o): o for o in map(self._bare.get, layer.relations)}
        (before,) = old.values() if len(old) == 1 else (None,)
        if before is None and list(old.values()) == [None]:
            strategy = self._strategy_of(catalog, layer)
            return None if strategy is None else NewLayer(strategy)
        if layer.virtual is not None and not self._keeps_virtual:
            if self.virtual.can_follow(layer):
                return self.virtual.strategy(layer)
            return RebuiltLayer(catalog, layer, self._strategy_of, _kind(layer))
        if before is not None and shape(before) == shape(layer):
            _, kept = self._old.get(layer.relations[0], (layer, None))
            return kept
        if before is not None and set(before.relations) == set(layer.relations):
            kinds = {_kind(before), _kind(layer)} - {_NO_RULES}
            if len(kinds) == 1 and kinds <= set(_PLAIN):
                strategy = self._strategy_of(catalog, self._guarded(before, layer))
                return self._like_before(layer, strategy)
        return RebuiltLayer(catalog, layer, self._strategy_of, _kind(layer))

    def _strategy_of(self, catalog: Catalog, layer: Layer) -> Strategy | None:
        if layer.virtual is not None:
            return self.virtual.strategy(layer)
        return self._stored_strategy_of(catalog, layer)

    def _guarded(self, before: Layer, layer: Layer) -> Layer:
        """Return a layer with a toggle for each rule that is added or dropped."""
        kept, added, dropped = rule_difference(before.rules, layer.rules)
        whole = layer if layer.rules else before
        rules = list(kept)
        for rule in added:
            rules.append(guarded(rule, self._toggle(True), is_first=whole.recursive))
        for rule in dropped:
            rules.append(guarded(rule, self._toggle(False), is_first=True))
        return Layer(
            layer.relations, tuple(rules), whole.recursive,
            judges=whole.judges, errors_of=whole.errors_of, strategy=whole.strategy or _kind(whole),
        )  # fmt: skip

    def _toggle(self, is_added: bool) -> str:
        name = f"rule@{len(self._toggles)}"
        self._toggles.append((self._catalog.add_toggle(name, is_on=not is_added), is_added))
        return name

    def start(self) -> None:
        """Flip the toggles, and change the program's facts: at the start of each attempt."""
        for toggle, is_added in self._toggles:
            gained, lost = (_ONE_ROW, _NO_ROWS) if is_added else (_NO_ROWS, _ONE_ROW)
            toggle.record(toggle.change(gained, lost))
        catalog = self._catalog
        for name, (more, less) in self._facts.items():
            relation = catalog.relations[name]
            relation.record(relation.change(catalog.pack(name, more), catalog.pack(name, less)))

    def fit(self) -> None:
        """Make room for the program's new facts. Between epochs only."""
        for name, (more, _) in self._facts.items():
            self._catalog.fit(name, more)

    def complete(self) -> None:
        """Make the strategies that maintain the layers from now on, before the commit."""
        self.final = []
        self.final_virtual = self.virtual
        if not self._keeps_virtual:
            self.final_virtual = VirtualLayers(self._catalog, self._catalog.lowered)
        for layer, strategy in self.layers:
            final = self._final(layer, strategy)
            if final is not None:
                self.final.append((layer, final))
        for relation in self._catalog.passed_on:
            if relation.name in self._change.new:
                relation.replace_runs([])  # only its bootstrap has needed its rows
        for name in self._change.new:
            # Its readers have needed no delta; but its rows are a change of the epoch.
            relation = self._catalog.relations[name]
            if "@" not in name and not relation.delta:
                rows = self._catalog.rows_of(name, Version.NEW)
                relation.record(Delta(rows, relation.no_rows()))

    def _final(self, layer: Layer, strategy: Strategy) -> Strategy | None:
        if layer.virtual is not None and not self._keeps_virtual:
            return self.final_virtual.strategy(layer)
        if isinstance(strategy, NewLayer):
            final: Strategy | None = strategy.strategy
        else:
            _, before = self._old.get(layer.relations[0], (layer, None))
            if strategy is before:
                return strategy
            final = self._like_before(layer, self._strategy_of(self._catalog, layer))
        if final is not None and strategy.choice.what == UPDATE.what:
            final.prepare()
        return final

    def _like_before(self, layer: Layer, strategy: Strategy | None) -> Strategy | None:
        """Let a strategy know what its predecessor has learned."""
        _, before = self._old.get(layer.relations[0], (layer, None))
        if strategy is not None and before is not None and strategy.name == before.name:
            strategy.restore_statistics(before.statistics())
            strategy.reuse(before)
            if isinstance(strategy, Elastic) and isinstance(before, Elastic):
                strategy.budget = before.budget
        return strategy

    # --- its end ---

    def finish(self) -> None:
        """Forget the old program, after the commit."""
        self._catalog.finish_change(self._change)

    def undo(self) -> None:
        """Put the old program in place again, after the relations have been restored."""
        self._catalog.undo_change(self._change)


def _kind(layer: Layer) -> str:
    """Return the name of the strategy that maintains a layer."""
    if layer.virtual is not None:
        return Virtual.name
    if layer.recompute is not None:
        return "recompute"
    if layer.aggregation is not None:
        return class_of(layer.aggregation).name
    if not layer.rules:
        return _NO_RULES
    if layer.pruned:
        return "counting of candidates"  # given rows count in another relation
    if layer.judges:
        return "judging" if layer.errors_of is None else "errors"
    if layer.tree is not None:
        return "theta-tree"
    if layer.semi_join is not None:
        return "semi-join"
    if layer.strategy == LEAPFROG:
        return LEAPFROG
    return "elastic" if layer.recursive else "counting"


def _changed_facts(
    catalog: Catalog, before: Lowered, after: Lowered
) -> dict[str, tuple[Array, Array]]:
    """Return the facts that the program has got and lost, as columns of ordinals."""
    found = {}
    for name, rows in after.facts.items():
        new, old = (_row_set(catalog, name, held) for held in (rows, before.facts.get(name, ())))
        if new != old:
            height = len(catalog.domains(name))
            found[name] = (_columns(new - old, height), _columns(old - new, height))
    return found


def _row_set(catalog: Catalog, name: str, rows: Iterable[Row]) -> set[tuple[int, ...]]:
    return set(map(tuple, catalog.encode(name, list(rows)).T.tolist()))


def _columns(rows: set[tuple[int, ...]], height: int) -> Array:
    return np.ascontiguousarray(np.array(sorted(rows), np.int64).reshape(-1, height).T)
