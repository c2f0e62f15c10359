"""What is missing for a row, as values: what `Database.why_not` returns.

    reach("c", "a") is not in reach      a WhyNot, with a RuleGap for each rule of reach
      reach(x, y) :- edge(x, y).
        edge("c", "a")   missing         a MissingRow
      reach(x, z) :- reach(x, y), edge(y, z).
        reach("c", "d")  holds           a RowHeld: the match that comes furthest
        edge("d", "a")   missing         the MissingRow at which it ends

What holds and what does not is there as values, and as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidelog.logic.program import Rule
from tidelog.proof.tree import Absence, AggregateTaken, ConditionHeld, Proof
from tidelog.source import Span
from tidelog.values.types import Row


@dataclass(frozen=True)
class RowHeld:
    """A positive atom of the rule, and the row that it found."""

    relation: str
    row: Row
    text: str


HeldStep: TypeAlias = RowHeld | Absence | ConditionHeld | AggregateTaken


@dataclass(frozen=True)
class MissingRow:
    """A positive atom of the rule for which there is no row."""

    relation: str
    pattern: tuple[Any, ...]
    """The values that the row would have; ANY where any value would do."""
    text: str
    deeper: WhyNot | None = None
    """Why that row is missing, if it was asked for and rules derive it."""


@dataclass(frozen=True)
class BlockingRow:
    """A negated atom of the rule, and a row that it meets."""

    relation: str
    row: Row
    text: str
    row_text: str


@dataclass(frozen=True)
class FailedCondition:
    """A comparison, a test or a range that is false."""

    text: str
    with_values: str


@dataclass(frozen=True)
class OtherAggregate:
    """An aggregate that has another value, or none."""

    text: str
    wanted: str
    value_text: str | None


@dataclass(frozen=True)
class FailedComputation:
    """A value that cannot be computed."""

    text: str
    reason: str


@dataclass(frozen=True)
class OtherHead:
    """A head that no row like this one can match."""

    text: str


@dataclass(frozen=True)
class NotKept:
    """A row that the rule derives, but that is not kept among the candidates."""

    text: str


Gap: TypeAlias = (
    MissingRow
    | BlockingRow
    | FailedCondition
    | OtherAggregate
    | FailedComputation
    | OtherHead
    | NotKept
)


@dataclass(frozen=True)
class RuleGap:
    """How near a rule comes to deriving the row, and where it ends."""

    rule: Rule
    span: Span
    values: Mapping[str, Any]
    """The values of variables in the match that comes furthest."""
    value_texts: Mapping[str, str]
    held: tuple[HeldStep, ...]
    """What holds in this match, in the order in which it was tried."""
    gap: Gap
    """The first thing that does not hold."""
    untried: tuple[str, ...]
    """What the rule says besides, as text."""
    is_complete: bool
    """Whether all matches were tried; otherwise another one may come further."""


@dataclass(frozen=True)
class WhyNot:
    """Why a row is not in a relation. If it is there, `proof` says why."""

    relation: str
    pattern: tuple[Any, ...]
    text: str
    rules: tuple[RuleGap, ...] = ()
    proof: Proof | None = None
    not_kept: str = ""
    """Why the row is not kept, if it is given or a fact of the program."""

    @property
    def is_present(self) -> bool:
        """Whether the row is there after all."""
        return self.proof is not None

    def __str__(self) -> str:
        from tidelog.proof.text import why_not_text

        return why_not_text(self)

    def to_json(self) -> dict[str, Any]:
        """Return what is missing for `json.dumps`."""
        from tidelog.proof.as_json import why_not_json

        return why_not_json(self)

    def svg(self) -> str:
        """Return a picture of what is missing, as the text of an SVG file."""
        from tidelog.proof.picture import why_not_svg

        return why_not_svg(self)
