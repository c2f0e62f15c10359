"""A description of how the kernel maintains relations: strategies, orders, plans and costs.

With a database the statistics are those of its data. Without one all relations are assumed to have
the same size. That shows how rules are joined, though not always in which order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidelog.database.plan_words import RuleWords
from tidelog.engine.report import EpochReport
from tidelog.join.compiler import BATCH
from tidelog.join.joins import HEAD, RuleJoin
from tidelog.kernel.join_layout import PLAIN
from tidelog.logic.program import Program
from tidelog.maintain.aggregations import class_of
from tidelog.maintain.complement_bootstrap import ComplementBootstrap
from tidelog.maintain.leapfrog import RuleTraces
from tidelog.plan.body import LoweredRule
from tidelog.plan.lowered import Aggregation, Layer
from tidelog.plan.order import Stats
from tidelog.plan.planned import planned
from tidelog.plan.theta.choice import Refused, tree_shapes
from tidelog.plan.theta.drawing import drawn
from tidelog.plan.theta.join_tree import analyse_joins
from tidelog.plan.theta.picture import TreePicture, tree_picture
from tidelog.plan.theta.query import ThetaQuery, theta_query
from tidelog.store.catalog import Catalog
from tidelog.store.codec import Codec

_ROWS, _DISTINCT = 10_000.0, 1_000.0

_WHY_VIRTUAL = "it is not stored; its changes are propagated and filtered"
_WHY_STORED = "it reads what is not stored; its changes are propagated and filtered"
_WHY_TREE = "its rows are enumerated from a join tree when they are read"
_WHY_ELASTIC = {False: "it depends on itself", True: "they depend on each other"}


@dataclass(frozen=True)
class _Join:
    """One way to join a rule: when it is used, and its plan."""

    when: str
    join: RuleJoin


class KernelDetails:
    """What the kernel does for each relation. `last` is None when there is no data."""

    def __init__(self, program: Program, catalog: Catalog, last: EpochReport | None) -> None:
        self._program, self._catalog, self._last = program, catalog, last
        self._layer_of = {
            name: layer for layer in catalog.lowered.layers for name in layer.relations
        }

    # --- one relation ---

    def size(self, relation: str) -> str:
        """Return the number of rows."""
        if self._last is None:
            return ""
        if self._catalog.tree_of(relation) is not None:
            return "rows are not stored"
        rows = len(self._catalog.relations[relation])
        return f"{rows:,} row{'s' * (rows != 1)}"

    def strategy(self, relation: str) -> tuple[str, str]:
        """Return how a derived relation is maintained, and why."""
        layer = self._layer_of[relation]
        if layer.aggregation is not None:
            strategy = class_of(layer.aggregation)
            return strategy.name, strategy.why
        name, why = self._default(relation)
        if layer.strategy is None:
            return name, why
        if layer.strategy == name:
            why = f"forced, and the default: {why}"
        else:
            why = f"forced; the default is {name}: {why}"
        if self.aggregates(relation):
            why += "; the strategies of its aggregates are fixed"
        return layer.strategy, why

    def _default(self, relation: str) -> tuple[str, str]:
        """Return how a relation is maintained if nothing is forced, and why."""
        (stratum,) = (s for s in self._program.strata if relation in s.relations)
        layer = self._layer_of[relation]
        if layer.virtual is not None:
            is_stored = relation not in layer.virtual
            return "virtual", _WHY_STORED if is_stored else _WHY_VIRTUAL
        if layer.recompute is not None and layer.recompute.candidates:
            return "recompute", "its candidates are found in rounds, and only some are kept"
        if layer.recompute is not None and layer.recompute.groups:
            return "recompute", "an aggregate in it is grouped by what only its recursion binds"
        if layer.pruned:
            return "counting", "its candidates are stored, and those that it keeps"
        if stratum.recursive:
            return "elastic", _WHY_ELASTIC[len(stratum.relations) > 1]
        if layer.tree is not None and (
            layer.strategy is None or any(map(_has_inequality, layer.tree.wholes))
        ):
            return "theta-tree", _WHY_TREE
        # A rule that was unfolded has others beside it, which read given rows.
        rules = tuple(r for r in _rules(layer) if not any("@given" in a.relation for a in r.atoms))
        if layer.tree is not None or not any(map(_has_inequality, rules)):
            return "counting", "it does not depend on itself"
        plain = Layer(layer.relations, rules, False, judges=layer.judges, errors_of=layer.errors_of)
        shapes = tree_shapes(self._catalog.lowered, plain)
        if isinstance(shapes, Refused):
            return "counting", f"it does not depend on itself; it is stored, because {shapes.why}"
        return "theta-tree", _WHY_TREE

    def aggregates(self, relation: str) -> list[str]:
        """Return the class and the state of each aggregate in the rules of a derived relation."""
        lines = []
        for layer in self._layers(relation):
            if layer.aggregation is None:
                continue
            for part in layer.aggregation.each:
                by = ", ".join(n for n in part.variables if not n.startswith("$"))
                what = f"{part.op}{f' by {by}' if by else ''}"
                lines.append(f"{what} maintained by {class_of(layer.aggregation).in_words()}")
        return list(dict.fromkeys(lines))

    def history(self, relation: str) -> list[str]:
        """Return what the last epoch did, the kernel's own relations included."""
        if self._last is None:
            return []
        when = f"epoch {self._last.epoch}" if self._last.epoch else "first evaluation"
        lines = []
        for layer in self._layers(relation):
            report = self._last.layer(layer.relations[0])
            if report is None:
                continue
            why = f" ({report.why})" if report.why and self._last.epoch else ""
            facts = [
                f"{report.seconds * 1e3:,.1f} ms",
                f"+{report.inserted:,} -{report.deleted:,} rows",
                f"{report.touched:,} instantiations",
            ]
            if report.strategy == "virtual" and report.choice == "update":
                facts.append(f"{report.propagated:,} propagated")
                facts.append(f"{report.filtered:,} filtered")
                facts.append(f"{report.disqualified:,} disqualified")
            facts += [f"{report.levels:,} levels"] if report.levels else []
            facts += [report.work] if report.work else []
            shown = [f"{report.choice}{why}", *(facts if report.choice != "nothing to do" else [])]
            helper = "" if relation in layer.relations else f" for {', '.join(layer.relations)}"
            lines.append(f"{when}{helper}: {', '.join(shown)}")
        return lines

    def plans(self, relation: str) -> list[str]:
        """Return the plans of all joins, those of the kernel's own relations first."""
        lines = []
        for layer in self._layers(relation):
            if layer.aggregation is not None:
                lines.append(self._aggregation(layer.aggregation))
                continue  # its rules are run from what it looks up
            for rule in _rules(layer):
                if rule.atoms and rule.atoms[0].relation in self._catalog.lowered.facts:
                    continue  # facts of the program never change
                words = self._words(rule)
                lines.append(f"joins for {words.rule()}")
                complement = (
                    None if layer.recursive else ComplementBootstrap.of(self._catalog, rule)
                )
                if complement is not None and complement.pays:
                    whole, part = (words.atom(atom).removeprefix("!") for atom in complement.atoms)
                    lines.append(f"  at first: what {part} lacks of {whole}, found by counting")
                for way in self._joins(layer, rule):
                    if complement is not None and complement.pays and way.join.driver is None:
                        continue
                    cost = sum(stage.program.plan.cost for stage in way.join.stages)
                    lines.append(f"  {way.when}: {_steps(words, way.join)}  (cost {_cost(cost)})")
                lines += [f"  {line}" for line in self._join_tree(words, rule)]
        return lines

    def _join_tree(self, words: RuleWords, rule: LoweredRule) -> list[str]:
        """Return the shape of a join with inequalities; nothing for other rules.

        It says how the result could be represented. The strategy is that of the relation.
        """
        query = _query(words, rule)
        if query is None or not query.joins_by_inequality:
            return []
        title, *tree = drawn(analyse_joins(query))
        return [f"shape: {title}", *(f"  {line}" for line in tree)]

    def join_trees(self, relation: str) -> list[TreePicture]:
        """Return pictures of the joins of positive atoms by which a relation is derived."""
        found = []
        layer = self._layer_of[relation]
        rules = _rules(layer) if layer.tree is None else iter(layer.tree.wholes)
        for rule in rules:
            words = self._words(rule)
            query = _query(words, rule) if rule.head.relation == relation else None
            if query is not None and len(query.atoms) > 1:
                found.append(tree_picture(words.rule(), query))
        return found

    def _words(self, rule: LoweredRule) -> RuleWords:
        return RuleWords(rule, self._catalog.lowered.relations, self._program.records)

    def _aggregation(self, aggregation: Aggregation) -> str:
        group = ", ".join(self._column(aggregation.source, c) for c in aggregation.group)
        by = f" by {group}" if group else ""
        what = ", ".join(part.op for part in aggregation.each)
        return (
            f"{aggregation.result}: {what} over {aggregation.source}{by};"
            f" {class_of(aggregation).why}"
        )

    def _column(self, relation: str, column: int) -> str:
        declared = self._program.relations.get(relation)
        return str(column + 1) if declared is None else declared.columns[column].name

    def _layers(self, relation: str) -> list[Layer]:
        """Return the layer of a relation, after those of the helper relations that feed it."""
        found: dict[int, Layer] = {}

        def add(layer: Layer) -> None:
            if id(layer) in found:
                return
            for name in _reads(layer):
                own = "@" in name and name not in layer.relations
                if own and name not in self._catalog.lowered.facts:
                    add(self._layer_of[name])
            found[id(layer)] = layer

        add(self._layer_of[relation])
        return list(found.values())

    # --- joins ---

    def _joins(self, layer: Layer, rule: LoweredRule) -> Iterator[_Join]:
        """Yield the ways in which a rule is joined."""

        def way(when: str, driver: int | None) -> _Join:
            return _Join(when, RuleJoin(self._catalog, rule, driver, PLAIN, 1))

        if not rule.atoms:
            return
        words = self._words(rule)
        yield way("at first" if layer.recompute is None else "whenever something changes", None)
        if layer.recompute is not None:
            return
        for place, atom in enumerate(rule.atoms):
            changed = words.atom(atom).removeprefix("!")
            yield way(f"when {changed} changes", place)
        if layer.recursive:
            yield way("to derive a lost row again", HEAD)

    # --- orders ---

    def footer(self, relations: Sequence[str], *, helpers: bool) -> list[str]:
        """Return the orders in which the relations are stored."""
        layers = {
            id(layer): layer
            for name in relations
            if name in self._layer_of
            for layer in self._layers(name)
        }
        own = [n for la in layers.values() for n in la.relations if n not in relations]
        shown = [*relations, *own] if helpers else relations
        if self._last is None:
            planned = self._planned_orders(layers.values())
            return self._listed(
                "orders that joins ask for, beside the declared one:",
                {name: self._asked(name, planned.get(name, set())) for name in shown},
            )
        lines = self._listed("orders kept:", {name: self._kept(name) for name in shown})
        if own and not helpers:
            size = _bytes(sum(self._catalog.relations[name].nbytes for name in own))
            lines.append(f"  and {len(own)} of the kernel's own, for aggregates: {size}")
        return lines

    def _listed(self, title: str, orders: Mapping[str, list[str]]) -> list[str]:
        lines = [f"  {name}: {', '.join(shown)}" for name, shown in orders.items() if shown]
        return [title, *lines] if lines else []

    def _asked(self, name: str, planned: set[tuple[int, ...]]) -> list[str]:
        declared = tuple(range(max(1, len(self._catalog.types(name)))))
        return [self._order(name, order) for order in sorted(planned) if order != declared]

    def _kept(self, name: str) -> list[str]:
        stored, given = self._catalog.relations[name], self._catalog.given[name]
        shown = [
            f"{self._order(name, order)} {_bytes(index.nbytes)}"
            for order, index in stored.indexes.items()
        ]
        for follower in stored.followers.values():
            if isinstance(follower, RuleTraces):
                size = _bytes(follower.nbytes)
                read = sum(self._catalog.relations[name].nbytes for name in follower.reads)
                times = f" ({follower.nbytes / read:,.1f} times what is read)" if read else ""
                shown.append(f"{follower.intervals:,} intervals of traces {size}{times}")
        if given is not stored and given.nbytes:
            shown.append(f"given rows apart {_bytes(given.nbytes)}")
        return shown

    def _order(self, relation: str, order: tuple[int, ...]) -> str:
        width = len(self._catalog.types(relation))
        return f"({', '.join(self._column(relation, c) for c in order[:width])})"

    def _planned_orders(self, layers: Iterable[Layer]) -> dict[str, set[tuple[int, ...]]]:
        """Return the orders in which plans read relations, except those of changes."""
        found: dict[str, set[tuple[int, ...]]] = {}
        for layer in layers:
            ranged = None if layer.aggregation is None else layer.aggregation.ranged
            for read in () if ranged is None else filter(None, ranged.reads):
                width = len(self._catalog.types(read.relation))
                first = (*(column for _, column in read.keys), read.column)
                others = (c for c in range(width) if c not in first)
                found.setdefault(read.relation, set()).add((*first, *others))
            for rule in layer.rules if ranged is None else ():
                for way in self._joins(layer, rule):
                    for relation, order in _orders(way.join):
                        found.setdefault(relation, set()).add(order)
            if layer.aggregation is not None and class_of(layer.aggregation).reads_source:
                source, group = layer.aggregation.source, layer.aggregation.group
                width = len(self._catalog.types(source))
                rest = tuple(c for c in range(width) if c not in group)
                found.setdefault(source, set()).add((*group, *rest))
        return found


