"""Which rows of a program each shard holds, stage by stage: the plan of a sharded pipeline.

The program is computed in one stage if that keeps no relation whole in every shard. If it does,
the layout is improved step by step: each step cuts the program at one more relation, or splits one
more rule (splitting.py), whichever makes the shares smallest. An exchange costs something in every
epoch, so a step must gain more than that.

The sizes of relations are not known here. Derived relations count less than given ones, and
aggregates hardly at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from tidelog.logic import program as p
from tidelog.logic.stratify import dependencies
from tidelog.sharding.key_relations import is_hidden, without_upserts
from tidelog.sharding.search import grids, not_virtual, on_grid, refused
from tidelog.sharding.sharding import Grid, NotSharded, Sharding, Variant
from tidelog.sharding.splitting import Split, splits
from tidelog.sharding.stages import GROUPS, JOIN, SENT, Exchange, counted, cut, is_partial

_EXCHANGE = 0.2  # cost of an exchange
_STAGE = 0.2  # cost of one more stage
_JOINED, _DERIVED, _AGGREGATED = (
    0.5,
    0.3,
    0.05,
)  # the size of such a relation; that of a given one is 1
_STEPS = 8
_MOST_SEARCHES = 150


@dataclass(frozen=True)
class ShardLayout:
    """The stages of a program, and how each is sharded."""

    grid: Grid
    programs: tuple[p.Program, ...]
    shardings: tuple[Sharding, ...]
    home: Mapping[str, int]
    """The stage of each relation."""
    exchanges: tuple[Exchange, ...]
    sizes: Mapping[str, float]
    """The assumed sizes of all relations; that of a given one is 1."""

    @cached_property
    def shown(self) -> Mapping[str, Variant]:
        """The variant that the view of each relation shows, in its own stage."""
        return {name: self.shardings[stage].shown[name] for name, stage in self.home.items()}

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons against sharding a program that can be sharded."""
        stages = range(len(self.shardings))
        return tuple(doubt for stage in stages for doubt in self.doubts_of(stage))

    def doubts_of(self, stage: int) -> Iterator[str]:
        """Yield why relations of a stage are whole in every shard, but for small ones."""
        sharding = self.shardings[stage]
        for name, doubt in sharding.doubts.items():
            reads = [
                read.relation.removesuffix(SENT)
                for (variant, _), variants in sharding.rules.items()
                if variant.relation == name
                for read in variants
            ]
            if any(self.sizes.get(read, 0) > _AGGREGATED for read in reads):
                yield doubt

    def variants(self) -> Iterator[Variant]:
        """Yield the variants of all stages."""
        for sharding in self.shardings:
            yield from sharding.variants

    def whole(self) -> Iterator[str]:
        """Yield the relations that every shard has all rows of."""
        for variant in self.variants():
            if variant.is_whole and not is_hidden(variant.relation):
                yield variant.relation


def lay_out(program: p.Program, shards: int) -> ShardLayout | NotSharded:
    """Return how to compute a program in a number of shards, or why not."""
    why = refused(program)
    if why is not None:
        return why
    found: tuple[float, ShardLayout] | None = None
    for grid in grids(program, shards):
        cost, layout = _cheapest(program, grid)
        if found is None or cost < found[0]:
            found = cost, layout
    assert found is not None
    layout = found[1]
    if program.relations and set(layout.whole()) >= set(program.relations):
        return NotSharded(
            "every shard would need all rows of all relations"
            + "".join(f"; {doubt}" for doubt in layout.doubts[:1])
        )
    virtual = not_virtual(program, layout.shardings[0])
    return layout if virtual is None else NotSharded(virtual)


def layout_on(program: p.Program, grid: Grid) -> ShardLayout:
    """Return the cheapest layout on a grid, the same one each time for the same program."""
    return _cheapest(program, grid)[1]


def _cheapest(program: p.Program, grid: Grid) -> tuple[float, ShardLayout]:
    split = Split(program, frozenset())
    best = laid_out(split, grid)
    assert best is not None
    is_virtual = any(view.virtual for view in program.views.values())
    if len(grid.sides) > 1 or grid.shards < 2 or is_virtual:  # a view is proved within one stage
        return best
    searches = 0
    for _ in range(_STEPS):
        if not any(best[1].whole()):
            break
        found = None
        for step in steps(split):
            searches += 1
            made = laid_out(step, grid)
            if made is None or made[0] >= best[0]:
                pass
            elif found is None or made[0] < found[0][0]:
                found = made, step
            if searches >= _MOST_SEARCHES:
                break
        if found is None:
            break
        best, split = found
    return best


def steps(split: Split) -> Iterator[Split]:
    """Yield the program with one more cut or split."""
    program = split.program
    own = without_upserts(program)
    read = {need.relation for rule in own.rules for need in dependencies(rule.body)}
    for name in program.relations:
        if name in read and name in program.derived and name not in split.cuts:
            yield replace(split, cuts=split.cuts | {name})
    for more in splits(program):
        yield replace(more, cuts=more.cuts | split.cuts)


def laid_out(split: Split, grid: Grid) -> tuple[float, ShardLayout] | None:
    """Return the layout of a program that is cut at some relations, and its cost.

    There is none if partial results would be the same in all shards.
    """
    stages = cut(split.program, split.cuts)
    number = max((rule.id for rule in split.program.rules), default=-1) + 1
    programs: list[p.Program] = []
    shardings: list[Sharding] = []
    exchanges: list[Exchange] = []
    for stage, program in enumerate(stages.programs):
        received = program
        for exchange in stages.into(stage):
            scattered = shardings[exchange.source].shown[exchange.relation].is_scattered
            exchanges.append(replace(exchange, is_counted=scattered))
            if scattered:
                received = counted(received, exchanges[-1], number)
                number += 1
        sharding = on_grid(received, grid)
        if sharding is None:
            return None
        programs.append(received)
        shardings.append(sharding)
    layout = ShardLayout(
        grid, tuple(programs), tuple(shardings), stages.home, tuple(exchanges),
        _sizes(split.program),
    )  # fmt: skip
    return _cost(layout), layout


def _cost(layout: ShardLayout) -> float:
    """Return the rows that all shards hold together, and what exchanges cost."""
    cost = _STAGE * len(layout.programs) + _EXCHANGE * len(layout.exchanges)
    for variant in layout.variants():
        size = layout.sizes.get(variant.relation.removesuffix(SENT), 0)
        cost += size * layout.grid.share(variant.partitioning) * layout.grid.shards
    return cost


def _sizes(program: p.Program) -> dict[str, float]:
    found = {name: 0.0 if is_hidden(name) else 1.0 for name in program.relations}
    for rule in program.rules:
        name = rule.head.relation
        if is_hidden(name):
            continue
        reduces = any(isinstance(literal, p.Reduce) for literal in rule.body)
        is_projection = len(rule.body) == 1 and GROUPS in name
        few = reduces or is_projection or is_partial(name)
        many = _JOINED if JOIN in name or GROUPS in name else _DERIVED
        found[name] = min(found[name], _AGGREGATED if few else many)
    return found
