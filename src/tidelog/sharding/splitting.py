"""Split a rule in two, so that the program can be cut in between.

*Joins.* Some atoms of a rule become a relation of their own:

    v(o, r) :- customer(c, "B"), order(o, c), r = sum x : { line(o, x) }.

    v@join(o) :- customer(c, "B"), order(o, c).          located by c
    v(o, r) :- v@join(o), r = sum x : { line(o, x) }.    located by o, after an exchange of v@join

*Aggregates.* Each shard aggregates what it has, and the partial results are aggregated again:

    v(g, s) :- shop(_, g), s = sum x : { sale(p, x), shop(p, g) }.

    v@groups(g) :- shop(_, g).
    v@part(g, s) :- sale(p, x), shop(p, g), s = sum y : { sale(q, y), shop(q, g) }.   in each shard
    v(g, s) :- v@groups(g), s = sum t : { v@part(g, t) }.      after an exchange, shard by shard

In the rule of `v@part`, the shard finds the groups and the assignments whose rows it has. Its rows
are no relation of the program: other shards have other partial results of the same group. They are
exchanged with the number of the shard, so equal results of two shards are not taken for one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic import program as p
from tidelog.logic.stratify import stratify
from tidelog.logic.variables import literal_variables, term_variables, terms_of, typed_variables
from tidelog.sharding.search import is_cyclic
from tidelog.sharding.stages import GROUPS, JOIN, is_partial, partial_name
from tidelog.values.types import Field, Kind, Type

_AGAIN = {"sum": "sum", "count": "sum", "min": "min", "max": "max"}
"""How partial results of an aggregate are aggregated."""
_MOST_ATOMS = 6  # of a rule whose subsets are tried


@dataclass(frozen=True)
class Split:
    """A program with a split rule, and the relations to cut at."""

    program: p.Program
    cuts: frozenset[str]


def splits(program: p.Program) -> Iterator[Split]:
    """Yield the ways to split one rule of the program."""
    recursive = {name for s in program.strata if s.recursive for name in s.relations}
    for rule in program.rules:
        if rule.head.relation in recursive or is_partial(rule.head.relation):
            continue
        found = _aggregates(program, rule)
        if found is not None:
            yield found
        yield from _joins(program, rule)


# --- joins ------------------------------------------------------------------------------------


def _joins(program: p.Program, rule: p.Rule) -> Iterator[Split]:
    """Yield a split for each set of joined atoms, but for that of all positive literals."""
    atoms = [i for i, literal in enumerate(rule.body) if _is_plain(literal)]
    reduces = any(isinstance(literal, p.Reduce) for literal in rule.body)
    if len(atoms) > _MOST_ATOMS or is_cyclic(rule):
        return  # two sides of a triangle are many more than triangles
    for size in range(2, len(atoms) + 1):
        for chosen in combinations(atoms, size):
            if (size < len(atoms) or reduces) and _are_joined([rule.body[i] for i in chosen]):
                yield _join(program, rule, chosen)


def _is_plain(literal: p.Literal) -> bool:
    """Return whether a literal is a positive atom of variables and constants."""
    return isinstance(literal, p.Atom) and not literal.negated and _are_simple(literal.args)


def _are_joined(atoms: list[p.Literal]) -> bool:
    groups: list[set[str]] = []
    for atom in atoms:
        own = set(literal_variables(atom))
        for group in [group for group in groups if group & own]:
            groups.remove(group)
            own |= group
        groups.append(own)
    return len(groups) == 1


def _join(program: p.Program, rule: p.Rule, chosen: Collection[int]) -> Split:
    bound = {name for i in chosen for name in literal_variables(rule.body[i])}
    inside = [
        i
        for i, literal in enumerate(rule.body)
        if i in chosen or (_is_simple(literal) and bound.issuperset(literal_variables(literal)))
    ]
    outside = [literal for i, literal in enumerate(rule.body) if i not in inside]
    body = tuple(rule.body[i] for i in inside)
    needed = _variables(outside) | set(term_variables(rule.head.args))
    join, atom = _relation(program, rule, JOIN, body, needed & bound)
    first = replace(rule, id=_next_id(program), head=atom, body=body)
    second = replace(rule, body=(atom, *outside))
    changed = _with(program, rule, [join], [first, second])
    return Split(changed, frozenset({join.name}))


def _is_simple(literal: p.Literal) -> bool:
    """Return whether a literal is a comparison that computes nothing."""
    return isinstance(literal, p.Compare) and _are_simple((literal.left, literal.right))


def _cannot_fail(literal: p.Literal) -> bool:
    """Return whether a literal computes nothing that could fail."""
    is_atom = isinstance(literal, p.Atom) and _are_simple(literal.args)
    return is_atom or _is_simple(literal)


def _are_simple(terms: Iterable[p.Term]) -> bool:
    return all(isinstance(term, p.Var | p.Const | p.Wildcard) for term in terms)


# --- aggregates -------------------------------------------------------------------------------


def _aggregates(program: p.Program, rule: p.Rule) -> Split | None:
    """Return a split of all aggregates of a rule; None if one of them has no partial results."""
    reduces = [literal for literal in rule.body if isinstance(literal, p.Reduce)]
    results = {literal.result.name for literal in reduces if isinstance(literal.result, p.Var)}
    others = [literal for literal in rule.body if not isinstance(literal, p.Reduce)]
    # What computes may fail where the aggregates make the rule false, so it stays with them.
    outer = [
        literal
        for literal in others
        if _cannot_fail(literal) and results.isdisjoint(literal_variables(literal))
    ]
    if not reduces or len(results) < len(reduces) or not all(map(_has_parts, reduces)):
        return None
    bound = {name for literal in outer if _is_plain(literal) for name in literal_variables(literal)}
    if any(not bound.issuperset(reduce.group) for reduce in reduces):
        return None
    if not _variables(x for x in outer if not _is_plain(x)) <= bound:
        return None
    relations, rules = [], []
    number = _next_id(program)
    later: list[p.Literal] = [literal for literal in others if literal not in outer]
    if any(isinstance(literal, p.Atom) for literal in outer):
        needed = {name for literal in reduces for name in literal.group} | _variables(later)
        needed |= set(term_variables(rule.head.args))
        groups, atom = _relation(program, rule, GROUPS, outer, needed & bound)
        relations.append(groups)
        rules.append(replace(rule, id=number, head=atom, body=tuple(outer)))
        later.insert(0, atom)
    else:
        later[:0] = outer
    for i, reduce in enumerate(reduces):
        part, made, final = _part(program, rule, reduce, number + 1 + i, i)
        relations.append(part)
        rules.append(made)
        later.append(final)
    changed = _with(program, rule, relations, [*rules, replace(rule, body=tuple(later))])
    return Split(changed, frozenset(relation.name for relation in relations))


def _has_parts(reduce: p.Reduce) -> bool:
    """Return whether an aggregate of partial results is the aggregate.

    It is not for sums of floats, which are exact and rounded once, and for distinct values. All
    variables of the group must be bound in the braces: a shard finds the groups there.
    """
    if reduce.op not in _AGAIN or reduce.registered is not None:
        return False
    if reduce.op == "count" and reduce.target is not None:
        return False
    if reduce.op == "sum" and _type_of(reduce.result).kind is Kind.FLOAT:
        return False
    if not all(map(_cannot_fail, reduce.body)) or isinstance(reduce.target, p.Apply | p.MakeRecord):
        return False  # it may fail in groups that the rule does not ask for
    if any(isinstance(literal, p.Atom) and is_partial(literal.relation) for literal in reduce.body):
        return False  # it is split already
    bound = {name for x in reduce.body if _is_plain(x) for name in literal_variables(x)}
    return bound.issuperset(reduce.group) and any(map(_is_plain, reduce.body))


def _part(
    program: p.Program, rule: p.Rule, reduce: p.Reduce, number: int, i: int
) -> tuple[p.Relation, p.Rule, p.Reduce]:
    """Return the relation of partial results, its rule, and the aggregate of its rows."""
    types = dict(typed_variables(t for literal in reduce.body for t in terms_of(literal)))
    name = partial_name(rule.head.relation, rule.id, i)
    result = p.Var("$part", _type_of(reduce.result))
    group = tuple(p.Var(found, types[found]) for found in reduce.group)
    columns = [_field(variable.name.lstrip("$"), variable.type) for variable in group]
    relation = p.Relation(name, (*columns, _field("partial result", result.type)))
    head = p.Atom(name, (*group, result), rule.span)
    # A shard has a partial result for the groups that it has, and a global one in any case.
    found = tuple(_outside(literal, frozenset(reduce.group)) for literal in reduce.body)
    body = (*(found if group else ()), replace(reduce, result=result))
    made = replace(rule, id=number, head=head, body=body)
    again = replace(
        reduce,
        op=_AGAIN[reduce.op],
        target=result,
        body=(p.Atom(name, (*group, result), reduce.span),),
        local=(result.name,),
    )
    return relation, made, again


def _outside(literal: p.Literal, group: frozenset[str]) -> p.Literal:
    """Return a literal of an aggregate's body outside it: local variables get other names."""

    def renamed(term: p.Term) -> p.Term:
        if isinstance(term, p.Var) and term.name not in group:
            return replace(term, name=f"$of {term.name}")
        return term

    match literal:
        case p.Atom(args=args):
            return replace(literal, args=tuple(map(renamed, args)))
        case p.Compare(_, left, right):
            return replace(literal, left=renamed(left), right=renamed(right))
    raise AssertionError(literal)


