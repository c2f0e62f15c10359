"""Finding a proof: one derivation for each row that the proof uses.

A row is given, a fact of the program, or derived by a rule from other rows, and these are proved in
turn. Rows of a recursion are proved from rows of lower levels, so that no proof goes in circles.
The level of a row is the first iteration that derives it. So the rows below are as near to the
facts as any derivation allows, and the proof has the least depth.

Where an engine keeps no levels (`StateRows.level`), they are found by proving: all derivations of
the row, and of the rows that these use, then level by level those that need no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tidelog.logic import program as p
from tidelog.proof.facts import StateRows
from tidelog.proof.rules import ProofRule, proof_rules
from tidelog.proof.steps import StepMaker
from tidelog.proof.tree import Premise, Proof, ProofStep
from tidelog.reference.solve import Assignment
from tidelog.values.types import Row

Goal: TypeAlias = tuple[str, Row]
"""A row of a relation, to be proved."""


@dataclass(frozen=True)
class _Derivation:
    """How a rule derives a row, and from which rows."""

    rule: ProofRule
    known: Assignment
    premises: tuple[Goal, ...]


class ProofSearch:
    """Proves rows of one program in one state."""

    def __init__(self, state: StateRows) -> None:
        self.state = state
        self.rules = proof_rules(state.program)
        """The rules of each derived relation."""
        self._steps = StepMaker(state)
        self._recursive = {
            name: frozenset(stratum.relations)
            for stratum in state.program.strata
            if stratum.recursive
            for name in stratum.relations
        }
        self._found: dict[Goal, _Derivation | None] = {}
        """How each row is derived; None for those that need no rule."""

    def prove(self, relation: str, row: Row) -> Proof:
        """Return the proof of a row that is in the relation."""
        goal = (relation, row)
        self._derive_all(goal)
        return self._assembled(goal)

    # --- derivations ---

    def _derive_all(self, goal: Goal) -> None:
        """Find a derivation for a row, and for all rows that it needs."""
        waiting = [goal]
        done: set[Goal] = set()
        while waiting:
            goal = waiting.pop()
            if goal in done:
                continue
            done.add(goal)
            if goal not in self._found:
                self._found[goal] = self._derived(goal)
            derivation = self._found[goal]
            if derivation is not None:
                waiting += reversed(derivation.premises)

    def _derived(self, goal: Goal) -> _Derivation | None:
        relation, row = goal
        if self._is_leaf(goal):
            return None
        level = None
        if relation in self._recursive:
            level = self.state.level(relation, row)
            if level is None:
                return self._without_levels(goal)
        found = next(self._derivations(goal, level), None)
        if found is None and relation in self.state.program.pruned:
            return None
        assert found is not None, f"{self._steps.words.row(relation, row)} has no derivation"
        return found

    def _is_leaf(self, goal: Goal) -> bool:
        relation, row = goal
        return self.state.fact_span(relation, row) is not None or self.state.is_given(relation, row)

    def _derivations(self, goal: Goal, level: int | None) -> Iterator[_Derivation]:
        relation, row = goal
        for rule in self.rules.get(relation, ()):
            for known in self.state.derivations(rule, row, level):
                yield _Derivation(rule, known, tuple(self._premises(rule, known)))

    def _premises(self, rule: ProofRule, known: Assignment) -> Iterator[Goal]:
        for atom in rule.atoms:
            yield atom.relation, self._steps.row(atom, known)

    def _without_levels(self, goal: Goal) -> _Derivation | None:
        """Find the levels of a row, and of those that it depends on, by proving all of them."""
        recursion = self._recursive[goal[0]]
        options: dict[Goal, list[_Derivation]] = {}
        level: dict[Goal, _Derivation | None] = {}
        waiting = [goal]
        while waiting:
            current = waiting.pop()
            if current in options or current in level:
                continue
            if current in self._found or self._is_leaf(current):
                level[current] = self._found.get(current)
                continue
            options[current] = list(self._derivations(current, None))
            for derivation in options[current]:
                waiting += (g for g in derivation.premises if g[0] in recursion)
        while options:
            ready: dict[Goal, _Derivation | None] = {
                current: found
                for current, choices in options.items()
                if (found := _first_ready(choices, recursion, level)) is not None
            }
            if not ready:
                # What is left supports only itself, or is from rows that were not kept.
                pruned = self.state.program.pruned
                ready = dict.fromkeys([g for g in options if g[0] in pruned][:1])
                if not ready:
                    break
            level.update(ready)
            for current in ready:
                del options[current]
        self._found.update(level)
        assert goal in level, f"{self._steps.words.row(*goal)} has no derivation"
        return level[goal]

    # --- the tree ---

    def _assembled(self, goal: Goal) -> Proof:
        """Return the proof of a row, made from the bottom up."""
        made: dict[Goal, Proof] = {}
        waiting = [goal]
        while waiting:
            current = waiting[-1]
            derivation = self._found[current]
            premises = () if derivation is None else derivation.premises
            missing = [g for g in premises if g not in made]
            if missing:
                waiting += reversed(missing)
                continue
            waiting.pop()
            if current not in made:
                made[current] = self._proof(current, derivation, made)
        return made[goal]

    def _proof(self, goal: Goal, derivation: _Derivation | None, made: dict[Goal, Proof]) -> Proof:
        relation, row = goal
        words = self._steps.words
        if derivation is None:
            if self.state.is_given(relation, row):
                return Proof(relation, row, "given", words)
            span = self.state.fact_span(relation, row)
            return Proof(relation, row, "round" if span is None else "fact", words, span)
        rule, known = derivation.rule, derivation.known
        values = self._steps.values(rule, known)
        steps = tuple(self._step(literal, known, made) for literal in rule.body)
        return Proof(relation, row, "rule", words, rule.rule.span, rule.rule, values, steps)

    def _step(self, literal: p.Literal, known: Assignment, made: dict[Goal, Proof]) -> ProofStep:
        if isinstance(literal, p.Atom) and not literal.negated:
            return Premise(made[literal.relation, self._steps.row(literal, known)])
        return self._steps.other(literal, known)


def _first_ready(
    choices: list[_Derivation], recursion: frozenset[str], level: dict[Goal, _Derivation | None]
) -> _Derivation | None:
    """Return the first derivation from rows that have a level."""
    return next(
        (d for d in choices if all(g in level for g in d.premises if g[0] in recursion)), None
    )
