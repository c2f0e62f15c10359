"""A rule as the rules of its join tree: reducts below the output, and a join of what has it.

The connex part N of a tree has exactly the variables of the output. A node at its lower end that is
no atom stands for everything below it, and becomes a relation, its *reduct* (section 4):

    reduct(node) = the variables of the node in  reduct(child) joined with reduct(other child)

with the predicates on the edges. Its rows have the number of their derivations as counts. They are
at most as many as the rows of the guard. The rule itself then joins only what is at the lower end
of N, so that no row has two derivations:

    tried(a, t, u) :- small(a, t, _), small(a, u, _), t < u.

    small@1(a, t)  :- small(a, t, _).
    tried(a, t, u) :- small@1(a, t), small@1(a, u), t < u.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from tidelog.plan.body import Assign, AtomUse, Condition, Constant, LoweredRule
from tidelog.plan.theta.binary import binary
from tidelog.plan.theta.join_tree import JoinShape, TreeNode
from tidelog.plan.theta.triplet import ThetaPredicate
from tidelog.values.types import NUMBER, Type

UNIT = "#unit"
NewRelation = Callable[[str, Sequence[Type]], str]
"""Makes a relation: from a hint for its name and the types of its columns to its name."""


class TreeRules:
    """Makes the rules of join trees. Equal projections of a relation become one."""

    def __init__(self, new_relation: NewRelation, ids: Iterator[int]) -> None:
        """Make rules with relations from `new_relation` and ids from `ids`."""
        self._new_relation, self._ids = new_relation, ids
        self._projections: dict[tuple[str, tuple[int, ...]], str] = {}
        self.reducts: list[LoweredRule] = []
        """The rules of the reducts made so far, each after those it reads."""

    def rewritten(self, rule: LoweredRule, shape: JoinShape) -> LoweredRule:
        """Return a rule that reads reducts. Its query is free-connex."""
        assert shape.tree is not None
        atoms = [self._reduct(rule, node) for node in _lower_end(binary(shape.tree))]
        return _with_body(rule, rule.head, atoms, output_conditions(rule, shape))

    def _reduct(self, rule: LoweredRule, node: TreeNode) -> AtomUse:
        """Return an atom that stands for a node and everything below it."""
        if node.atom is not None:
            return rule.atoms[node.atom]
        children = [self._reduct(rule, edge.child) for edge in node.edges]
        conditions = [
            p.condition for edge in node.edges for p in edge.predicates if p.condition is not None
        ]
        used = (slot for child in children for slot in child.args if slot in node.variables)
        slots = tuple(dict.fromkeys(slot for slot in used if slot is not None))
        types = [rule.types[slot] for slot in slots]
        if not slots:  # whether there is a row at all; it is stored with one column, which holds 0
            slots = (UNIT,)
        elif len(children) == 1 and not conditions:
            (child,) = children
            constants = any(slot in rule.constants for slot in child.slots)
            columns = tuple(child.args.index(slot) for slot in slots)
            if not constants:
                key = (child.relation, columns)
                if key not in self._projections:
                    name = self._projections[key] = self._new_relation(child.relation, types)
                    self._add(rule, AtomUse(name, slots), children, [])
                return AtomUse(self._projections[key], slots)
        name = self._new_relation(rule.head.relation, types)
        head = AtomUse(name, slots)
        self._add(rule, head, children, _closed(rule, conditions, frozenset(), children))
        return head

    def _add(
        self,
        rule: LoweredRule,
        head: AtomUse,
        atoms: Sequence[AtomUse],
        conditions: Sequence[Condition],
    ) -> None:
        made = _with_body(rule, head, atoms, conditions)
        self.reducts.append(replace(made, id=next(self._ids), text=f"a part of {rule.text}"))


def output_conditions(rule: LoweredRule, shape: JoinShape) -> list[Condition]:
    """Return the conditions of the rewritten rule: those in N, and what the head needs."""
    assert shape.tree is not None
    in_tree = {p.condition for p in shape.query.predicates}
    kept = {p.condition for p in _predicates_above(shape.tree) if p.condition is not None}
    # What has no variables is true or false for all rows.
    kept |= {c for c in rule.conditions if not isinstance(c, Assign) and c not in in_tree}
    head = frozenset(slot for slot in rule.head.args if slot is not None)
    return _closed(rule, kept, head, rule.atoms)


def _lower_end(node: TreeNode) -> Iterator[TreeNode]:
    """Yield the nodes of N without children in N."""
    below = [edge.child for edge in node.edges if edge.child.is_connex]
    if not below:
        yield node
    for child in below:
        yield from _lower_end(child)


def _predicates_above(node: TreeNode) -> Iterator[ThetaPredicate]:
    """Yield the predicates between nodes of N."""
    for edge in node.edges:
        if edge.child.is_connex:
            yield from edge.predicates
            yield from _predicates_above(edge.child)


def _closed(
    rule: LoweredRule,
    conditions: Iterable[Condition],
    head: frozenset[str],
    atoms: Sequence[AtomUse],
) -> list[Condition]:
    """Return conditions with the computations that they and the head need, in the rule's order."""
    bound = frozenset().union(*(atom.slots for atom in atoms))
    kept = set(conditions)
    needed = set(head).union(*(c.inputs for c in kept)) - bound
    while True:
        more = {
            c
            for c in rule.conditions
            if isinstance(c, Assign) and c.into in needed and c not in kept
        }
        if not more:
            return [c for c in rule.conditions if c in kept]
        kept |= more
        needed = needed.union(*(c.inputs for c in more)) - bound


def _with_body(
    rule: LoweredRule, head: AtomUse, atoms: Sequence[AtomUse], conditions: Sequence[Condition]
) -> LoweredRule:
    used = {slot for atom in (head, *atoms) for slot in atom.slots}
    used = used.union(*(c.inputs for c in conditions))
    constants = {slot: c for slot, c in rule.constants.items() if slot in used}
    if UNIT in used:
        constants[UNIT] = Constant(0, NUMBER)
    return replace(
        rule,
        head=head,
        atoms=tuple(atoms),
        conditions=tuple(conditions),
        constants=MappingProxyType(constants),
        types=MappingProxyType({**rule.types, UNIT: NUMBER}),
    )
