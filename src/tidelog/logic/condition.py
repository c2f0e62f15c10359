"""A condition on the rows of a relation, as text in the language: `amount > 100, kind != "test"`.

It becomes a program with one rule, whose variables are the columns of the relation:

    selected(account, amount) :- payment(account, amount), amount > 100.

So the same passes check it as any rule, and the same engine evaluates it, many rows at a time.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from tidelog.errors import Diagnostic, ProgramError, UsageError
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.parser import parse
from tidelog.logic.algebraic import without_branches
from tidelog.logic.components import expand
from tidelog.logic.declare import Declarations
from tidelog.logic.infer import Inference
from tidelog.logic.normalise import normalise
from tidelog.logic.program import Program, Relation, Rule
from tidelog.logic.program_types import ProgramTypes
from tidelog.logic.registry import functions, registered
from tidelog.logic.resolve import resolve
from tidelog.logic.safety import check_safety
from tidelog.logic.stratify import stratify
from tidelog.source import SourceText, Span

SELECTED = "selected"
_NAME = "<where>"
_HEAD = "selected() :- (\n"  # the condition begins on a line of its own


def condition_program(program: Program, view: str, text: str) -> Program:
    """Return a program that selects the rows of `view` that fulfil a condition.

    Its relations are the view, whose rows are given, and `selected`. Raises ProgramError, with
    positions in the condition.
    """
    relation = replace(program.relation(view), functional=False, name=_rows_name(view))
    selected = replace(relation, name=SELECTED)
    try:
        rules = _rules(program, relation, selected, text)
    except ProgramError as error:
        columns = [column.name for column in relation.columns]
        raise ProgramError(_in_condition(d, text, columns) for d in error.diagnostics) from None
    relations = {relation.name: relation, SELECTED: selected}
    return Program(
        name=_NAME,
        text=text,
        records=program.records,
        relations=MappingProxyType(relations),
        facts=(),
        rules=rules,
        strata=stratify(relations, rules, Diagnostics()),
        directives=(),
        views=MappingProxyType({}),
    )


def given_of(condition: Program) -> str:
    """Return the name of the relation whose rows a condition selects."""
    return next(name for name in condition.relations if name != SELECTED)


def _rows_name(view: str) -> str:
    return view if view != SELECTED else "rows"


def _rules(program: Program, relation: Relation, selected: Relation, text: str) -> tuple[Rule, ...]:
    diagnostics = Diagnostics()
    aggregates = registered()
    whole = parse(SourceText(program.name, program.text), Diagnostics(), aggregates.keys())
    types = ProgramTypes(without_branches(expand(whole, Diagnostics()), Diagnostics()), diagnostics)
    module = parse(SourceText(_NAME, f"{_HEAD}{text}\n)."), diagnostics, aggregates.keys())
    diagnostics.raise_if_any()
    statement = module.statements[0] if len(module.statements) == 1 else None
    if not isinstance(statement, s.RuleStatement) or statement.body is None:
        raise UsageError("a condition is one formula, such as `amount > 100`")
    if any(True for _ in _relations(statement.body)):
        raise UsageError("a condition has only the columns of its view, and no relations")
    rule = _with_columns(statement, statement.body, relation)
    declared = Declarations(relations={relation.name: relation, SELECTED: selected})
    rules: list[Rule] = []
    if resolve(rule, declared, diagnostics):
        for clause in normalise(rule, diagnostics):
            made = Inference(
                clause, declared.relations, types, aggregates, functions(), diagnostics
            ).run(len(rules))
            if made is not None:
                check_safety(made, clause, diagnostics)
                rules.append(made)
    diagnostics.raise_if_any()
    return tuple(rules)


def _with_columns(
    statement: s.RuleStatement, body: s.Formula, relation: Relation
) -> s.RuleStatement:
    """Return a rule with the columns of a relation as variables, and a condition on them."""
    span = body.span
    columns = tuple(s.Variable(column.name, span=span) for column in relation.columns)
    head = s.AtomFormula(SELECTED, columns, span=span)
    rows = s.AtomFormula(relation.name, columns, span=span)
    return replace(statement, heads=(head,), body=s.Both((rows, body), span=span))


def _relations(formula: s.Formula) -> list[str]:
    """Return the relations that a condition names: in atoms, lookups or aggregates."""
    found: list[str] = []
    waiting: list[object] = [formula]
    while waiting:
        node = waiting.pop()
        match node:
            case s.AtomFormula(relation) | s.Lookup(relation):
                found.append(relation)
            case s.AggregateTerm(op):
                found.append(op)
            case tuple():
                waiting += node
            case s.Node():
                waiting += [getattr(node, name) for name in node.__dataclass_fields__]
    return found


def _in_condition(diagnostic: Diagnostic, text: str, columns: list[str]) -> Diagnostic:
    """Return a mistake with its position in the condition."""
    if diagnostic.code == "unbound-variable":
        diagnostic = replace(diagnostic, hint=f"the columns are {', '.join(columns)}")
    span, lines = diagnostic.span, text.split("\n")
    if span is None or span.source.name != _NAME:
        return diagnostic
    first = span.line - 1
    if not 1 <= first <= len(lines):  # in what stands around the condition
        last = len(lines[-1]) + 1
        return replace(
            diagnostic, span=Span(SourceText(_NAME, text), len(lines), last, len(lines), last + 1)
        )
    end = min(span.end_line - 1, len(lines))
    column = span.end_column if end == span.end_line - 1 else len(lines[-1]) + 1
    return replace(diagnostic, span=Span(SourceText(_NAME, text), first, span.column, end, column))
