"""Say where the rows of each relation are, for `pipeline check` and `explain`."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.logic.program import Relation
from tidelog.sharding.key_relations import is_hidden
from tidelog.sharding.layout import ShardLayout
from tidelog.sharding.sharding import NotSharded, Variant
from tidelog.sharding.stages import Exchange, shown_name


def describe(layout: ShardLayout | NotSharded) -> list[str]:
    """Say what each stage holds and what is exchanged, or why the program is not sharded."""
    if isinstance(layout, NotSharded):
        return [f"not sharded: {layout.why}"]
    sides = " x ".join(map(str, layout.grid.sides))
    title = f"{layout.grid.shards} shards" + (f" ({sides})" if "x" in sides else "")
    if len(layout.programs) == 1:
        return [title, *(f"  {line}" for line in _stage(layout, 0))]
    lines = [f"{title}, {len(layout.programs)} stages"]
    for stage in range(len(layout.programs)):
        lines += [f"  exchange of {_sent(e)}" for e in layout.exchanges if e.target == stage]
        lines.append(f"  stage {stage + 1}")
        lines += [f"    {line}" for line in _stage(layout, stage)]
    return lines


def _stage(layout: ShardLayout, stage: int) -> Iterator[str]:
    sharding = layout.shardings[stage]
    for name, relation in layout.programs[stage].relations.items():
        if not is_hidden(name):
            places = [_place(relation, variant) for variant in sharding.variants_of(name)]
            yield f"{shown_name(name)}: {', and '.join(dict.fromkeys(places))}"
    for doubt in layout.doubts_of(stage):
        yield f"note: {doubt}"


def _sent(exchange: Exchange) -> str:
    counted = ", counted by shard" if exchange.is_counted else ""
    return f"{shown_name(exchange.relation)}, from stage {exchange.source + 1}{counted}"


def _place(relation: Relation, variant: Variant) -> str:
    if variant.is_whole:
        return "whole in every shard"
    if variant.is_scattered:
        return "where it is derived, counted once"
    return " x ".join(_sides(relation, variant))


def _sides(relation: Relation, variant: Variant) -> Iterator[str]:
    for column in variant.partitioning:
        yield "all" if column is None else f"by {relation.columns[column].name}"
