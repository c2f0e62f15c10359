"""How one rule can be computed in shards.

A rule is *located* by variables, one for each side of the grid, or none for a side. A shard finds a
derivation if the hash of each such variable is the shard's coordinate. Along a side without a
variable all shards find it. For

    p(x, n) :- q(x, y), r(y), !s(x), n = count : { t(x, z) }.          located by x

this is correct when

- each atom is sharded by a column that holds x, or is whole;
- at least one positive atom outside aggregates is sharded by x. Otherwise every shard would find
  every derivation;
- a negated atom, or an atom in an aggregate, is not scattered. In an aggregate, x is a grouping
  variable.

Then p is sharded by its first column. A scattered head allows one more way: one positive atom in
any variant, and all other atoms whole. Derivations are found in the shards that have its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tidelog.logic import program as p
from tidelog.logic.graph import UnionFind
from tidelog.sharding.sharding import SCATTERED, Partitioning, Variant

Cost = Callable[[Variant], float | None]
"""Returns the cost of a variant; None if it is impossible."""
Partitionings = Callable[[str], Iterable[Partitioning]]
"""Returns the possible partitionings of a relation."""


@dataclass(frozen=True)
class RuleAtom:
    """An atom of a rule, and the variable of the rule in each of its columns."""

    relation: str
    variables: tuple[str | None, ...]
    locates: bool
    """Whether it is positive and outside aggregates."""


@dataclass(frozen=True)
class VariantChoice:
    """Variants for the atoms of a rule, and their total cost."""

    cost: float
    variants: tuple[Variant, ...]


def atoms_of(body: tuple[p.Literal, ...]) -> Iterator[p.Atom]:
    """Yield all atoms of a body in textual order, including those in aggregates."""
    for literal in body:
        match literal:
            case p.Atom():
                yield literal
            case p.Reduce(body=inner):
                yield from atoms_of(inner)


class ShardedRule:
    """The ways to compute one rule in shards."""

    def __init__(self, rule: p.Rule, dimensions: int) -> None:
        self._dimensions = dimensions
        self._same = _equal_variables(rule.body)
        self.head = tuple(self._variable(arg) for arg in rule.head.args)
        self.atoms = tuple(self._atoms(rule.body, None))

    def _variable(self, term: p.Term, known: frozenset[str] | None = None) -> str | None:
        if not isinstance(term, p.Var) or (known is not None and term.name not in known):
            return None
        return self._same.get(term.name, term.name)

    def _atoms(
        self, body: tuple[p.Literal, ...], known: frozenset[str] | None
    ) -> Iterator[RuleAtom]:
        """Yield the atoms; in an aggregate only variables `known` outside it belong to the rule."""
        for literal in body:
            match literal:
                case p.Atom(relation, args, negated=negated):
                    variables = tuple(self._variable(arg, known) for arg in args)
                    yield RuleAtom(relation, variables, known is None and not negated)
                case p.Reduce(body=inner, group=group):
                    shared = frozenset(group) if known is None else known.intersection(group)
                    yield from self._atoms(inner, shared)

    def best(
        self, partitioning: Partitioning, cost: Cost, partitionings: Partitionings
    ) -> VariantChoice | None:
        """Return the cheapest way to compute the rule for a partitioning of its head, or None."""
        choices: Iterator[VariantChoice | None]
        if partitioning == SCATTERED:
            choices = self._scattered(cost, partitionings)
        else:
            location = [None if column is None else self.head[column] for column in partitioning]
            if any(
                column is not None and variable is None
                for column, variable in zip(partitioning, location, strict=True)
            ):
                return None  # a constant or a computed value: no atom is sharded by it
            choices = self._located(location, cost)
        return min(
            (choice for choice in choices if choice is not None),
            key=lambda choice: choice.cost,
            default=None,
        )

    def _located(
        self, location: Sequence[str | None], cost: Cost
    ) -> Iterator[VariantChoice | None]:
        """Yield a choice for each combination of atoms that can locate the rule."""
        locating: list[list[tuple[int, int] | None]] = []
        for variable in location:
            if variable is None:
                locating.append([None])
                continue
            locating.append(
                [
                    (i, column)
                    for i, atom in enumerate(self.atoms)
                    if atom.locates
                    for column, found in enumerate(atom.variables)
                    if found == variable
                ]
            )
        for forced in product(*locating):
            yield self._with_forced(location, forced, cost)

    def _with_forced(
        self,
        location: Sequence[str | None],
        forced: Sequence[tuple[int, int] | None],
        cost: Cost,
    ) -> VariantChoice | None:
        total, variants = 0.0, []
        for i, atom in enumerate(self.atoms):
            sides: list[list[int | None]] = []
            for variable, force in zip(location, forced, strict=True):
                if force is not None and force[0] == i:
                    sides.append([force[1]])
                else:
                    columns = [
                        column
                        for column, found in enumerate(atom.variables)
                        if variable is not None and found == variable
                    ]
                    sides.append([*columns, None])
            found = _cheapest((Variant(atom.relation, side) for side in product(*sides)), cost)
            if found is None:
                return None
            total += found[0]
            variants.append(found[1])
        return VariantChoice(total, tuple(variants))

    def _scattered(
        self, cost: Cost, partitionings: Partitionings
    ) -> Iterator[VariantChoice | None]:
        variables = dict.fromkeys(
            name for atom in self.atoms if atom.locates for name in atom.variables if name
        )
        for location in product([*variables, None], repeat=self._dimensions):
            yield from self._located(location, cost)
        yield from self._one_sharded(cost, partitionings)

    def _one_sharded(self, cost: Cost, partitionings: Partitionings) -> Iterator[VariantChoice]:
        """Yield a choice for each atom that is in any variant, with all others whole."""
        whole = (None,) * self._dimensions
        others = [cost(Variant(atom.relation, whole)) for atom in self.atoms]
        for i, atom in enumerate(self.atoms):
            rest = others[:i] + others[i + 1 :]
            if not atom.locates or None in rest:
                continue
            own = (Variant(atom.relation, columns) for columns in partitionings(atom.relation))
            found = _cheapest(own, cost)
            if found is not None:
                variants = [Variant(other.relation, whole) for other in self.atoms]
                variants[i] = found[1]
                yield VariantChoice(found[0] + sum(filter(None, rest)), tuple(variants))


class PartialRule(ShardedRule):
    """The ways to compute partial results of an aggregate, in a grid with one side.

    A shard must find each assignment that no other one finds. The atoms before the aggregate are
    those in it once more: a shard finds the groups that it has.
    """

    def __init__(self, rule: p.Rule) -> None:
        super().__init__(rule, 1)
        *outside, reduce = rule.body
        assert isinstance(reduce, p.Reduce)
        self._same = _equal_variables(reduce.body)
        self.atoms = tuple(self._atoms(reduce.body, None))
        self._times = 1 + any(isinstance(literal, p.Atom) for literal in outside)

    def best(
        self, partitioning: Partitioning, cost: Cost, partitionings: Partitionings
    ) -> VariantChoice | None:
        """Return the cheapest way to compute the rule, or None."""
        found = [
            choice
            for name in dict.fromkeys(x for atom in self.atoms for x in atom.variables if x)
            for choice in self._located([name], cost)
            if choice is not None
        ]
        found += self._one_sharded(
            cost, lambda name: (x for x in partitionings(name) if x not in (SCATTERED, (None,)))
        )
        best = min(found, key=lambda choice: choice.cost, default=None)
        return None if best is None else replace(best, variants=best.variants * self._times)


def _cheapest(variants: Iterable[Variant], cost: Cost) -> tuple[float, Variant] | None:
    found: tuple[float, Variant] | None = None
    for variant in variants:
        value = cost(variant)
        if value is not None and (found is None or value < found[0]):
            found = value, variant
    return found


def _equal_variables(body: tuple[p.Literal, ...]) -> Mapping[str, str]:
    """Return a common name for variables that the rule equates."""
    equal = UnionFind[str]()
    for literal in body:
        match literal:
            case p.Compare(p.Comparison.EQ, p.Var(left), p.Var(right)):
                equal.union(left, right)
    return {name: equal.find(name) for name in list(equal)}
