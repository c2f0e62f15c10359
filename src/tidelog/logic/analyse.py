"""From text to a checked program: the passes, in order.

Each pass reads the results of earlier ones. It reports mistakes instead of raising, so that one run
shows as many as possible. Before a pass that needs correct results, reported mistakes are raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tidelog.errors import UsageError
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.include import with_included
from tidelog.lang.parser import parse
from tidelog.logic.algebraic import without_branches
from tidelog.logic.components import expand
from tidelog.logic.declare import Declarations, declare
from tidelog.logic.eqrel import close_equivalences
from tidelog.logic.infer import Inference
from tidelog.logic.inline import inline
from tidelog.logic.known_rules import KnownRules
from tidelog.logic.normalise import Clause, normalise
from tidelog.logic.program import Const, Fact, MakeRecord, Program, Rule, Term
from tidelog.logic.program_types import ProgramTypes
from tidelog.logic.pruning import pruned_relations, refuse_views
from tidelog.logic.registry import functions, registered
from tidelog.logic.resolve import resolve
from tidelog.logic.retain import RetainChecker
from tidelog.logic.safety import check_safety
from tidelog.logic.strategies import check_views
from tidelog.logic.stratify import stratify
from tidelog.source import SourceText
from tidelog.values.algebra import UserAggregate
from tidelog.values.functions import UserFunction
from tidelog.values.types import Row


def analyse_file(path: Path) -> Program:
    """Return the checked program in the file at `path`."""
    diagnostics = Diagnostics()
    source = with_included(path, read_program, diagnostics)
    diagnostics.raise_if_any()
    return _analysed(source, diagnostics)


def read_program(path: Path) -> str:
    """Return the text of the file at `path`; raise UsageError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"there is no program file `{path}`") from None
    except IsADirectoryError:
        raise UsageError(f"`{path}` is a folder, not a program file") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"`{path}` is not UTF-8 text: byte {error.start} cannot be read") from None


def analyse_text(text: str, name: str) -> Program:
    """Return the checked program of `text`; raise ProgramError with every mistake found."""
    return _analysed(SourceText(name, text), Diagnostics())


def _analysed(source: SourceText, diagnostics: Diagnostics) -> Program:
    aggregates = registered()
    module = parse(source, diagnostics, aggregates.keys())
    program = analyse(module, diagnostics, aggregates, functions())
    diagnostics.raise_if_any()
    return program


def analyse(
    module: s.Module,
    diagnostics: Diagnostics,
    aggregates: Mapping[str, UserAggregate],
    functions: Mapping[str, UserFunction],
    known: KnownRules | None = None,
) -> Program:
    """Return the program of a syntax tree. It is only sound when nothing was reported.

    `aggregates` and `functions` are those that are registered from Python. Statements that are
    `known` from a check before are not checked again.
    """
    module, notes = inline(expand(module, diagnostics))
    module = without_branches(close_equivalences(module, diagnostics), diagnostics)
    types = ProgramTypes(module, diagnostics)
    declared = declare(module, types, diagnostics)
    unsure = _heads(module) if not len(diagnostics) else declared.relations
    check = _Checker(types, declared, aggregates, functions, diagnostics)
    known = known or KnownRules()
    known.begin(module, declared, aggregates, functions)
    facts, rules = _rules(module, declared, check, diagnostics, known)
    pruned = pruned_relations(module, declared, lambda clause: check(clause, 0), diagnostics)
    strata = stratify(declared.relations, rules, diagnostics, pruned)
    check_views(declared.views, strata, unsure, diagnostics)
    refuse_views(declared.views, pruned, diagnostics)
    retains = RetainChecker(declared.relations, _heads(module), {fact.relation for fact in facts})
    for statement in declared.retains:
        retains.check(statement, diagnostics)
    return Program(
        name=module.source.name,
        text=module.source.text,
        records=MappingProxyType(types.records),
        relations=MappingProxyType(declared.relations),
        facts=facts,
        rules=rules,
        strata=strata,
        directives=tuple(declared.directives),
        views=MappingProxyType(declared.views),
        notes=(*notes, *declared.notes),
        retained=MappingProxyType(retains.found),
        pruned=pruned,
    )


def _heads(module: s.Module) -> frozenset[str]:
    """Return the relations that have rules in the text."""
    rules = (r for r in module.statements if isinstance(r, s.RuleStatement) and r.body)
    return frozenset(head.relation for rule in rules for head in rule.heads)


@dataclass(frozen=True)
class _Checker:
    """Types a clause, and checks that it is safe."""

    types: ProgramTypes
    declared: Declarations
    aggregates: Mapping[str, UserAggregate]
    functions: Mapping[str, UserFunction]
    diagnostics: Diagnostics

    def __call__(self, clause: Clause, number: int) -> Rule | None:
        """Return the rule with this number; None if something was reported."""
        inference = Inference(
            clause, self.declared.relations, self.types, self.aggregates, self.functions,
            self.diagnostics,
        )  # fmt: skip
        rule = inference.run(number)
        if rule is not None:
            check_safety(rule, clause, self.diagnostics)
        return rule


def _rules(
    module: s.Module,
    declared: Declarations,
    check: _Checker,
    diagnostics: Diagnostics,
    known: KnownRules,
) -> tuple[tuple[Fact, ...], tuple[Rule, ...]]:
    """Resolve names, normalise, type and check every rule; split facts from rules."""
    facts: list[Fact] = []
    rules: list[Rule] = []
    for statement in module.statements:
        if not isinstance(statement, s.RuleStatement):
            continue
        found = known.of(statement, len(rules))
        if found is None:
            before = len(diagnostics)
            found = [*_checked(statement, len(rules), declared, check, diagnostics)]
            if len(diagnostics) == before:
                known.note(statement, found)
        for item in found:
            if isinstance(item, Fact):
                facts.append(item)
            else:
                rules.append(item)
    return tuple(facts), tuple(rules)


def _checked(
    statement: s.RuleStatement,
    first: int,
    declared: Declarations,
    check: _Checker,
    diagnostics: Diagnostics,
) -> Iterator[Fact | Rule]:
    """Yield the facts and rules of a statement; `first` is the number of its first rule."""
    if not resolve(statement, declared, diagnostics):
        return
    for clause in normalise(statement, diagnostics):
        rule = check(clause, first)
        if rule is None:
            continue
        row = None if rule.body else constant_row(rule.head.args)
        if row is not None:
            yield Fact(rule.head.relation, row, rule.span)
        else:
            yield rule
            first += 1


def constant_row(args: Sequence[Term]) -> Row | None:
    """Return the values of the terms if all of them are plain constants."""
    row = []
    for arg in args:
        match arg:
            case Const(value):
                row.append(value)
            case MakeRecord(parts):
                inner = constant_row(parts)
                if inner is None:
                    return None
                row.append(inner)
            case _:
                return None
    return tuple(row)
