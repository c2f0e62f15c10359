"""Pruned relations keep only some of their candidates: `choice-domain` and subsumption.

A *candidate* is a row that rules derive, or that is given.

    .decl leader(team: symbol, who: symbol) choice-domain team

keeps at most one row for each team. Candidates are taken in the order of their values, so the
result does not depend on the order of evaluation.

    dist(x, d) <= dist(x, e) :- e < d.

leaves out the row on the left if the one on the right is a candidate, too, and the body holds. Of
two rows that are better than each other, the smaller one is better; no row is better than itself.

If a pruned relation is recursive, candidates are found in rounds. Each evaluates the rules on the
rows that are kept so far, and on what the other relations of the stratum are with these rows. New
candidates of `choice-domain` are taken after those of earlier rounds. For subsumption, a row stays
a candidate when what derived it is no longer kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from tidelog.errors import did_you_mean
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.printer import format_subsumption
from tidelog.logic.declare import Declarations
from tidelog.logic.normalise import Clause, normalise
from tidelog.logic.program import (
    ChoiceDomain,
    Compare,
    Comparison,
    Rule,
    Subsumption,
    Term,
    Var,
    ViewOptions,
)
from tidelog.logic.resolve import resolve

_ONE_WAY = "a relation has either a `choice-domain` or subsumption"
Checker = Callable[[Clause], Rule | None]
"""Types and checks a clause; None if something was reported."""


def pruned_relations(
    module: s.Module, declared: Declarations, check: Checker, diagnostics: Diagnostics
) -> Mapping[str, ChoiceDomain | Subsumption]:
    """Return the relations that keep only some of their candidates, and which they keep."""
    found: dict[str, ChoiceDomain | Subsumption] = {}
    for statement in module.statements:
        if isinstance(statement, s.RelationDeclaration) and statement.choice:
            for name in statement.names:
                choice = _choice(statement, name, declared, diagnostics)
                if choice is not None:
                    found[name.name] = choice
    rules: dict[str, list[Rule]] = {}
    for statement in module.statements:
        if not isinstance(statement, s.SubsumptionStatement):
            continue
        relation = statement.worse.relation
        if relation in found:
            diagnostics.error("bad-subsumption", _ONE_WAY, statement.worse.span, "remove one")
            continue
        if relation in declared.relations and declared.relations[relation].functional:
            diagnostics.error(
                "bad-subsumption", f"`{relation}` is functional: its rows cannot be compared",
                statement.worse.span, "declare it with parentheses",
            )  # fmt: skip
            continue
        rules.setdefault(relation, []).extend(_rules(statement, declared, check, diagnostics))
    found.update({name: Subsumption(tuple(own)) for name, own in rules.items() if own})
    return MappingProxyType(found)


# --- choice-domain --------------------------------------------------------------------------------


def _choice(
    statement: s.RelationDeclaration,
    name: s.RelationName,
    declared: Declarations,
    diagnostics: Diagnostics,
) -> ChoiceDomain | None:
    if "eqrel" in statement.qualifiers or statement.value is not None:
        other = "functional" if statement.value is not None else "an `eqrel`"
        diagnostics.error(
            "bad-qualifier", f"`{name.name}` cannot have a `choice-domain`: it is {other}",
            name.span, "give the choice a relation of its own",
        )  # fmt: skip
        return None
    places = {a.name: place for place, a in enumerate(statement.attributes)}
    keys: list[tuple[int, ...]] = []
    for key in statement.choice:
        unknown = [column for column in key.columns if column not in places]
        if unknown:
            diagnostics.error(
                "bad-qualifier", f"`{name.name}` has no column `{unknown[0]}`", key.span,
                did_you_mean(unknown[0], places) or f"its columns are {', '.join(places)}",
            )  # fmt: skip
            return None
        keys.append(tuple(sorted({places[column] for column in key.columns})))
    return ChoiceDomain(tuple(dict.fromkeys(keys)))


# --- subsumption ----------------------------------------------------------------------------------


def _rules(
    statement: s.SubsumptionStatement,
    declared: Declarations,
    check: Checker,
    diagnostics: Diagnostics,
) -> Iterator[Rule]:
    """Yield the rules of a subsumption, one for each alternative of its body."""
    equal: list[s.Formula] = []
    worse = _with_variables(statement.worse, "worse", equal)
    better = _with_variables(statement.better, "better", equal)
    body = s.Both((worse, better, *equal, statement.body), span=statement.span)
    rule = s.RuleStatement((worse,), body, span=statement.span)
    if not resolve(rule, declared, diagnostics):
        return
    text = format_subsumption(statement)
    for clause in normalise(rule, diagnostics):
        made = check(replace(clause, text=text))
        if made is not None:
            yield made


def _with_variables(atom: s.AtomFormula, name: str, equal: list[s.Formula]) -> s.AtomFormula:
    """Return an atom with a variable in each column; other terms become equations."""
    args: list[s.Term] = []
    for place, arg in enumerate(atom.args):
        if isinstance(arg, s.Variable):
            args.append(arg)
            continue
        variable = s.Variable(f"${name}{place}", span=arg.span)
        args.append(variable)
        if not isinstance(arg, s.Anonymous):
            equal.append(s.Compared("=", variable, arg, span=arg.span))
    return replace(atom, args=tuple(args))


def row_variables(rule: Rule) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
    """Return the variables of the worse and of the better row of a subsumption."""

    def of(args: tuple[Term, ...]) -> tuple[Var, ...]:
        found = tuple(arg for arg in args if isinstance(arg, Var))
        assert len(found) == len(args), "each column has a variable"
        return found

    worse, better = rule.body[:2]
    return of(worse.args), of(better.args)  # type: ignore[union-attr]


def is_strict(found: Subsumption) -> bool:
    """Return whether no two rows can be better than each other, as far as the text says.

    That is so if every rule compares the same column of the rows, in the same direction, by `<` or
    `>`.
    """
    shared: set[tuple[int, bool]] | None = None
    for rule in found.rules:
        own = set(_strict_columns(rule))
        shared = own if shared is None else shared & own
    return bool(shared)


def _strict_columns(rule: Rule) -> Iterator[tuple[int, bool]]:
    """Yield the columns in which the better row is less (True) or greater than the worse one."""
    worse, better = row_variables(rule)
    for literal in rule.body[2:]:
        if not isinstance(literal, Compare) or literal.op not in (Comparison.LT, Comparison.GT):
            continue
        sides = (literal.left, literal.right)
        low, high = sides if literal.op is Comparison.LT else reversed(sides)
        for place, (mine, other) in enumerate(zip(worse, better, strict=True)):
            if (low, high) == (other, mine):
                yield place, True
            elif (low, high) == (mine, other):
                yield place, False


def needs_rounds(found: ChoiceDomain | Subsumption, *, recursive: bool) -> bool:
    """Return whether rows are kept one after the other, not each for itself."""
    return recursive or (isinstance(found, ChoiceDomain) and len(found.keys) > 1)


def refuse_views(
    views: Mapping[str, ViewOptions],
    pruned: Mapping[str, ChoiceDomain | Subsumption],
    diagnostics: Diagnostics,
) -> None:
    """Report pruned relations that a `.view` directive does not want to be stored."""
    for name in pruned.keys() & views.keys():
        if views[name].virtual:
            diagnostics.error(
                "bad-view", f"`{name}` keeps only some of its candidates, and cannot be virtual",
                views[name].span, "leave out `virtual=true`",
            )  # fmt: skip
