"""A rule as a query with theta joins: atoms, output variables and predicates.

    tried(a, t, u) :- small(a, t), large(a, u), t < u, u <= t + 3600.

    atoms {a, t}, {a, u}     output {a, t, u}     predicates t < u, u <= t + 3600

A value that is computed counts as the variables that it is computed from. A condition on the
variables of one atom, or on constants, is a filter. Atoms are told apart by their number, so a
relation may occur twice. An argument that nobody reads is a variable of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.plan.body import Assign, Condition, Filter, LoweredRule, Range, Unpack
from tidelog.plan.theta.triplet import Edge, ThetaPredicate, Triplet


@dataclass(frozen=True)
class ThetaQuery:
    """Atoms as sets of variables, output variables and predicates."""

    atoms: tuple[Edge, ...]
    output: Edge
    predicates: tuple[ThetaPredicate, ...]
    names: tuple[str, ...] = ()
    """The atoms as text."""

    @property
    def triplet(self) -> Triplet:
        """The hypergraph triplet of the query (Definition 11)."""
        edges = frozenset(atom for atom in self.atoms if atom)
        return Triplet(edges, self.output, frozenset(self.predicates))

    @property
    def joins_by_inequality(self) -> bool:
        """Whether a predicate relates atoms: its variables are not all in one of them."""
        return any(
            not any(predicate.variables <= atom for atom in self.atoms)
            for predicate in self.predicates
        )


def theta_query(
    rule: LoweredRule,
    condition_text: Callable[[Condition], str] = str,
    atom_text: Callable[[int], str] = str,
) -> ThetaQuery | None:
    """Return a rule as a query; None if it is not one: it negates, iterates or takes apart."""
    if not rule.atoms or any(atom.negated for atom in rule.atoms):
        return None
    if any(isinstance(condition, Range | Unpack) for condition in rule.conditions):
        return None
    atoms = []
    for number, atom in enumerate(rule.atoms):
        named = (arg or f"_{number}.{place}" for place, arg in enumerate(atom.args))
        atoms.append(frozenset(named).difference(rule.constants))
    bound = frozenset().union(*atoms)
    computed: dict[str, Edge] = {}

    def variables(slots: frozenset[str]) -> Edge:
        parts = [
            frozenset({slot}) if slot in bound else computed.get(slot, frozenset())
            for slot in slots
        ]
        return frozenset().union(*parts)

    predicates: list[ThetaPredicate] = []
    for condition in _in_order(rule, bound):
        read = variables(condition.inputs)
        if isinstance(condition, Assign):
            if condition.into not in bound and condition.into not in computed:
                computed[condition.into] = read
                continue
            read |= variables(frozenset({condition.into}))
        predicates.append(
            ThetaPredicate(condition_text(condition), read, len(predicates), condition)
        )
    output = variables(frozenset(arg for arg in rule.head.args if arg is not None))
    kept = tuple(p for p in predicates if p.variables)  # without variables: true or false for all
    names = tuple(atom_text(number) for number in range(len(rule.atoms)))
    return ThetaQuery(tuple(atoms), output, kept, names)


def definitions(rule: LoweredRule) -> dict[str, Assign]:
    """Return the computation that defines each slot. A second one is an equality."""
    bound = frozenset().union(*(atom.slots for atom in rule.atoms))
    found: dict[str, Assign] = {}
    for condition in _in_order(rule, bound):
        if isinstance(condition, Assign) and condition.into not in bound:
            found.setdefault(condition.into, condition)
    return found


def _in_order(rule: LoweredRule, bound: Edge) -> list[Condition]:
    """Return the conditions so that values are computed before they are read."""
    known = set(bound) | set(rule.constants)
    left, ordered = list(rule.conditions), []
    while left:
        ready = next((c for c in left if c.inputs <= known), left[0])
        left.remove(ready)
        ordered.append(ready)
        if isinstance(ready, Assign):
            known.add(ready.into)
        else:
            assert not isinstance(ready, Filter) or ready.inputs <= known
    return ordered
