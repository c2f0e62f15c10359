"""The declarations of relations, and the directives, checked.

Names must be declared once. Columns must have known types and distinct names. Directives must name
declared relations and known options.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType

from tidelog.errors import did_you_mean
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic.program import Directive, DirectiveKind, Note, Relation, ViewOptions
from tidelog.logic.program_types import ProgramTypes
from tidelog.logic.strategies import unknown
from tidelog.source import Span
from tidelog.values.types import Field

_VIEW_OPTIONS = ("virtual", "strategy")
_IO_QUALIFIERS = {kind.value: kind for kind in DirectiveKind}


@dataclass
class Declarations:
    """What a program declares besides its rules."""

    relations: dict[str, Relation] = field(default_factory=dict)
    directives: list[Directive] = field(default_factory=list)
    views: dict[str, ViewOptions] = field(default_factory=dict)
    retains: list[s.RetainStatement] = field(default_factory=list)
    """The `.retain` directives of relations that are declared; logic/retain.py checks them."""
    notes: list[Note] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    """Relations whose declaration was reported: rules that use them are not reported again."""
    hides_names: bool = False
    """Whether relations may be declared in refused text, so that missing ones are not reported."""
    missing: set[str] = field(default_factory=set)
    """Relations reported as undeclared: once is enough."""

    def report_undeclared(
        self, name: str, span: Span, diagnostics: Diagnostics, hint: str | None = None
    ) -> None:
        """Report that relation `name` is not declared, unless that follows from another mistake."""
        if self.hides_names or name in self.broken or name in self.missing:
            return
        self.missing.add(name)
        hint = hint or did_you_mean(name, self.relations)
        hint = hint or f"declare it: `.decl {name}(column: type)`"
        diagnostics.error("undeclared-relation", f"relation `{name}` is not declared", span, hint)


def declare(module: s.Module, types: ProgramTypes, diagnostics: Diagnostics) -> Declarations:
    """Return what `module` declares."""
    found = Declarations(broken=set(module.unread), hides_names=module.hides_names)
    for statement in module.statements:
        if isinstance(statement, s.RelationDeclaration):
            _declare_relation(statement, types, found, diagnostics)
    for statement in module.statements:
        match statement:
            case s.DirectiveStatement("view"):
                _declare_view(statement, found, diagnostics)
            case s.DirectiveStatement():
                _declare_io(statement, found, diagnostics)
            case s.RetainStatement(relation):
                if _known_relation(relation, found, diagnostics) and (
                    relation.name not in found.broken
                ):
                    found.retains.append(statement)
            case s.PragmaStatement(values):
                found.notes.append(
                    Note(f"`.pragma {' '.join(values)}` has no effect", statement.span)
                )
            case s.RuleStatement(plan=plan) if plan:
                found.notes.append(
                    Note("`.plan` has no effect: the planner orders the joins", plan[0].span)
                )
    return found


def _declare_relation(
    declaration: s.RelationDeclaration,
    types: ProgramTypes,
    found: Declarations,
    diagnostics: Diagnostics,
) -> None:
    columns: list[Field] = []
    names: dict[str, Span] = {}
    whole = True
    for attribute in declaration.attributes:
        if attribute.name in names:
            diagnostics.error(
                "duplicate-column", f"two columns are called `{attribute.name}`",
                attribute.span.first(len(attribute.name)), "give one of them another name",
            )  # fmt: skip
        names[attribute.name] = attribute.span
        used = types.use(attribute.type)
        if used is None:
            whole = False
        else:
            columns.append(Field(attribute.name, used.type, used.name))
    if declaration.value is not None:
        used = types.use(declaration.value)
        if used is None:
            whole = False
        else:
            columns.append(
                Field("value" if "value" not in names else "value_", used.type, used.name)
            )
    for name in declaration.names:
        first = found.relations.get(name.name)
        if first is not None and first.span is not None:
            diagnostics.error(
                "duplicate-relation", f"relation `{name.name}` is declared twice", name.span,
                f"the first declaration is on line {first.span.line}",
            )  # fmt: skip
            # It is not known for which of the two its rules were written.
            found.broken.add(name.name)
            continue
        found.relations[name.name] = Relation(
            name.name, tuple(columns), declaration.value is not None, name.span
        )
        if not whole:
            found.broken.add(name.name)
        for qualifier in declaration.qualifiers:
            if qualifier in _IO_QUALIFIERS:
                found.directives.append(
                    Directive(_IO_QUALIFIERS[qualifier], name.name, MappingProxyType({}), name.span)
                )
            elif qualifier == "eqrel":
                found.notes.append(
                    Note(f"`{name.name}` is an `eqrel`: closed by two recursive rules", name.span)
                )
            elif qualifier != "overridable":  # logic/components.py reads it
                found.notes.append(
                    Note(
                        f"the qualifier `{qualifier}` of `{name.name}` has no effect",
                        name.span,
                    )
                )


def _known_relation(name: s.RelationName, found: Declarations, diagnostics: Diagnostics) -> bool:
    if name.name in found.relations:
        return True
    found.report_undeclared(name.name, name.span, diagnostics)
    return False


def _check_given_once(parameters: tuple[s.Parameter, ...], diagnostics: Diagnostics) -> None:
    given: set[str] = set()
    for parameter in parameters:
        if parameter.key in given:
            diagnostics.error(
                "duplicate-parameter", f"`{parameter.key}` is given twice",
                parameter.span.first(len(parameter.key)), "remove one of them",
            )  # fmt: skip
        given.add(parameter.key)


def _declare_io(
    directive: s.DirectiveStatement, found: Declarations, diagnostics: Diagnostics
) -> None:
    _check_given_once(directive.parameters, diagnostics)
    parameters = {parameter.key: parameter.value for parameter in directive.parameters}
    for name in directive.names:
        if _known_relation(name, found, diagnostics):
            found.directives.append(
                Directive(
                    DirectiveKind(directive.kind),
                    name.name,
                    MappingProxyType(parameters),
                    name.span,
                )
            )


def _declare_view(
    directive: s.DirectiveStatement, found: Declarations, diagnostics: Diagnostics
) -> None:
    virtual: bool | None = None
    strategy: str | None = None
    _check_given_once(directive.parameters, diagnostics)
    for parameter in directive.parameters:
        if parameter.key == "virtual" and parameter.value in ("true", "false"):
            virtual = parameter.value == "true"
        elif parameter.key == "virtual":
            diagnostics.error(
                "bad-view", f"`virtual` cannot be `{parameter.value}`", parameter.span,
                "write `virtual=true` or `virtual=false`",
            )  # fmt: skip
        elif parameter.key == "strategy":
            mistake = unknown(parameter.value)
            if mistake is None:
                strategy = parameter.value
            else:
                diagnostics.error("bad-view", mistake.why, parameter.span, mistake.hint)
        else:
            diagnostics.error(
                "bad-view", f"`.view` has no option `{parameter.key}`",
                parameter.span.first(len(parameter.key)), did_you_mean(parameter.key, _VIEW_OPTIONS)
                or "the options are `virtual` and `strategy`",
            )  # fmt: skip
    for name in directive.names:
        if not _known_relation(name, found, diagnostics):
            continue
        if name.name in found.views:
            first = found.views[name.name].span
            diagnostics.error(
                "bad-view", f"`{name.name}` has two `.view` directives", name.span,
                f"the first one is on line {first.line}" if first is not None else None,
            )  # fmt: skip
        found.views[name.name] = ViewOptions(name.name, virtual, strategy, name.span)
