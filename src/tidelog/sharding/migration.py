"""Changing the program of a state in shards, without moving rows between them.

Each shard applies the difference to its own program as an epoch. That is right if every row stays
where it is: a relation that has rows from sources needs the same partitionings as before. What
rules derive can get another one, because its rows are derived there.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.errors import UsageError
from tidelog.logic.program import Program
from tidelog.sharding.search import not_virtual
from tidelog.sharding.sharding import Sharding

_HELP = "\n  help: `tidelog pipeline rescale` evaluates the new program on the given rows"


def check_migration(old: Program, before: Sharding, new: Program, after: Sharding) -> None:
    """Raise UsageError if rows would have to move between shards."""
    why = not_virtual(new, after)
    if why is not None:
        raise UsageError(why)
    for name in new.relations.keys() & old.relations.keys():
        was, now = set(before.variants_of(name)), set(after.variants_of(name))
        is_derived = name in old.derived and name in new.derived
        if before.shown[name] != after.shown[name] or (was != now and not is_derived):
            raise UsageError(f"the new program needs rows of `{name}` in other shards{_HELP}")


def differently_held(before: Sharding, after: Sharding) -> Iterator[str]:
    """Yield the relations that get another partitioning: they must not have given rows."""
    for name in after.shown.keys() & before.shown.keys():
        if set(before.variants_of(name)) != set(after.variants_of(name)):
            yield name


def given_rows_would_move(name: str) -> UsageError:
    """Return the error for such a relation that has given rows."""
    return UsageError(f"the new program needs given rows of `{name}` in other shards{_HELP}")


def rows_are_exchanged() -> UsageError:
    """Return the error for a program, old or new, that has several stages."""
    return UsageError(f"the shards exchange rows, and another program exchanges others{_HELP}")
