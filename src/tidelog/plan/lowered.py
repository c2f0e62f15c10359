"""A lowered program: layers of relations, each with the rules or the aggregation that derive it.

plan/lower.py makes it, and the strategies of maintain/ maintain one layer each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.logic.program import ChoiceDomain
from tidelog.plan.body import LoweredRule, copied_columns
from tidelog.plan.ranges import RangedJoin
from tidelog.source import Span
from tidelog.values.algebra import Algebra
from tidelog.values.types import Row, Type


@dataclass(frozen=True)
class Aggregation:
    """A relation whose rows are (group.., aggregate), one for each group of `source`.

    Several aggregates over the same groups can be one relation (group.., aggregate..). Then the
    fields are those of the first aggregate, and `parts` has all of them.
    """

    result: str
    source: str
    op: str
    group: tuple[int, ...]
    """The columns of `source` by which rows are grouped."""
    target: int | None
    """The column that is aggregated; None counts rows."""
    order: tuple[int, ...]
    """The columns of a group by which its rows differ; `concat` takes them in this order."""
    target_type: Type | None
    result_type: Type
    text: str
    span: Span | None = field(default=None, compare=False, repr=False)
    failed: str | None = None
    """The relation of the groups without a value; if None, such a group is an error at once.

    Its rows are groups, or with several aggregates (group.., aggregate.., flag..), with a flag for
    each aggregate that can fail.
    """
    algebra: Algebra | None = None
    """The algebra of an aggregate that is registered from Python."""
    variables: tuple[str, ...] = ()
    """The names of the group's variables, for messages."""
    parts: tuple[Aggregation, ...] = ()
    """The aggregates of a row, from left to right, if there are several (plan/siblings.py)."""
    ranged: RangedJoin | None = None
    """The join that gives the rows of the source, if these are not stored (plan/ranges.py)."""

    @property
    def each(self) -> tuple[Aggregation, ...]:
        """The aggregates that a row has, from left to right."""
        return self.parts or (self,)


@dataclass(frozen=True)
class Layer:
    """Relations that depend on each other, and what derives them.

    That is rules, or an aggregation, or, in `recompute`, a program of its own that is re-evaluated.
    """

    relations: tuple[str, ...]
    rules: tuple[LoweredRule, ...]
    recursive: bool
    """Whether the relations are computed to a fixpoint: level by level, with counts."""
    aggregation: Aggregation | None = None
    recompute: ReevaluatedProgram | None = None
    judges: bool = False
    """Whether the relation has rows only where something has failed (plan/failure_rules.py)."""
    errors_of: str | None = None
    """The relation of failures, if the rows here are those of them that are errors."""
    semi_join: ExtremeSemiJoin | None = None
    """What the rules do, if they keep the rows of a guard that have a partner (plan/theta/)."""
    tree: TreeView | None = None
    """How the relation is maintained without storing its rows, if it is (plan/theta/)."""
    strategy: str | None = None
    """The strategy that the program or the caller forces; None leaves the choice to the planner."""
    virtual: frozenset[str] | None = None
    """The relations that are not stored, if changes are propagated and filtered (plan/virtual.py).

    A layer that is stored, and reads others that are not, has none.
    """
    pruned: bool = False
    """Whether the given rows of the relation are candidates, which its rules read."""


@dataclass(frozen=True)
class ExtremeSemiJoin:
    """The rows of a guard that have a partner by an inequality.

        kept(t..) :- guard(t..), extreme(key.., y), x < y.
        kept(t..) :- moved(key.., old, new), guard(t..), x >= old, x < new.

    Whether a row has a partner is decided by the largest (or smallest) y of its key. When that
    moves, only the rows between the old and the new value change. The second rule finds them;
    `moved` is given to it, and never stored.
    """

    guard: str
    extreme: str
    moved: str
    is_max: bool
    """Whether the largest y decides, not the smallest."""


