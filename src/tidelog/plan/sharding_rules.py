"""How one rule can be computed in shards.

A rule is *located*: each derivation is found in the shards where, along each side of the grid, the
hash of one variable says so; or, along a side without such a variable, in all of them. For

    p(x, n) :- q(x, y), r(y), !s(x), n = count : { t(x, z) }.          located by x

that is right when

- each atom has the rows it may need there: it is sharded by a column in which x stands, or whole;
- some positive atom outside aggregates is sharded by x: else the shards would find derivations that
  are not theirs;
- an atom under a negation or in an aggregate has all rows there that matter: it is sharded by x, or
  whole, and never scattered. In an aggregate, x is one of the variables it is grouped by.

Then p is sharded by its first column. There is one more way, for heads that may be scattered: one
positive atom in any version, and all the others whole. Each derivation is found where that atom's
row is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tidelog.logic import program as p
from tidelog.plan.sharding import SCATTERED, Placement, Version

Cost = Callable[[Version], float | None]
"""What a version costs; None for one that cannot be."""
Placements = Callable[[str], Iterable[Placement]]
"""Returns the placements that a relation can have."""


@dataclass(frozen=True)
class RuleAtom:
    """An atom of a rule, and the variable of the rule that stands in each of its columns."""

    relation: str
    variables: tuple[str | None, ...]
    locates: bool
    """Whether it is positive, and outside of aggregates."""


@dataclass(frozen=True)
class Choice:
    """Versions for the atoms of a rule, and what they cost together."""

    cost: float
    versions: tuple[Version, ...]


def atoms_of(body: tuple[p.Literal, ...]) -> Iterator[p.Atom]:
    """Yield all atoms of a body, those in aggregates included, in the order of the text."""
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
        """Yield the atoms; in aggregates only the variables `known` outside are the rule's own."""
        for literal in body:
            match literal:
                case p.Atom(relation, args, negated=negated):
                    variables = tuple(self._variable(arg, known) for arg in args)
                    yield RuleAtom(relation, variables, known is None and not negated)
                case p.Reduce(body=inner, group=group):
                    shared = frozenset(group) if known is None else known.intersection(group)
                    yield from self._atoms(inner, shared)

    def best(self, placement: Placement, cost: Cost, placements: Placements) -> Choice | None:
        """Return the cheapest way to compute the rule for a placement of its head, if any."""
        choices: Iterator[Choice | None]
        if placement == SCATTERED:
            choices = self._scattered(cost, placements)
        else:
            location = [None if column is None else self.head[column] for column in placement]
            if any(
                column is not None and variable is None
                for column, variable in zip(placement, location, strict=True)
            ):
                return None  # a constant, or computed: its hash is not known beforehand
            choices = self._located(location, cost)
        return min(
            (choice for choice in choices if choice is not None),
            key=lambda choice: choice.cost,
            default=None,
        )

    def _located(self, location: Sequence[str | None], cost: Cost) -> Iterator[Choice | None]:
        """Yield choices; each lets other atoms locate the rule along the sides of the grid."""
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
    ) -> Choice | None:
        total, versions = 0.0, []
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
            found = _cheapest((Version(atom.relation, side) for side in product(*sides)), cost)
            if found is None:
                return None
            total += found[0]
            versions.append(found[1])
        return Choice(total, tuple(versions))

    def _scattered(self, cost: Cost, placements: Placements) -> Iterator[Choice | None]:
        variables = dict.fromkeys(
            name for atom in self.atoms if atom.locates for name in atom.variables if name
        )
        for location in product([*variables, None], repeat=self._dimensions):
            yield from self._located(location, cost)
        whole = (None,) * self._dimensions
        others = [cost(Version(atom.relation, whole)) for atom in self.atoms]
        for i, atom in enumerate(self.atoms):
            rest = others[:i] + others[i + 1 :]
            if not atom.locates or None in rest:
                continue
            own = (Version(atom.relation, placement) for placement in placements(atom.relation))
            found = _cheapest(own, cost)
            if found is not None:
                versions = [Version(other.relation, whole) for other in self.atoms]
                versions[i] = found[1]
                yield Choice(found[0] + sum(filter(None, rest)), tuple(versions))


def _cheapest(versions: Iterable[Version], cost: Cost) -> tuple[float, Version] | None:
    found: tuple[float, Version] | None = None
    for version in versions:
        value = cost(version)
        if value is not None and (found is None or value < found[0]):
            found = value, version
    return found


def _equal_variables(body: tuple[p.Literal, ...]) -> Mapping[str, str]:
    """Return, for variables that the rule says are equal to others, one name for all of them."""
    parent: dict[str, str] = {}

    def find(name: str) -> str:
        while name in parent:
            name = parent[name]
        return name

    for literal in body:
        match literal:
            case p.Compare(p.Comparison.EQ, p.Var(left), p.Var(right)):
                a, b = find(left), find(right)
                if a != b:
                    parent[a] = b
    return {name: find(name) for name in parent}
