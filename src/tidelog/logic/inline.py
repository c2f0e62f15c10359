"""Relations that only make sense where they are used: `inline` with rules that bind too little.

    .decl next(x: number, y: number) inline
    next(x, y) :- y = x + 1.                      there is no table of all numbers
    p(y) :- q(x), next(x, y).           ──►       p(y) :- q(x), y = x + 1.

An atom of such a relation is replaced by the bodies of its rules, with their variables renamed; the
relation itself is gone. Other relations that are declared `inline` are maintained as usual: there
the qualifier is a hint, and replacing atoms would compute the same rows several times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tidelog.lang import syntax as s
from tidelog.logic.graph import reachable
from tidelog.logic.program import Note
from tidelog.source import Span


def inline(module: s.Module) -> tuple[s.Module, tuple[Note, ...]]:
    """Return the module without the relations that have to be inlined, and a note for each."""
    declared = _declared(module)
    if not declared:
        return module, ()
    rules: dict[str, list[tuple[s.AtomFormula, s.Formula | None]]] = {name: [] for name in declared}
    for statement in module.statements:
        if isinstance(statement, s.RuleStatement):
            for head in statement.heads:
                if head.relation in rules and isinstance(head, s.AtomFormula):
                    rules[head.relation].append((head, statement.body))
    chosen = _chosen(rules)
    if not chosen:
        return module, ()
    inliner = _Inliner({name: rules[name] for name in chosen})
    statements: list[s.Statement] = []
    for statement in module.statements:
        match statement:
            case s.RuleStatement(heads, body):
                kept = tuple(head for head in heads if head.relation not in chosen)
                if kept:
                    shown = None if body is None else inliner.formula(body)
                    statements.append(replace(statement, heads=kept, body=shown))
            case s.SubsumptionStatement(body=body):
                statements.append(replace(statement, body=inliner.formula(body)))
            case s.RelationDeclaration(names):
                left = tuple(name for name in names if name.name not in chosen)
                if left:
                    statements.append(replace(statement, names=left))
            case _:
                statements.append(statement)
    notes = (Note(f"`{name}` is inlined: it has no rows of its own") for name in sorted(chosen))
    return replace(module, statements=tuple(statements)), tuple(notes)


def _declared(module: s.Module) -> set[str]:
    """Return the relations that are declared `inline`, and whose rows no directive needs."""
    found: set[str] = set()
    for statement in module.statements:
        match statement:
            case s.RelationDeclaration(names, _, qualifiers, None, ()) if "inline" in qualifiers:
                if not {"input", "output", "printsize"} & set(qualifiers):
                    found |= {name.name for name in names}
    for statement in module.statements:
        match statement:
            case s.DirectiveStatement(_, names):
                found -= {name.name for name in names}
            case s.RetainStatement(relation):
                found.discard(relation.name)
            case s.SubsumptionStatement(worse):
                found.discard(worse.relation)
    return found


def _chosen(rules: Mapping[str, list[tuple[s.AtomFormula, s.Formula | None]]]) -> set[str]:
    """Return the relations with a rule that does not bind its variables; not recursive ones."""
    needs = {
        name: {
            atom.relation
            for _, body in bodies
            if body is not None
            for atom in _atoms(body)
            if atom.relation in rules
        }
        for name, bodies in rules.items()
    }
    plain = {
        name
        for name, direct in needs.items()
        if not any(name in reachable(needs, other) for other in direct)
    }
    chosen: set[str] = set()
    size = -1
    while size != len(chosen):
        size = len(chosen)
        for name in plain - chosen:
            if any(not _is_safe(head, body, chosen) for head, body in rules[name]):
                chosen.add(name)
    return chosen


# --- does a rule bind its variables? --------------------------------------------------------------


def _is_safe(head: s.AtomFormula, body: s.Formula | None, inlined: set[str]) -> bool:
    """Return whether a rule binds all of its variables; atoms of `inlined` bind nothing."""
    used = {name for arg in head.args for name in s.variables(arg)}
    if body is None:
        return not used
    used |= _used(body)
    bound: set[str] = set()
    size = -1
    while size != len(bound):
        size = len(bound)
        bound |= _bound(body, bound, inlined)
    return used <= bound


def _used(formula: s.Formula) -> set[str]:
    return {name for term in _terms(formula) for name in s.variables(term)}


def _bound(formula: s.Formula, known: set[str], inlined: set[str]) -> set[str]:
    match formula:
        case s.AtomFormula(relation, args) if relation not in inlined:
            return {name for arg in args for name in _pattern(arg)}
        case s.Compared("=", left, right):
            found: set[str] = set()
            for target, value in ((left, right), (right, left)):
                if set(s.variables(value)) <= known:
                    found |= set(_pattern(target))
            return found
        case s.Both(parts):
            return set().union(*(_bound(part, known, inlined) for part in parts))
        case s.Either(parts):
            return set.intersection(*(_bound(part, known, inlined) for part in parts))
        case _:
            return set()


def _pattern(term: s.Term) -> Iterator[str]:
    match term:
        case s.Variable(name):
            yield name
        case s.RecordTerm(args) | s.BranchTerm(_, args):
            for arg in args:
                yield from _pattern(arg)
        case s.Cast(inner):
            yield from _pattern(inner)


def _terms(formula: s.Formula) -> Iterator[s.Term]:
    match formula:
        case s.AtomFormula(_, args) | s.Tested(_, args):
            yield from args
        case s.Compared(_, left, right):
            yield from (left, right)
        case s.Not(inner):
            yield from _terms(inner)
        case s.Both(parts) | s.Either(parts):
            for part in parts:
                yield from _terms(part)


def _atoms(node: s.Node) -> list[s.AtomFormula]:
    """Return all atoms in a node, also those of aggregates."""
    found: list[s.AtomFormula] = []

    def note(part: s.Node) -> s.Node:
        if isinstance(part, s.AtomFormula):
            found.append(part)
        return part

    s.rewritten(node, note)
    return found


# --- replacing atoms ------------------------------------------------------------------------------


class _Inliner:
    """Replaces atoms; each replacement has variables of its own."""

    def __init__(self, rules: Mapping[str, list[tuple[s.AtomFormula, s.Formula | None]]]) -> None:
        self._rules = rules
        self._fresh = 0

    def formula(self, formula: s.Formula, negated: bool = False) -> s.Formula:
        """Return a formula without inlined atoms."""
        match formula:
            case s.AtomFormula(name, args) if name in self._rules:
                args = tuple(self._named(self._inside(arg)) for arg in args)
                bodies = [
                    self._body(head, body, args, negated, formula.span)
                    for head, body in self._rules[name]
                    if len(head.args) == len(args)
                ]
                if not bodies:
                    return s.Truth(False, span=formula.span)
                return bodies[0] if len(bodies) == 1 else s.Either(tuple(bodies), span=formula.span)
            case s.Not(inner):
                return replace(formula, formula=self.formula(inner, not negated))
            case s.Both(parts) | s.Either(parts):
                return replace(formula, parts=tuple(self.formula(p, negated) for p in parts))
            case _:
                return self._inside(formula)

    def _inside(self, node: s.N) -> s.N:
        """Return a node with the atoms in its aggregates replaced."""

        def change(part: s.Node) -> s.Node:
            if isinstance(part, s.AggregateTerm):
                return replace(part, body=self.formula(part.body))
            return part

        return s.rewritten(node, change)

    def _variable(self, name: str, span: Span) -> s.Variable:
        self._fresh += 1
        return s.Variable(f"{name}'{self._fresh}", span=span)

    def _named(self, term: s.Term) -> s.Term:
        """Return a term with variables for its `_`."""

        def change(part: s.Node) -> s.Node:
            return self._variable("_", part.span) if isinstance(part, s.Anonymous) else part

        return s.rewritten(term, change)

    def _body(
        self,
        head: s.AtomFormula,
        body: s.Formula | None,
        args: tuple[s.Term, ...],
        negated: bool,
        span: Span,
    ) -> s.Formula:
        """Return what one rule says about the arguments of an atom."""
        given: dict[str, s.Term] = {}
        equal: list[tuple[s.Term, s.Term]] = []
        for mine, theirs in zip(head.args, args, strict=True):
            if isinstance(mine, s.Variable) and mine.name not in given:
                given[mine.name] = theirs
            else:
                equal += _unified(theirs, mine)
        counts = Counter(n.name for n in _variables(body)) if body is not None else Counter()
        made: dict[str, s.Term] = {}

        def change(part: s.Node) -> s.Node:
            if isinstance(part, s.AtomFormula) and negated:
                # Under a negation, a variable that occurs nowhere else stands for any value.
                loose = {n for n, count in counts.items() if count == 1 and n not in given}
                args = (
                    s.Anonymous(span=a.span)
                    if isinstance(a, s.Variable) and a.name.partition("'")[0] in loose
                    else a
                    for a in part.args
                )
                return replace(part, args=tuple(args))
            if not isinstance(part, s.Variable):
                return part
            if part.name in given:
                return given[part.name]
            if part.name not in made:
                made[part.name] = self._variable(part.name, part.span)
            return made[part.name]

        parts: list[s.Formula] = [
            s.Compared("=", theirs, s.rewritten(mine, change), span=span) for theirs, mine in equal
        ]
        if body is not None:
            parts.append(self.formula(s.rewritten(body, change), negated))
        if not parts:
            return s.Truth(True, span=span)
        return parts[0] if len(parts) == 1 else s.Both(tuple(parts), span=span)


def _unified(theirs: s.Term, mine: s.Term) -> list[tuple[s.Term, s.Term]]:
    """Return the equations between an argument and a term of the head, field by field."""
    match theirs, mine:
        case s.RecordTerm(left), s.RecordTerm(right) if len(left) == len(right):
            pairs = zip(left, right, strict=True)
            return [pair for a, b in pairs for pair in _unified(a, b)]
        case s.BranchTerm(name, left), s.BranchTerm(other, right) if name == other and len(
            left
        ) == len(right):
            pairs = zip(left, right, strict=True)
            return [pair for a, b in pairs for pair in _unified(a, b)]
        case _:
            return [(theirs, mine)]


def _variables(node: s.Node) -> list[s.Variable]:
    found: list[s.Variable] = []

    def note(part: s.Node) -> s.Node:
        if isinstance(part, s.Variable):
            found.append(part)
        return part

    s.rewritten(node, note)
    return found
