"""A sharding in words."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.logic.program import Program, Relation
from tidelog.plan.sharding import NotSharded, Sharding, Version


def describe(program: Program, sharding: Sharding | NotSharded) -> list[str]:
    """Return where the rows of each relation are, a line each; or why they are in one place."""
    if isinstance(sharding, NotSharded):
        return [f"not sharded: {sharding.why}"]
    sides = " x ".join(map(str, sharding.grid.sides))
    lines = [f"{sharding.grid.shards} shards" + (f" ({sides})" if "x" in sides else "")]
    for name, relation in program.relations.items():
        places = [_place(relation, version) for version in sharding.versions_of(name)]
        lines.append(f"  {name}: {', and '.join(dict.fromkeys(places))}")
    lines += [f"  note: {doubt}" for doubt in sharding.doubts]
    return lines


def _place(relation: Relation, version: Version) -> str:
    if version.is_whole:
        return "whole in every shard"
    if version.is_scattered:
        return "where it is found, counted once"
    return " x ".join(_sides(relation, version))


def _sides(relation: Relation, version: Version) -> Iterator[str]:
    for column in version.placement:
        yield "all" if column is None else f"by {relation.columns[column].name}"
