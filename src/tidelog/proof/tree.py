"""Proofs as values: what `Database.why` returns.

    reach("a", "c")                      a Proof, by a rule: its steps are those of the rule's body
      reach("a", "b")                    a Premise, with a Proof of its own
      edge("b", "c")                     another one, which is given
      "a" != "c"                         a ConditionHeld

A row that is used twice is proved once: its Proof is one object. So a proof is small even where the
tree would be large, and no Proof is below itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tidelog.logic.program import Compare, Generate, Rule, Test
from tidelog.proof.words import Words
from tidelog.source import Span
from tidelog.values.types import Row

Origin: TypeAlias = Literal["given", "fact", "rule", "round"]


@dataclass(frozen=True, eq=False, repr=False)
class Proof:
    """Why a row is in a relation: it is given, a fact of the program, or a rule derives it.

    A row that is kept by subsumption may be one that an earlier `round` of its recursion has found,
    from rows that are not kept any more.
    """

    relation: str
    row: Row
    origin: Origin
    words: Words
    """Writes values as the program would."""
    span: Span | None = None
    """Where the program has the fact, or the rule."""
    rule: Rule | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values of the rule's variables."""
    steps: tuple[ProofStep, ...] = ()
    """What the body of the rule says, in its order."""

    @property
    def text(self) -> str:
        """The row as the program would write it."""
        return self.words.row(self.relation, self.row)

    @property
    def value_texts(self) -> Mapping[str, str]:
        """The values of the rule's variables, as the program would write them."""
        return {} if self.rule is None else self.words.values(self.rule, self.values)

    @property
    def children(self) -> tuple[Proof, ...]:
        """The proofs of the rows from which the rule derives this one."""
        return tuple(step.proof for step in self.steps if isinstance(step, Premise))

    def nodes(self) -> Iterator[Proof]:
        """Yield this proof and all below it, each once, in the order in which they are shown."""
        seen = {id(self)}
        waiting = [self]
        while waiting:
            proof = waiting.pop()
            yield proof
            for child in reversed(proof.children):
                if id(child) not in seen:
                    seen.add(id(child))
                    waiting.append(child)

    def __str__(self) -> str:
        from tidelog.proof.text import proof_text

        return proof_text(self)

    def __repr__(self) -> str:
        return f"<Proof of {self.text}>"

    def to_json(self) -> dict[str, Any]:
        """Return the proof for `json.dumps`: rows by number, each with the numbers it uses."""
        from tidelog.proof.as_json import proof_json

        return proof_json(self)

    def svg(self) -> str:
        """Return a picture of the tree, as the text of an SVG file."""
        from tidelog.proof.picture import proof_svg

        return proof_svg(self)


@dataclass(frozen=True, eq=False)
class Premise:
    """A positive atom of the rule: the row, with its proof."""

    proof: Proof

    @property
    def text(self) -> str:
        """The row as text."""
        return self.proof.text


@dataclass(frozen=True, eq=False)
class Absence:
    """A negated atom: there is no such row."""

    relation: str
    pattern: tuple[Any, ...]
    """The values of the columns; ANY for those that may have any."""
    words: Words = field(repr=False)

    @property
    def text(self) -> str:
        """The atom as text."""
        return f"!{self.words.row(self.relation, self.pattern)}"


@dataclass(frozen=True, eq=False)
class ConditionHeld:
    """A comparison, a test or a range, with the values that it compares."""

    condition: Compare | Test | Generate
    values: Mapping[str, Any]
    words: Words = field(repr=False)

    @property
    def text(self) -> str:
        """The condition as the rule has it."""
        return self.words.literal(self.condition, {})

    @property
    def with_values(self) -> str:
        """The condition with the values of its variables."""
        return self.words.literal(self.condition, self.values)


@dataclass(frozen=True)
class AggregateTaken:
    """An aggregate, its value, and the rows of its group."""

    text: str
    value: Any
    value_text: str
    size: int
    """How many solutions the body in braces has."""
    first: tuple[tuple[str, ...], ...]
    """What the body says in the first of them: rows and conditions, as text."""


ProofStep: TypeAlias = Premise | Absence | ConditionHeld | AggregateTaken
