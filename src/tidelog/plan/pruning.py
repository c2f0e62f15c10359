"""The rules that say which candidates of a pruned relation are kept.

Subsumption, with `p@worse` only for those that can be out:

    p(x, d) <= p(x, e) :- e < d.

    p@worse(x, d) :- p@candidates(x, d), p@candidates(x, e), e < d.
    p(x, d)       :- p@candidates(x, d), !p@worse(x, d).

If two rows can be better than each other, `p@worse` reads all pairs, and of two such rows the
smaller one is better:

    p@worse(r) :- p@better(r, t), !p@better(t, r).
    p@worse(r) :- p@better(r, t), t < r.                one rule for each column

A choice by one key is the smallest row of each group, column by column:

    p(k, a, b) :- p@candidates(k, _, _), a = min c : { p@candidates(k, c, _) },
                  b = min d : { p@candidates(k, a, d) }.

Otherwise rows are chosen one after the other (maintain/recompute.py), and the rule only copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tidelog.logic import program as p
from tidelog.logic.pruning import is_strict, row_variables
from tidelog.source import Span
from tidelog.values.types import Type


@dataclass(frozen=True)
class PruningRules:
    """Rules that read the candidates of a relation, and derive its rows."""

    candidates: str
    helpers: tuple[str, ...]
    """Other relations that the rules derive."""
    rules: tuple[p.Rule, ...]


def pruning_rules(
    relation: p.Relation,
    kept: p.ChoiceDomain | p.Subsumption,
    fresh: Callable[[str, Sequence[Type]], str],
    *,
    one_by_one: bool,
) -> PruningRules:
    """Return the rules of a pruned relation; `fresh` makes new relations.

    `one_by_one` says that `choice-domain` has been applied to the candidates already.
    """
    types = [column.type for column in relation.columns]
    candidates = fresh(f"{relation.name}@candidates", types)
    if isinstance(kept, p.Subsumption):
        return _subsumption(relation, kept, candidates, fresh)
    row = tuple(p.Var(f"c{i}", t) for i, t in enumerate(types))
    assert relation.span is not None
    span = relation.span
    key = range(len(row)) if one_by_one else kept.keys[0]
    body = _smallest(candidates, row, key, span)
    text = f"choice of {relation.name}"
    rule = p.Rule(0, p.Atom(relation.name, row, span), tuple(body), text, span)
    return PruningRules(candidates, (), (rule,))


def _smallest(
    candidates: str, row: tuple[p.Var, ...], key: Sequence[int], span: Span
) -> Iterator[p.Literal]:
    """Yield what the smallest rows of the groups by a key satisfy."""
    wild = [p.Wildcard(variable.type) for variable in row]
    known: list[p.Term] = [v if i in key else wild[i] for i, v in enumerate(row)]
    yield p.Atom(candidates, tuple(known), span)
    for place, variable in enumerate(row):
        if place in key:
            continue
        # In the braces each `_` is a variable of its own.
        local = [p.Var(f"{v.name}'{place}", v.type) for v in row]
        args = tuple(
            local[i] if isinstance(term, p.Wildcard) else term for i, term in enumerate(known)
        )
        own = tuple(arg.name for arg in args if isinstance(arg, p.Var) and arg in local)
        group = tuple(arg.name for arg in args if isinstance(arg, p.Var) and arg not in local)
        inside = (p.Atom(candidates, args, span),)
        yield p.Reduce(variable, "min", local[place], inside, group, own, span)
        known[place] = variable


def _subsumption(
    relation: p.Relation,
    kept: p.Subsumption,
    candidates: str,
    fresh: Callable[[str, Sequence[Type]], str],
) -> PruningRules:
    types = [column.type for column in relation.columns]
    worse = fresh(f"{relation.name}@worse", types)
    helpers, rules = [worse], []
    if is_strict(kept):
        for rule in kept.rules:
            body = _pair(rule, candidates)
            rules.append(_rule(worse, row_variables(rule)[0], body, rule))
    else:
        better = fresh(f"{relation.name}@better", [*types, *types])
        helpers.append(better)
        rules += _pairs(kept, candidates, better)
        rules += _worse(types, worse, better, kept.rules[0])
    row = tuple(p.Var(f"c{i}", t) for i, t in enumerate(types))
    first = kept.rules[0]
    body = (
        p.Atom(candidates, row, first.span),
        p.Atom(worse, row, first.span, negated=True),
    )
    rules.append(p.Rule(0, p.Atom(relation.name, row, first.span), body, first.text, first.span))
    return PruningRules(candidates, tuple(helpers), tuple(rules))


def _rule(head: str, args: tuple[p.Term, ...], body: Sequence[p.Literal], like: p.Rule) -> p.Rule:
    return p.Rule(0, p.Atom(head, args, like.span), tuple(body), like.text, like.span)


def _pair(rule: p.Rule, candidates: str) -> tuple[p.Literal, ...]:
    """Return the body of a subsumption, over the candidates."""
    mine, other = row_variables(rule)
    atoms = (p.Atom(candidates, mine, rule.span), p.Atom(candidates, other, rule.span))
    return (*atoms, *rule.body[2:])


def _pairs(kept: p.Subsumption, candidates: str, better: str) -> Iterator[p.Rule]:
    """Yield the rules of all pairs of a row and a better one, which is another one."""
    for rule in kept.rules:
        mine, other = row_variables(rule)
        for a, b in zip(mine, other, strict=True):
            if a != b:
                differ = p.Compare(p.Comparison.NE, a, b, rule.span)
                yield _rule(better, (*mine, *other), (*_pair(rule, candidates), differ), rule)


def _worse(types: Sequence[Type], worse: str, better: str, like: p.Rule) -> Iterator[p.Rule]:
    """Yield the rules of the rows that have a better one which is not worse or not larger."""
    mine = tuple(p.Var(f"a{i}", t) for i, t in enumerate(types))
    other = tuple(p.Var(f"b{i}", t) for i, t in enumerate(types))
    there = p.Atom(better, (*mine, *other), like.span)
    back = p.Atom(better, (*other, *mine), like.span, negated=True)
    yield _rule(worse, mine, (there, back), like)
    for place, (a, b) in enumerate(zip(mine, other, strict=True)):
        args = (*mine, *mine[:place], *other[place:])
        less = p.Compare(p.Comparison.LT, b, a, like.span)
        yield _rule(worse, mine, (p.Atom(better, args, like.span), less), like)
