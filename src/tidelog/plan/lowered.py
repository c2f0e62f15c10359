"""A lowered program: what plan/lower.py makes, and maintain keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog.logic.program import Stratum
from tidelog.plan.body import Rule
from tidelog.source import Span
from tidelog.values.algebra import Algebra
from tidelog.values.types import Type


@dataclass(frozen=True)
class Aggregation:
    """A relation whose rows are (group.., aggregate), one for each group of `source`.

    Several aggregates of the same groups are one relation of (group.., aggregate..). The fields are
    then those of the first; all of them are in `parts`.
    """

    result: str
    source: str
    op: str
    group: tuple[int, ...]
    """The columns of `source` that the aggregate is taken by."""
    target: int | None
    """The column that is aggregated; None counts rows."""
    order: tuple[int, ...]
    """The columns by which rows are ordered, for `concat`."""
    target_type: Type | None
    result_type: Type
    text: str
    span: Span | None = field(default=None, compare=False, repr=False)
    failed: str | None = None
    """The relation of the groups in which a result has no value; without one that is an error.

    Its rows are groups; of several aggregates (group.., aggregate.., flag..), with a flag for each
    that can fail.
    """
    algebra: Algebra | None = None
    """Of an aggregate that is registered from Python."""
    variables: tuple[str, ...] = ()
    """The names of the group's variables, for messages."""
    parts: tuple[Aggregation, ...] = ()
    """What a row has behind its group, if that is more than one aggregate (plan/siblings.py)."""

    @property
    def each(self) -> tuple[Aggregation, ...]:
        """The aggregates that a row has, from left to right."""
        return self.parts or (self,)


@dataclass(frozen=True)
class Layer:
    """Relations that depend on each other, and what derives them: rules, or an aggregation.

    A stratum that cannot be put into the kernel's terms is left as it is, in `recompute`.
    """

    relations: tuple[str, ...]
    rules: tuple[Rule, ...]
    recursive: bool
    aggregation: Aggregation | None = None
    recompute: Stratum | None = None
    errors_of: str | None = None
    """The relation of failed groups, if the rows here are those of them that are errors."""


@dataclass(frozen=True)
class Lowered:
    """A program in the kernel's terms. Names with `@` are those that lowering has made."""

    relations: Mapping[str, tuple[Type, ...]]
    layers: tuple[Layer, ...]
