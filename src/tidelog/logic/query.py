"""A query: a rule body that is asked for its variables.

    reach("a", x), !edge("a", x)

It goes through the passes of a rule: names, normal form, types, safety. What is different is the
head. It has the variables of the body in the order in which they first appear, without those that
only stand inside an aggregate, and without `_`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.parser import parse, parse_body
from tidelog.logic.algebraic import without_branches
from tidelog.logic.components import expand
from tidelog.logic.declare import Declarations
from tidelog.logic.infer import Inference
from tidelog.logic.normalise import normalise
from tidelog.logic.program import Atom, Literal, Program, Relation, Rule, Stratum, Var
from tidelog.logic.program_types import ProgramTypes
from tidelog.logic.registry import functions, registered
from tidelog.logic.resolve import resolve
from tidelog.logic.safety import check_safety
from tidelog.logic.variables import terms_of, typed_variables
from tidelog.source import SourceText
from tidelog.values.types import Field, Type

_KEPT = (
    s.Subtype,
    s.AliasOrUnion,
    s.RecordDeclaration,
    s.AlgebraicDeclaration,
    s.PragmaStatement,
)
ANSWERS = "%query"
"""The relation of the answers. No relation of a program can have this name."""


@dataclass(frozen=True)
class Query:
    """A checked query: the relation of its answers, and the rules that derive it."""

    text: str
    relation: Relation
    rules: tuple[Rule, ...]

    @property
    def shown(self) -> Relation:
        """The relation of the answers, as it is called to users."""
        return replace(self.relation, name="query")

    def within(self, program: Program) -> Program:
        """Return the program with the rules of the query in addition to its own."""
        relations = {**program.relations, ANSWERS: self.relation}
        stratum = Stratum(len(program.strata), (ANSWERS,), self.rules, recursive=False)
        return replace(
            program,
            relations=MappingProxyType(relations),
            rules=(*program.rules, *self.rules),
            strata=(*program.strata, stratum),
        )

    def alone(self, program: Program) -> Program:
        """Return the query as a program to which all relations of the other are given."""
        whole = self.within(program)
        stratum = replace(whole.strata[-1], index=0)
        return replace(
            whole, facts=(), rules=self.rules, strata=(stratum,), views=MappingProxyType({}),
            pruned=MappingProxyType({}),
        )  # fmt: skip


class QueryChecker:
    """Checks queries about the relations of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._relations = {**program.relations, ANSWERS: Relation(ANSWERS, ())}
        self._types: s.Module | None = None

    def check(self, text: str) -> Query:
        """Return the checked query; raise ProgramError with every mistake found."""
        diagnostics = Diagnostics()
        aggregates = registered()
        body = parse_body(SourceText("<query>", text), diagnostics, aggregates.keys())
        diagnostics.raise_if_any()
        assert body is not None
        head = s.AtomFormula(ANSWERS, (), span=body.span)
        asked = s.RuleStatement((head,), body, span=body.span)
        known = self._type_declarations()
        module = replace(known, statements=(*known.statements, asked))
        module = without_branches(module, diagnostics)
        diagnostics.raise_if_any()
        types = ProgramTypes(module, diagnostics)
        declared = Declarations(self._relations)
        statement = module.statements[-1]
        assert isinstance(statement, s.RuleStatement) and statement.body is not None
        resolve(statement, declared, diagnostics)
        diagnostics.raise_if_any()
        rules: list[Rule] = []
        for clause in normalise(statement, diagnostics):
            inference = Inference(
                clause, declared.relations, types, aggregates, functions(), diagnostics
            )
            rule = inference.run(len(self._program.rules) + len(rules))
            if rule is not None:
                check_safety(rule, clause, diagnostics)
                rules.append(replace(rule, text=text.strip()))
        diagnostics.raise_if_any()
        return _query(text, statement.body, rules, diagnostics)

    def _type_declarations(self) -> s.Module:
        """Return the declarations of types; they are read from the text of the program once."""
        if self._types is None:
            program, ignored = self._program, Diagnostics()
            source = SourceText(program.name, program.text)
            module = expand(parse(source, ignored, registered().keys()), ignored)
            statements = tuple(x for x in module.statements if isinstance(x, _KEPT))
            self._types = replace(module, statements=statements, comments=())
        return self._types


def _query(text: str, body: s.Formula, rules: list[Rule], diagnostics: Diagnostics) -> Query:
    """Give the rules a head with all variables."""
    asked = {node.name: node for node in reversed([*_variables(body)])}
    names = [*dict.fromkeys(node.name for node in _variables(body))]
    types_of = [dict(_typed(rule.body)) for rule in rules]
    for name in names if rules else ():
        found = {types.get(name) for types in types_of}
        if None in found:
            diagnostics.error(
                "unbound-variable",
                f"variable `{name}` is not bound in every alternative",
                asked[name].span,
                "each alternative of a query has to bind the same variables",
            )
        elif len(found) > 1:
            shown = " and ".join(sorted(str(type_) for type_ in found))
            diagnostics.error(
                "type-mismatch",
                f"`{name}` has several types in the alternatives: {shown}",
                asked[name].span,
                "use another name in one of them",
            )
    diagnostics.raise_if_any()
    if not rules:  # nothing can satisfy it
        return Query(text, Relation(ANSWERS, ()), ())
    columns = tuple(Field(n, types_of[0][n], str(types_of[0][n])) for n in names)
    head = tuple(Var(column.name, column.type) for column in columns)
    made = tuple(replace(rule, head=Atom(ANSWERS, head, rule.span)) for rule in rules)
    return Query(text, Relation(ANSWERS, columns), made)


def _variables(formula: s.Formula) -> Iterator[s.Variable]:
    """Yield the variables of a formula, in order, without those that stand in an aggregate."""
    match formula:
        case s.AtomFormula(_, args) | s.Tested(_, args):
            for arg in args:
                yield from s.variable_nodes(arg)
        case s.Compared(_, left, right):
            yield from s.variable_nodes(left)
            yield from s.variable_nodes(right)
        case s.Not(inner):
            yield from _variables(inner)
        case s.Both(parts) | s.Either(parts):
            for part in parts:
                yield from _variables(part)


def _typed(body: tuple[Literal, ...]) -> Mapping[str, Type]:
    """Return the types of the variables of a body, without those inside aggregates."""
    return {name: type_ for literal in body for name, type_ in typed_variables(terms_of(literal))}
