"""Looks for the cheapest way to compute a program in shards.

What a version costs is the part of the relation that one shard has, and what the versions cost that
its rules read. It is worked out stratum by stratum; within one that is recursive, versions are
assumed to be possible until a rule shows that they are not. Then versions are asked for from the
last stratum down: a relation whose rules or readers have asked for one already shows that.

Sizes are not known here: a relation counts as one, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product

from tidelog.logic.program import Program, Reduce, Rule, Stratum
from tidelog.plan.sharding import SCATTERED, Grid, NotSharded, Placement, Sharding, Version
from tidelog.plan.sharding_rules import Choice, Cost, ShardedRule
from tidelog.values.types import Kind

_MERGING = 0.05  # what it costs to count copies of scattered rows
_MOST_VERSIONS = 4000  # that are looked at: a box of shards multiplies them
_ROUNDS = 4  # in which the costs of a recursion's versions find out about each other
_NOT_HASHED = (Kind.RECORD, Kind.SET)


def shard(program: Program, shards: int) -> Sharding | NotSharded:
    """Return how a program is computed in so many shards, or why it is not."""
    found: tuple[float, Sharding] | None = None
    for grid in _grids(program, shards):
        search = _Search(program, grid)
        cost, sharding = search.run()
        if found is None or cost < found[0]:
            found = cost, sharding
    assert found is not None
    sharding = found[1]
    split = [
        name
        for name in program.relations
        if not any(version.is_whole for version in sharding.versions_of(name))
    ]
    if program.relations and not split:
        return NotSharded(
            "every shard would need all rows of all relations"
            + "".join(f"; {doubt}" for doubt in sharding.doubts[:1])
        )
    return sharding


def on_grid(program: Program, grid: Grid) -> Sharding:
    """Return the cheapest sharding on a grid: always the same one for the same program."""
    return _Search(program, grid).run()[1]


def _grids(program: Program, shards: int) -> Iterator[Grid]:
    yield Grid((shards,))
    if not any(_is_cyclic(rule) for rule in program.rules):
        return
    for first in range(2, shards):
        if shards % first:
            continue
        rest = shards // first
        if first >= rest:
            yield Grid((first, rest))
        for second in range(2, rest):
            if rest % second == 0 and first >= second >= rest // second:
                yield Grid((first, second, rest // second))


def _is_cyclic(rule: Rule) -> bool:
    """Return whether no variable is in all atoms of a join of three or more."""
    atoms = [set(atom.variables) - {None} for atom in ShardedRule(rule, 1).atoms if atom.locates]
    return len(atoms) > 2 and not set.intersection(*atoms)


class _Search:
    def __init__(self, program: Program, grid: Grid) -> None:
        self._program, self._grid = program, grid
        self._rules: dict[str, list[tuple[Rule, ShardedRule]]] = {}
        for rule in program.rules:
            sharded = ShardedRule(rule, len(grid.sides))
            self._rules.setdefault(rule.head.relation, []).append((rule, sharded))
        self._costs: dict[Version, float] = {}
        self._chosen: dict[Version, None] = {}
        self._choices: dict[tuple[Version, int], tuple[Version, ...]] = {}
        self.placements = cache(self._placements)

    def _placements(self, name: str) -> tuple[Placement, ...]:
        """Return the placements that a relation can have.

        Two rows of a functional relation with the same key must meet, to be seen.
        """
        relation = self._program.relations[name]
        columns = relation.columns[:-1] if relation.functional else relation.columns
        hashed = [i for i, column in enumerate(columns) if column.type.kind not in _NOT_HASHED]
        sides = len(self._grid.sides)
        while len(hashed) > 1 and (len(hashed) + 1) ** sides > _MOST_VERSIONS:
            hashed.pop()
        found: list[Placement] = list(product([*hashed, None], repeat=sides))
        return tuple(found if relation.functional else [*found, SCATTERED])

    def run(self) -> tuple[float, Sharding]:
        """Return the cheapest sharding, and what it costs."""
        for stratum in self._program.strata:
            self._estimate(stratum)
        shown: dict[str, Version] = {}
        for stratum in reversed(self._program.strata):
            for name in stratum.relations:
                if not any(version.relation == name for version in self._chosen):
                    versions = [Version(name, place) for place in self.placements(name)]
                    possible = [version for version in versions if version in self._costs]
                    self._ask_for(min(possible, key=self._costs.__getitem__))
        for name in self._program.relations:
            versions = [version for version in self._chosen if version.relation == name]
            shown[name] = min(
                versions, key=lambda v: (v.is_scattered, self._grid.share(v.placement))
            )
        cost = sum(map(self._own, self._chosen))
        sharding = Sharding(
            self._grid, shown, tuple(self._chosen), self._choices, tuple(self._doubts())
        )
        return cost, sharding

    def _own(self, version: Version) -> float:
        return self._grid.share(version.placement) + _MERGING * version.is_scattered

    def _estimate(self, stratum: Stratum) -> None:
        """Find out which versions of a stratum's relations can be, and what they cost."""
        possible = {
            Version(name, placement)
            for name in stratum.relations
            for placement in self.placements(name)
        }
        costs = {version: self._own(version) for version in possible}
        settled = 0
        while settled < (_ROUNDS if stratum.recursive else 1):
            found = {}
            for version in sorted(possible, key=lambda v: (v.relation, str(v.placement))):
                made = self._cost_of(version, possible, costs)
                if made is None:
                    possible.discard(version)
                    settled = -1
                else:
                    found[version] = made
            costs |= found
            settled += 1
        self._costs |= {version: costs[version] for version in possible}

    def _cost_of(
        self, version: Version, possible: set[Version], known: Mapping[Version, float]
    ) -> float | None:
        """Return what a version costs, if those of its stratum cost what is `known` of them."""

        def cost(read: Version) -> float | None:
            if read == version:
                return 0.0
            if read in known:
                return known[read] if read in possible else None
            return self._costs.get(read)

        choices = [choice for _, choice in self._best(version, cost)]
        made = [choice for choice in choices if choice is not None]
        if len(made) < len(choices):
            return None
        reads = [read for choice in made for read in choice.versions]
        # What is found alike in all shards is not scattered: it is whole.
        alike = version.is_scattered and made and all(read.is_whole for read in reads)
        return self._own(version) + sum(choice.cost for choice in made) + bool(alike)

    def _best(self, version: Version, cost: Cost) -> Iterator[tuple[int, Choice | None]]:
        for rule, sharded in self._rules.get(version.relation, ()):
            yield rule.id, sharded.best(version.placement, cost, self.placements)

    def _ask_for(self, version: Version) -> None:
        """Have a version computed, and all that its rules read."""
        asked = [version]
        while asked:
            version = asked.pop()
            if version in self._chosen:
                continue
            self._chosen[version] = None
            for number, choice in self._best(version, self._cost_now):
                assert choice is not None
                self._choices[version, number] = choice.versions
                asked += choice.versions

    def _cost_now(self, version: Version) -> float | None:
        return 0.0 if version in self._chosen else self._costs.get(version)

    def _doubts(self) -> Iterator[str]:
        """Say which derived relations are computed whole in every shard, and why."""
        for stratum in self._program.strata:
            for name in stratum.relations:
                if Version(name, (None,) * len(self._grid.sides)) not in self._chosen:
                    continue
                rules = [rule for rule, _ in self._rules.get(name, ())]
                if any(isinstance(literal, Reduce) for rule in rules for literal in rule.body):
                    yield (
                        f"`{name}` is whole in every shard: no column that its aggregates are"
                        " grouped by shards all that they read"
                    )
                elif stratum.recursive:
                    yield (
                        f"`{name}` is whole in every shard: its recursion joins by variables that"
                        " are not always in one of its columns"
                    )
                elif rules:
                    readers = dict.fromkeys(
                        version.relation
                        for (version, _), reads in self._choices.items()
                        if any(read.relation == name and read.is_whole for read in reads)
                    )
                    by = ", ".join(f"`{reader}`" for reader in readers if reader != name)
                    yield (
                        f"`{name}` is whole in every shard: "
                        + (f"{by} joins it by another column" if by else "no column shards it")
                    )