@dataclass(frozen=True)
class TreePart:
    """One rule of a relation whose rows are not stored.

    `rule` reads the lower end of a join tree, and no row of it has two derivations. `whole` is the
    rule as it is in the program, over relations that the program declares.
    """

    rule: LoweredRule
    whole: LoweredRule
    is_injective: bool
    """Whether no row of `whole` has two derivations."""


@dataclass(frozen=True)
class TreeView:
    """A relation whose rows are not stored: they are enumerated from those of join trees."""

    parts: tuple[TreePart, ...]
    """One for each rule."""

    @property
    def wholes(self) -> tuple[LoweredRule, ...]:
        """The rules as they are in the program."""
        return tuple(part.whole for part in self.parts)


@dataclass(frozen=True)
class Lowered:
    """A program in the kernel's terms. Names with `@` are those that lowering has made."""

    relations: Mapping[str, tuple[Type, ...]]
    layers: tuple[Layer, ...]
    facts: Mapping[str, Sequence[Row]]
    """The relations that hold the facts of the program (`facts_of`), with their rows."""

    def every_layer(self) -> Iterator[Layer]:
        """Yield all layers, those of the programs that are re-evaluated as well."""
        for layer in self.layers:
            yield layer
            if layer.recompute is not None:
                yield from layer.recompute.program.every_layer()


def is_only_copied(lowered: Lowered, name: str) -> bool:
    """Return whether only rules that copy a relation read it.

    Such a rule reads deltas, and never the rows before them.
    """
    for layer in lowered.layers:
        for rule in layer.rules:
            is_copy = not layer.recursive and copied_columns(rule) is not None
            is_copy &= layer.virtual is None  # which is proved from the rows
            if not is_copy and any(atom.relation == name for atom in rule.atoms):
                return False
        aggregation = layer.aggregation
        if aggregation is not None and name == aggregation.source:
            return False
        if layer.recompute is not None and name in layer.recompute.reads:
            return False
    return True


def facts_of(relation: str) -> str:
    """Return the name of the relation that holds the facts of another."""
    return f"{relation}@facts"


def given_of(relation: str) -> str:
    """Return the name under which rules read the given rows of a derived relation."""
    return f"{relation}@given"


@dataclass(frozen=True)
class ReevaluatedProgram:
    """Layers that are re-evaluated as a program of their own when something they read changes.

    That is a layer for which it is forced, or a recursion that binds the groups of its aggregates:

        p(y) :- p(x), n = count : { e(z), z > x }, y = x + n.

    The aggregate is computed for the groups that the recursion asks for, and the recursion asks
    for more when it has their values. But one more group never changes the value of another. So
    the groups that are asked for and those that are computed become two relations:

        source(x, z) :- groups(x), e(z), z > x.
        p(y)         :- p(x), value(x, n), y = x + n.
        wanted(x)    :- p(x).

    In this program no recursion goes through an aggregate. `groups` is an input of it. What is in
    `wanted` is inserted there until nothing is missing: the least fixpoint of the recursion.
    """

    program: Lowered
    """The layers. The relations that they read from others are inputs, without rules."""
    groups: Mapping[str, str]
    """For each relation of groups that are computed that of the groups that are wanted."""
    reads: frozenset[str]
    """The relations of lower layers that the program reads."""
    candidates: Mapping[str, Candidates] = field(default_factory=dict)
    """For each relation of candidates that are inserted in rounds where they come from."""

    @property
    def inserted(self) -> Mapping[str, str]:
        """For each relation whose rows are inserted in rounds the one that they come from."""
        return {**self.groups, **{name: found.source for name, found in self.candidates.items()}}


@dataclass(frozen=True)
class Candidates:
    """Where candidates come from that are inserted into another relation, round by round.

    dist@new(y, d + w) :- dist(x, d), edge(x, y, w).
    dist@seen(y, d)    when it is in dist@new in any round
    dist(y, d)         :- dist@seen(y, d), !dist@worse(y, d).
    """

    source: str
    choice: ChoiceDomain | None
    """How to choose among them, if not all are inserted."""
