"""Find the cheapest way to compute a program in shards.

The cost of a variant is the fraction of the relation that one shard has, plus the costs of the
variants that its rules read. Costs are computed stratum by stratum. In a recursive stratum every
variant is assumed to be possible until one of its rules turns out to be impossible. Then variants
are chosen from the last stratum down to the first. A relation for which other relations have
already chosen a variant gets no other one.

The sizes of relations are not known at this point, so all count the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product

from tidelog.logic.program import Program, Reduce, Rule, Stratum
from tidelog.sharding.key_relations import with_upserts_sharded, without_upserts
from tidelog.sharding.rules import Cost, PartialRule, ShardedRule, VariantChoice
from tidelog.sharding.sharding import SCATTERED, Grid, NotSharded, Partitioning, Sharding, Variant
from tidelog.sharding.stages import is_partial
from tidelog.values.types import Kind

_MERGING = 0.05  # cost of counting the copies of scattered rows
_MOST_VARIANTS = 4000  # considered for a relation; a box of shards has many
_ROUNDS = 4  # of estimating costs in a recursive stratum
_NOT_HASHED = (Kind.RECORD, Kind.SET)


def refused(program: Program) -> NotSharded | None:
    """Return why a program cannot be sharded at all; None if it can."""
    for name in program.pruned:
        return NotSharded(f"`{name}` keeps only some of its candidates, which are in all shards")
    return None


def not_virtual(program: Program, sharding: Sharding) -> str | None:
    """Return why some virtual view cannot be in shards; None if all of them can.

    A shard proves its rows from its own: it has all that its rules need. But of a scattered view it
    is looked up which of the changed rows other shards have.
    """
    for view in program.views.values():
        if view.virtual and sharding.shown[view.relation].is_scattered:
            return (
                f"`{view.relation}` is virtual, but its rows are where they are derived, possibly"
                " in several shards: which of them others have is looked up, so they are stored"
            )
    return None


def on_grid(program: Program, grid: Grid) -> Sharding | None:
    """Return the cheapest sharding on a grid, the same one each time for the same program.

    There is none if partial results would be the same in all shards. Relations that were added for
    upserts do not influence the search.
    """
    found = _Search(without_upserts(program), grid).run()
    return None if found is None else with_upserts_sharded(program, found)


def grids(program: Program, shards: int) -> Iterator[Grid]:
    """Yield the grids of a number of shards that may suit a program."""
    yield Grid((shards,))
    if not any(is_cyclic(rule) for rule in program.rules):
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


def is_cyclic(rule: Rule) -> bool:
    """Return whether three or more atoms are joined without a common variable."""
    atoms = [set(atom.variables) - {None} for atom in ShardedRule(rule, 1).atoms if atom.locates]
    return len(atoms) > 2 and not set.intersection(*atoms)


class _Search:
    def __init__(self, program: Program, grid: Grid) -> None:
        self._program, self._grid = program, grid
        self._rules: dict[str, list[tuple[Rule, ShardedRule]]] = {}
        for rule in program.rules:
            is_part = is_partial(rule.head.relation)
            sharded = PartialRule(rule) if is_part else ShardedRule(rule, len(grid.sides))
            self._rules.setdefault(rule.head.relation, []).append((rule, sharded))
        self._costs: dict[Variant, float] = {}
        self._chosen: dict[Variant, None] = {}
        self._choices: dict[tuple[Variant, int], tuple[Variant, ...]] = {}
        self.partitionings = cache(self._partitionings)

    def _partitionings(self, name: str) -> tuple[Partitioning, ...]:
        """Return the possible partitionings of a relation.

        Rows of a functional relation with the same key must be in the same shard, where a conflict
        is found.
        """
        if is_partial(name):
            return (SCATTERED,)
        relation = self._program.relations[name]
        columns = relation.columns[:-1] if relation.functional else relation.columns
        hashed = [i for i, column in enumerate(columns) if column.type.kind not in _NOT_HASHED]
        sides = len(self._grid.sides)
        while len(hashed) > 1 and (len(hashed) + 1) ** sides > _MOST_VARIANTS:
            hashed.pop()
        found: list[Partitioning] = list(product([*hashed, None], repeat=sides))
        return tuple(found if relation.functional else [*found, SCATTERED])

    def run(self) -> Sharding | None:
        """Return the cheapest sharding; None if there is none."""
        for stratum in self._program.strata:
            self._estimate(stratum)
        shown: dict[str, Variant] = {}
        for stratum in reversed(self._program.strata):
            for name in stratum.relations:
                if not any(variant.relation == name for variant in self._chosen):
                    variants = [Variant(name, place) for place in self.partitionings(name)]
                    possible = [variant for variant in variants if variant in self._costs]
                    if not possible:
                        return None
                    self._ask_for(min(possible, key=self._costs.__getitem__))
        for name in self._program.relations:
            variants = [variant for variant in self._chosen if variant.relation == name]
            shown[name] = min(
                variants, key=lambda v: (v.is_scattered, self._grid.share(v.partitioning))
            )
        doubts = dict(self._doubts())
        return Sharding(self._grid, shown, tuple(self._chosen), self._choices, doubts)

    def _own(self, variant: Variant) -> float:
        return self._grid.share(variant.partitioning) + _MERGING * variant.is_scattered

    def _estimate(self, stratum: Stratum) -> None:
        """Find the possible variants of a stratum's relations, and their costs."""
        possible = {
            Variant(name, partitioning)
            for name in stratum.relations
            for partitioning in self.partitionings(name)
        }
        costs = {variant: self._own(variant) for variant in possible}
        settled = 0
        while settled < (_ROUNDS if stratum.recursive else 1):
            found = {}
            for variant in sorted(possible, key=lambda v: (v.relation, str(v.partitioning))):
                made = self._cost_of(variant, possible, costs)
                if made is None:
                    possible.discard(variant)
                    settled = -1
                else:
                    found[variant] = made
            costs |= found
            settled += 1
        self._costs |= {variant: costs[variant] for variant in possible}

    def _cost_of(
        self, variant: Variant, possible: set[Variant], known: Mapping[Variant, float]
    ) -> float | None:
        """Return the cost of a variant, given `known` costs of its stratum; None if impossible."""

        def cost(read: Variant) -> float | None:
            if read == variant:
                return 0.0
            if read in known:
                return known[read] if read in possible else None
            return self._costs.get(read)

        choices = [choice for _, choice in self._best(variant, cost)]
        made = [choice for choice in choices if choice is not None]
        if len(made) < len(choices):
            return None
        reads = [read for choice in made for read in choice.variants]
        # Rules that read only whole relations derive the same rows in all shards. A whole variant
        # is better than a scattered one then.
        alike = variant.is_scattered and made and all(read.is_whole for read in reads)
        return self._own(variant) + sum(choice.cost for choice in made) + bool(alike)

    def _best(self, variant: Variant, cost: Cost) -> Iterator[tuple[int, VariantChoice | None]]:
        for rule, sharded in self._rules.get(variant.relation, ()):
            yield rule.id, sharded.best(variant.partitioning, cost, self.partitionings)

    def _ask_for(self, variant: Variant) -> None:
        """Choose a variant, and all that its rules read."""
        asked = [variant]
        while asked:
            variant = asked.pop()
            if variant in self._chosen:
                continue
            self._chosen[variant] = None
            for number, choice in self._best(variant, self._cost_now):
                assert choice is not None
                self._choices[variant, number] = choice.variants
                asked += choice.variants

    def _cost_now(self, variant: Variant) -> float | None:
        return 0.0 if variant in self._chosen else self._costs.get(variant)

    def _doubts(self) -> Iterator[tuple[str, str]]:
        """Say which derived relations every shard computes as a whole, and why."""
        for stratum in self._program.strata:
            for name in stratum.relations:
                if Variant(name, (None,) * len(self._grid.sides)) not in self._chosen:
                    continue
                rules = [rule for rule, _ in self._rules.get(name, ())]
                if any(isinstance(literal, Reduce) for rule in rules for literal in rule.body):
                    yield (
                        name,
                        f"`{name}` is whole in every shard: none of the grouping columns of its"
                        " aggregates shards everything that they read",
                    )
                elif stratum.recursive:
                    yield (
                        name,
                        f"`{name}` is whole in every shard: no column has the same variable"
                        " throughout its recursive rules",
                    )
                elif rules:
                    readers = dict.fromkeys(
                        variant.relation
                        for (variant, _), reads in self._choices.items()
                        if any(read.relation == name and read.is_whole for read in reads)
                    )
                    by = ", ".join(f"`{reader}`" for reader in readers if reader != name)
                    yield (
                        name,
                        f"`{name}` is whole in every shard: "
                        + (f"{by} joins it by another column" if by else "no column shards it"),
                    )