# --- what both need ---------------------------------------------------------------------------


def _relation(
    program: p.Program, rule: p.Rule, ending: str, body: Iterable[p.Literal], names: Collection[str]
) -> tuple[p.Relation, p.Atom]:
    """Return a relation of some variables of a body, and an atom with these variables."""
    types: dict[str, Type] = {}
    for literal in body:
        types |= dict(typed_variables(terms_of(literal)))
    number = sum(name.startswith(rule.head.relation + ending) for name in program.relations)
    name = f"{rule.head.relation}{ending}{rule.id}_{number}"
    variables = [p.Var(found, type_) for found, type_ in types.items() if found in names]
    columns = tuple(_field(variable.name.lstrip("$"), variable.type) for variable in variables)
    return p.Relation(name, columns), p.Atom(name, tuple(variables), rule.span)


def _with(
    program: p.Program, rule: p.Rule, relations: list[p.Relation], rules: list[p.Rule]
) -> p.Program:
    """Return the program with some rules in place of one, which keep its place."""
    added = {**program.relations, **{relation.name: relation for relation in relations}}
    kept = tuple(new for old in program.rules for new in (rules if old.id == rule.id else [old]))
    return replace(
        program, relations=added, rules=kept, strata=stratify(added, kept, Diagnostics())
    )


def _next_id(program: p.Program) -> int:
    return max((rule.id for rule in program.rules), default=-1) + 1


def _variables(literals: Iterable[p.Literal]) -> set[str]:
    return {name for literal in literals for name in literal_variables(literal)}


def _type_of(term: p.Term) -> Type:
    return term.type


def _field(name: str, type_: Type) -> Field:
    return Field(name, type_, str(type_))
