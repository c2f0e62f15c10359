"""The rules of a program in the form in which proofs read them.

In a proof every positive atom is a row. So the `_` of atoms become variables, with names that start
with `$_`: then the values of a rule's variables determine all its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

from tidelog.logic import program as p
from tidelog.logic.variables import (
    newly_bound,
    pattern_variables,
    term_variables,
    terms_of,
)


@dataclass(frozen=True)
class ProofRule:
    """A rule without `_` in its positive atoms, whose head is a pattern for rows."""

    rule: p.Rule
    """The rule as the program has it."""
    body: tuple[p.Literal, ...]
    pattern: tuple[p.Term, ...]
    """The arguments of the head; what it computes is a variable, `$head0` or the like."""
    computed: tuple[p.Compare, ...]
    """What the variables of the head are equal to."""

    @property
    def relation(self) -> str:
        """The relation that the rule derives."""
        return self.rule.head.relation

    @cached_property
    def atoms(self) -> tuple[p.Atom, ...]:
        """The positive atoms."""
        return tuple(lit for lit in self.body if isinstance(lit, p.Atom) and not lit.negated)

    @cached_property
    def goals(self) -> tuple[p.Literal, ...]:
        """All that must hold for the head."""
        return (*self.body, *self.computed)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The variables that the program has named: those of the head first."""
        terms = (*self.rule.head.args, *(term for part in self.body for term in terms_of(part)))
        names = dict.fromkeys(term_variables(terms))
        return tuple(name for name in names if not name.startswith("$"))


def proof_rules(program: p.Program) -> dict[str, tuple[ProofRule, ...]]:
    """Return the rules of each derived relation, in the order of the program."""
    found: dict[str, list[ProofRule]] = {}
    for rule in program.rules:
        names = (f"$_{number}" for number in count())
        body = tuple(
            named_columns(literal, names)
            if isinstance(literal, p.Atom) and not literal.negated
            else literal
            for literal in rule.body
        )
        made = ProofRule(rule, body, *_head(rule.head))
        found.setdefault(rule.head.relation, []).append(made)
    return {name: tuple(rules) for name, rules in found.items()}


def _head(head: p.Atom) -> tuple[tuple[p.Term, ...], tuple[p.Compare, ...]]:
    """Return the head as a pattern, and what it computes as conditions."""
    args: list[p.Term] = []
    computed: list[p.Compare] = []
    for place, arg in enumerate(head.args):
        if _is_pattern(arg):
            args.append(arg)
        else:
            variable = p.Var(f"$head{place}", arg.type)
            args.append(variable)
            computed.append(p.Compare(p.Comparison.EQ, variable, arg, head.span))
    return tuple(args), tuple(computed)


def _is_pattern(term: p.Term) -> bool:
    match term:
        case p.Apply():
            return False
        case p.MakeRecord(args):
            return all(map(_is_pattern, args))
        case _:
            return True


def named_columns(atom: p.Atom, names: Iterator[str]) -> p.Atom:
    """Return an atom with variables for `_`."""
    return replace(atom, args=tuple(_with_names(arg, names) for arg in atom.args))


def _with_names(term: p.Term, names: Iterator[str]) -> p.Term:
    match term:
        case p.Wildcard(type_):
            return p.Var(next(names), type_)
        case p.MakeRecord(args):
            return replace(term, args=tuple(_with_names(arg, names) for arg in args))
        case _:
            return term


# --- what the kernel can join -----------------------------------------------------------------


def joinable(rule: ProofRule, stored: frozenset[str]) -> tuple[p.Literal, ...]:
    """Return a body that starts with the head, for the kernel: a part of what the rule says.

    It has the positive atoms of stored relations, and the comparisons between their variables.
    """
    head = p.Atom(rule.relation, rule.pattern, rule.rule.head.span)
    atoms = [atom for atom in rule.atoms if atom.relation in stored]
    bound = {name for atom in (head, *atoms) for name in pattern_variables(atom.args)}
    waiting = [*rule.computed, *(lit for lit in rule.body if isinstance(lit, p.Compare))]
    kept: list[p.Literal] = []
    while True:
        ready = next((lit for lit in waiting if _is_computable(lit, bound)), None)
        if ready is None:
            return (head, *atoms, *kept)
        waiting.remove(ready)
        kept.append(ready)
        bound |= newly_bound(ready, bound)


def _is_computable(literal: p.Compare, bound: set[str]) -> bool:
    sides = [set(term_variables((side,))) for side in (literal.left, literal.right)]
    if literal.op is p.Comparison.EQ and any(side <= bound for side in sides):
        return sides[0] | sides[1] <= bound | newly_bound(literal, bound)
    return sides[0] | sides[1] <= bound