def details_without_data(program: Program) -> KernelDetails:
    """Return what the kernel would do, with statistics that are the same for all relations."""
    return KernelDetails(program, _Imagined(planned(program), Codec(program.records)), None)


class _Imagined(Catalog):
    """A catalog without rows, whose statistics assume some."""

    def stats(self, name: str) -> Stats:
        return Stats(_ROWS, (_DISTINCT,) * max(1, len(self.types(name))))


def _has_inequality(rule: LoweredRule) -> bool:
    query = theta_query(rule)
    return query is not None and query.joins_by_inequality


def _query(words: RuleWords, rule: LoweredRule) -> ThetaQuery | None:
    return theta_query(rule, words.condition, lambda number: words.atom(rule.atoms[number]))


def _rules(layer: Layer) -> Iterator[LoweredRule]:
    """Yield the rules of a layer, also if it is re-evaluated because that is forced."""
    yield from layer.rules
    if layer.recompute is not None and not layer.recompute.inserted:
        for inner in layer.recompute.program.layers:
            yield from inner.rules


def _reads(layer: Layer) -> Iterator[str]:
    if layer.aggregation is not None:
        yield layer.aggregation.source
    for rule in _rules(layer):
        for atom in rule.atoms:
            yield atom.relation


def _steps(words: RuleWords, join: RuleJoin) -> str:
    parts = []
    for stage in join.stages:
        parts.append(words.plan(stage.program.plan, BATCH))
        if stage.externals:
            parts.append(words.externals(stage.externals))
    return "; then ".join(filter(None, parts))


def _orders(join: RuleJoin) -> Iterator[tuple[str, tuple[int, ...]]]:
    for stage in join.stages:
        plan = stage.program.plan
        for i, (atom, order) in enumerate(zip(plan.atoms, plan.orders, strict=True)):
            if atom.relation != BATCH and i != plan.driver:
                yield atom.relation, order


def _cost(steps: float) -> str:
    return f"{steps:,.0f}" if steps < 1e9 else f"{steps:.1e}"


def _bytes(count: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if count < 10_000:
            return f"{count:,} {unit}"
        count = round(count / 1000)
    return f"{count:,} GB"
