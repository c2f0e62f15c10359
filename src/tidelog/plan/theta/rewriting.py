"""A rule as the rules of its join tree: reducts below the output, and a join of what has it.

The connex part N of a tree has exactly the variables of the output. A node at its lower end that is
no atom stands for everything below it, and becomes a relation, its *reduct* (section 4):

    reduct(node) = the variables of the node in  reduct(child) joined with reduct(other child)

with the predicates on the edges. They are at most as many as the rows of the guard. Rows have the
number of their derivations as counts, with one exception: after a single inequality, only whether
there is a partner matters, and `ExtremeSemiJoin` says how that is known without counting them. The
rule itself then joins only what is at the lower end of N, so that no row has two derivations:

    tried(a, t, u) :- small(a, t, _), small(a, u, _), t < u.

    small@1(a, t)  :- small(a, t, _).
    tried(a, t, u) :- small@1(a, t), small@1(a, u), t < u.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from tidelog.logic.program import Comparison
from tidelog.plan.body import Assign, AtomUse, Check, Condition, Constant, LoweredRule
from tidelog.plan.bounds import MIRRORED
from tidelog.plan.externals import UNORDERED
from tidelog.plan.lowered import Aggregation, ExtremeSemiJoin, Layer
from tidelog.plan.theta.binary import binary
from tidelog.plan.theta.join_tree import JoinShape, TreeNode
from tidelog.plan.theta.query import definitions
from tidelog.plan.theta.triplet import ThetaPredicate
from tidelog.values.types import NUMBER, Type

UNIT = "#unit"
_BELOW = (Comparison.LT, Comparison.LE)
_NEGATED = {
    Comparison.LT: Comparison.GE,
    Comparison.LE: Comparison.GT,
    Comparison.GT: Comparison.LE,
    Comparison.GE: Comparison.LT,
}
NewRelation = Callable[[str, Sequence[Type]], str]
"""Makes a relation: from a hint for its name and the types of its columns to its name."""


class TreeRules:
    """Makes the layers of join trees. Equal projections of a relation become one."""

    def __init__(self, new_relation: NewRelation, ids: Iterator[int]) -> None:
        """Make rules with relations from `new_relation` and ids from `ids`."""
        self._new_relation, self._ids = new_relation, ids
        self._projections: dict[tuple[str, tuple[int, ...]], str] = {}
        self.layers: list[Layer] = []
        """The layers of the reducts made so far, each after those it reads."""

    def copy(self) -> TreeRules:
        """Return a copy, to try a rule without keeping its layers."""
        copied = TreeRules(self._new_relation, self._ids)
        copied._projections, copied.layers = dict(self._projections), list(self.layers)
        return copied

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
        conditions = [[p.condition for p in edge.predicates] for edge in node.edges]
        used = (slot for child in children for slot in child.args if slot in node.variables)
        slots = tuple(dict.fromkeys(slot for slot in used if slot is not None))
        if len(children) == 2 and not conditions[0] and len(conditions[1]) == 1:
            kept = self._semi_join(rule, children[0], children[1], conditions[1][0])
            if kept is not None:
                return self._projected(rule, kept, slots)
        tests = [c for own in conditions for c in own if c is not None]
        if len(children) == 1 and not tests:
            return self._projected(rule, children[0], slots)
        return self._derived(rule, slots, children, tests)

    def _projected(self, rule: LoweredRule, atom: AtomUse, slots: tuple[str, ...]) -> AtomUse:
        """Return an atom with these slots only, of a projection of the relation if necessary."""
        if atom.args == slots:
            return atom
        if not slots or any(slot in rule.constants for slot in atom.slots):
            return self._derived(rule, slots, [atom], [])
        key = (atom.relation, tuple(atom.args.index(slot) for slot in slots))
        if key not in self._projections:
            self._projections[key] = self._derived(rule, slots, [atom], []).relation
        return AtomUse(self._projections[key], slots)

    def _derived(
        self,
        rule: LoweredRule,
        slots: tuple[str, ...],
        atoms: Sequence[AtomUse],
        tests: Sequence[Condition],
    ) -> AtomUse:
        """Return an atom of a new relation, which a rule derives by counting."""
        name = self._new_relation(atoms[0].relation, [rule.types[slot] for slot in slots])
        # Whether there is a row at all is stored with one column, which holds 0.
        head = AtomUse(name, slots or (UNIT,))
        made = self._rule(rule, head, atoms, _closed(rule, tests, frozenset(), atoms))
        self.layers.append(Layer((name,), (made,), False))
        return head

    def _semi_join(
        self, rule: LoweredRule, guard: AtomUse, other: AtomUse, condition: Condition | None
    ) -> AtomUse | None:
        """Return an atom of the rows of a guard that have a partner by one comparison.

        Returns None if the comparison is of another kind.
        """
        bound = _compared(condition, guard, other)
        if bound is None or rule.types[bound.right].kind in UNORDERED:
            return None
        open_slots = [s for s in guard.args if s is not None and s not in rule.constants]
        guard = self._projected(rule, guard, tuple(open_slots))
        key = tuple(s for s in other.args if s in guard.slots and s not in rule.constants)
        keys = tuple(slot for slot in key if slot is not None)
        if any(slot in rule.constants for slot in other.slots):
            other = self._projected(rule, other, (*keys, bound.right))
        extreme = self._extreme(rule, other, keys, bound)
        key_types = [rule.types[slot] for slot in keys]
        moved = self._new_relation(guard.relation, [*key_types, bound.type, bound.type])
        self.layers.append(Layer((moved,), (), False))
        kept = self._new_relation(guard.relation, [rule.types[s] for s in open_slots])
        head = AtomUse(kept, tuple(open_slots))
        old, new = "%old", "%new"
        typed = replace(rule, types={**rule.types, old: bound.type, new: bound.type})
        outside = Check(_NEGATED[bound.op], bound.left, old, bound.type)
        inside = Check(bound.op, bound.left, new, bound.type)
        rules = (
            self._rule(rule, head, (guard, AtomUse(extreme, (*keys, bound.right))), [bound]),
            self._rule(typed, head, (AtomUse(moved, (*keys, old, new)), guard), [outside, inside]),
        )
        semi_join = ExtremeSemiJoin(guard.relation, extreme, moved, bound.op in _BELOW)
        self.layers.append(Layer((kept,), rules, False, semi_join=semi_join))
        return head

    def _extreme(
        self, rule: LoweredRule, other: AtomUse, keys: tuple[str, ...], bound: Check
    ) -> str:
        """Return the relation of the largest, or smallest, value of each key."""
        types = [rule.types[slot] for slot in keys]
        name = self._new_relation(other.relation, [*types, bound.type])
        self.layers.append(
            Layer(
                (name,), (), False,
                Aggregation(
                    name, other.relation, "max" if bound.op in _BELOW else "min",
                    tuple(other.args.index(slot) for slot in keys), other.args.index(bound.right),
                    (), bound.type, bound.type, f"a part of {rule.text}", rule.span,
                    variables=keys,
                ),
            )
        )  # fmt: skip
        return name

    def _rule(
        self,
        rule: LoweredRule,
        head: AtomUse,
        atoms: Sequence[AtomUse],
        conditions: Sequence[Condition],
    ) -> LoweredRule:
        made = _with_body(rule, head, atoms, conditions)
        return replace(made, id=next(self._ids), text=f"a part of {rule.text}")


def _compared(condition: Condition | None, guard: AtomUse, other: AtomUse) -> Check | None:
    """Return a comparison as `x op y`, with x of the guard and y of the other atom alone."""
    if not isinstance(condition, Check) or condition.op not in MIRRORED:
        return None
    if condition.left in other.slots - guard.slots:
        left, right, op = condition.right, condition.left, MIRRORED[condition.op]
        condition = Check(op, left, right, condition.type)
    if condition.left in guard.slots and condition.right in other.slots - guard.slots:
        return condition
    return None


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
    defining = definitions(rule)
    kept = set(conditions)
    needed = set(head).union(*(c.inputs for c in kept)) - bound
    while True:
        more = {defining[slot] for slot in needed & defining.keys()} - kept
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
