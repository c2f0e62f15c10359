"""Components are expanded: each `.init` becomes plain declarations and rules.

    .comp Graph<T> {                                .decl roads.edge(x: City, y: City)
        .decl edge(x: T, y: T)                      .decl roads.reach(x: City, y: City)
        .decl reach(x: T, y: T)              ──►    roads.reach(x, y) :- roads.edge(x, y).
        reach(x, y) :- edge(x, y).
    }
    .init roads = Graph<City>

First the statements of each instance are collected, those of its bases before its own, with the
parameters replaced. Then names are looked up: `edge` in a rule of the instance `a.b` is `a.b.edge`
if that is declared, else `a.edge`, else `edge`. So a component may use what is declared where it is
instantiated, as in Soufflé.

A component that is never instantiated is read, and not checked further.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidelog.errors import did_you_mean
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.source import Span


def expand(module: s.Module, diagnostics: Diagnostics) -> s.Module:
    """Return the module without components: with the statements of their instances."""
    if not any(isinstance(x, s.ComponentDeclaration | s.InitStatement) for x in module.statements):
        return module
    expansion = _Expansion(diagnostics)
    statements = expansion.run(module.statements)
    return replace(
        module, statements=statements, hides_names=module.hides_names or expansion.failed
    )


@dataclass(frozen=True, eq=False)
class _Scope:
    """The components that are declared in one place, and the place around it."""

    around: _Scope | None
    components: dict[str, _Component] = field(default_factory=dict)

    def find(self, name: str) -> _Component | None:
        """Return the component called `name`, here or further out."""
        found = self.components.get(name)
        return found if found is not None or self.around is None else self.around.find(name)

    def names(self) -> Iterator[str]:
        """Yield the names of the components that can be found here."""
        yield from self.components
        if self.around is not None:
            yield from self.around.names()


@dataclass(frozen=True, eq=False)
class _Component:
    """A declared component: `scope` has the components that are declared in it."""

    declared: s.ComponentDeclaration
    scope: _Scope


@dataclass(frozen=True)
class _Part:
    """One statement of an instance, before its names are looked up."""

    statement: s.Statement
    prefix: tuple[str, ...]
    instance: str


class _Expansion:
    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._parts: list[_Part] = []
        self._instances: dict[tuple[str, ...], Span] = {}
        self._open: list[tuple[s.ComponentDeclaration, Mapping[str, str]]] = []
        """The components that are being instantiated, outermost first, with their parameters."""
        self.failed = False
        """Whether an instance is missing, so that names which are not declared may be its."""

    def run(self, statements: tuple[s.Statement, ...]) -> tuple[s.Statement, ...]:
        scope = self._scope(statements, None)
        self._collect(statements, (scope,), {}, (), "", frozenset())
        names = _Names(self._parts)
        return tuple(names.resolved(part) for part in self._parts)

    def _error(self, code: str, message: str, span: Span, hint: str | None) -> None:
        self._diagnostics.error(code, message, span, hint)
        self.failed = True

    def _scope(self, statements: tuple[s.Statement, ...], around: _Scope | None) -> _Scope:
        scope = _Scope(around)
        for statement in statements:
            if not isinstance(statement, s.ComponentDeclaration):
                continue
            name = statement.name
            if name in scope.components:
                first = scope.components[name].declared.span
                self._error(
                    "bad-component", f"component `{name}` is declared twice",
                    statement.span.word(name), f"the first declaration is on line {first.line}",
                )  # fmt: skip
            inner = self._scope(statement.body, scope)
            scope.components[name] = _Component(statement, inner)
        return scope

    # --- collecting the statements of instances ---

    def _collect(
        self,
        statements: tuple[s.Statement, ...],
        scopes: tuple[_Scope, ...],
        bound: Mapping[str, str],
        prefix: tuple[str, ...],
        instance: str,
        overridden: frozenset[str],
    ) -> None:
        """Collect statements; `overridden` are relations whose rules are left out."""
        for statement in statements:
            match statement:
                case s.ComponentDeclaration():
                    pass
                case s.OverrideStatement(relation) if not prefix:
                    self._error(
                        "bad-component", "`.override` has no meaning outside of a component",
                        relation.span, "remove it",
                    )  # fmt: skip
                case s.OverrideStatement():
                    pass  # checked with the bases of the component
                case s.InitStatement():
                    self._instantiate(statement, scopes, bound, prefix)
                case s.SubsumptionStatement(worse) if _base(worse.relation) in overridden:
                    pass
                case s.RuleStatement(heads) if overridden:
                    kept = tuple(h for h in heads if _base(h.relation) not in overridden)
                    if kept:
                        self._add(replace(statement, heads=kept), bound, prefix, instance)
                case _:
                    self._add(statement, bound, prefix, instance)

    def _add(
        self,
        statement: s.Statement,
        bound: Mapping[str, str],
        prefix: tuple[str, ...],
        instance: str,
    ) -> None:
        def bind(node: s.Node) -> s.Node:
            if isinstance(node, s.TypeName) and node.name in bound:
                return replace(node, name=bound[node.name])
            return node

        shown = s.rewritten(statement, bind) if bound else statement
        self._parts.append(_Part(shown, prefix, instance))

    def _instantiate(
        self,
        init: s.InitStatement,
        scopes: tuple[_Scope, ...],
        bound: Mapping[str, str],
        prefix: tuple[str, ...],
    ) -> None:
        own = (*prefix, init.name)
        where = init.span.word(init.name)
        if own in self._instances:
            self._error(
                "bad-component", f"there are two instances `{'.'.join(own)}`", where,
                f"the first one is on line {self._instances[own].line}",
            )  # fmt: skip
            return
        self._instances[own] = init.span
        shown = f".init {'.'.join(own)} = {init.component} ({init.span})"
        found = self._find(init.component, scopes, bound)
        if found is None:
            return
        component, binding = found
        if (component.declared, binding) in self._open:
            self._error(
                "bad-component", f"the component `{init.component}` contains itself", init.span,
                "an instance cannot have an instance of the same component inside",
            )  # fmt: skip
            return
        self._open.append((component.declared, binding))
        self._inherit(component, binding, own, shown, frozenset(), (), ())
        self._open.pop()

    def _inherit(
        self,
        component: _Component,
        bound: Mapping[str, str],
        prefix: tuple[str, ...],
        instance: str,
        overridden: frozenset[str],
        below: tuple[_Scope, ...],
        path: tuple[s.ComponentDeclaration, ...],
    ) -> None:
        """Collect what a component inherits, then its own statements.

        `below` are the scopes of the components that inherit from it: an instance in a base may be
        of a component that is declared there.
        """
        declared = component.declared
        if declared in path:
            self._error(
                "bad-component", f"the component `{declared.name}` inherits from itself",
                declared.span.word(declared.name), "remove one of the bases",
            )  # fmt: skip
            return
        scopes = (component.scope, *below)
        own = {x.relation.name for x in declared.body if isinstance(x, s.OverrideStatement)}
        for base in declared.bases:
            found = self._find(base, scopes, bound)
            if found is not None:
                self._inherit(*found, prefix, instance, overridden | own, scopes, (*path, declared))
        self._check_overrides(component, bound)
        self._collect(declared.body, scopes, bound, prefix, instance, overridden)

    def _find(
        self, wanted: s.ComponentType, scopes: tuple[_Scope, ...], bound: Mapping[str, str]
    ) -> tuple[_Component, Mapping[str, str]] | None:
        """Return a component where it is used, and what its parameters stand for."""
        name = bound.get(wanted.name, wanted.name)
        found = next((c for scope in scopes if (c := scope.find(name)) is not None), None)
        if found is None:
            known = [other for scope in scopes for other in scope.names()]
            self._error(
                "unknown-component", f"component `{name}` is not declared",
                wanted.span.first(len(wanted.name)),
                did_you_mean(name, known) or f"declare it: `.comp {name} {{ .. }}`",
            )  # fmt: skip
            return None
        parameters = found.declared.parameters
        if len(parameters) != len(wanted.args):
            count = len(parameters)
            self._error(
                "wrong-arity",
                f"component `{name}` has {count} parameter{'s' * (count != 1)},"
                f" not {len(wanted.args)}",
                wanted.span,
                f"it is declared as `{_shown(found.declared)}`",
            )
            return None
        given = (bound.get(arg, arg) for arg in wanted.args)
        return found, {**bound, **dict(zip(parameters, given, strict=True))}

    def _check_overrides(self, component: _Component, bound: Mapping[str, str]) -> None:
        overrides = [x for x in component.declared.body if isinstance(x, s.OverrideStatement)]
        if not overrides:
            return
        inherited = {
            name.name: "overridable" in declaration.qualifiers
            for declaration in self._inherited(component, bound, ())
            for name in declaration.names
        }
        for statement in overrides:
            name, span = statement.relation.name, statement.relation.span
            if name not in inherited:
                self._error(
                    "bad-component", f"no base of `{component.declared.name}` declares `{name}`",
                    span, did_you_mean(name, inherited) or "remove the `.override`",
                )  # fmt: skip
            elif not inherited[name]:
                self._error(
                    "bad-component", f"`{name}` is not declared `overridable`", span,
                    f"write `.decl {name}(..) overridable` in the base",
                )  # fmt: skip

    def _inherited(
        self, component: _Component, bound: Mapping[str, str], path: tuple[_Component, ...]
    ) -> Iterator[s.RelationDeclaration]:
        """Yield the declarations of relations in the bases of a component."""
        for base in component.declared.bases:
            found = component.scope.find(bound.get(base.name, base.name))
            if found is not None and found not in path:
                yield from (x for x in found.declared.body if isinstance(x, s.RelationDeclaration))
                yield from self._inherited(found, bound, (*path, component))


def _shown(declared: s.ComponentDeclaration) -> str:
    return str(s.ComponentType(declared.name, declared.parameters, span=declared.span))


# --- looking names up ---------------------------------------------------------------------------


class _Names:
    """The relations and types of all instances."""

    def __init__(self, parts: list[_Part]) -> None:
        self._relations: set[str] = set()
        self._types: set[str] = set()
        self._branches: set[str] = set()
        for part in parts:
            match part.statement:
                case s.RelationDeclaration(names):
                    self._relations.update(_full(part.prefix, name.name) for name in names)
                case s.Subtype(name) | s.AliasOrUnion(name) | s.RecordDeclaration(name):
                    self._types.add(_full(part.prefix, name))
                case s.AlgebraicDeclaration(name, branches):
                    self._types.add(_full(part.prefix, name))
                    self._branches.update(_full(part.prefix, b.name) for b in branches)

    def resolved(self, part: _Part) -> s.Statement:
        """Return a statement with the full names of relations and types."""
        prefix, instance = part.prefix, part.instance
        if not prefix:
            return part.statement

        def rename(node: s.Node) -> s.Node:
            node = replace(node, span=replace(node.span, instance=instance))
            match node:
                case s.RelationName(name):
                    return replace(node, name=_visible(prefix, name, self._relations))
                case s.AtomFormula(name) | s.Lookup(name) | s.FunctionalHead(name):
                    return replace(node, relation=_visible(prefix, name, self._relations))
                case s.TypeName(name):
                    return replace(node, name=_visible(prefix, name, self._types))
                case s.BranchTerm(name) | s.Branch(name):
                    return replace(node, name=_visible(prefix, name, self._branches))
                case (
                    s.Subtype(name)
                    | s.AliasOrUnion(name)
                    | s.RecordDeclaration(name)
                    | s.AlgebraicDeclaration(name)
                ):
                    return replace(node, name=_full(prefix, name))
                case _:
                    return node

        return s.rewritten(part.statement, rename)


def _base(relation: str) -> str:
    return relation.split(".", maxsplit=1)[0]


def _full(prefix: tuple[str, ...], name: str) -> str:
    return ".".join((*prefix, name))


def _visible(prefix: tuple[str, ...], name: str, declared: set[str]) -> str:
    """Return the full name of what `name` stands for inside an instance."""
    for length in range(len(prefix), 0, -1):
        if (full := _full(prefix[:length], name)) in declared:
            return full
    return name
