"""Syntax nodes become text again, in one style.

`tidelog fmt` uses `format_module`; rules in messages use `format_rule`. What is printed parses back
to the same tree: parentheses are written where the grammar needs them and nowhere else.
"""

from __future__ import annotations

from tidelog.lang import syntax as s

LINE_WIDTH = 100
_INDENT = "    "

# Binding strength of the infix functors, weakest first; see grammar.lark.
_OPERATORS: tuple[tuple[str, ...], ...] = (
    ("lor",), ("lxor",), ("land",), ("bor",), ("bxor",), ("band",),
    ("bshl", "bshr", "bshru"), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_INFIX = {name: strength for strength, names in enumerate(_OPERATORS) for name in names}
_UNARY = len(_OPERATORS)
_POWER = _UNARY + 1
_PRIMARY = _POWER + 1
_PREFIX = frozenset({"-", "bnot", "lnot"})
_ESCAPES = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b",
    "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def format_string(value: str) -> str:
    r"""Return `value` as a string literal.

    >>> format_string('say "hi"')
    '"say \\"hi\\""'
    """
    return '"' + "".join(_ESCAPES.get(c, c) for c in value) + '"'


def format_term(term: s.Term, strength: int = 0) -> str:
    """Return the term as text, in parentheses if it binds less strongly than `strength`."""
    text, own = _term(term)
    return f"({text})" if own < strength else text


def _term(term: s.Term) -> tuple[str, int]:
    """Return the term as text and how strongly it binds."""
    match term:
        case s.Variable(name):
            return name, _PRIMARY
        case s.Anonymous():
            return "_", _PRIMARY
        case s.IntLiteral(text=text) | s.FloatLiteral(text=text):
            # -2 ^ 2 is -(2 ^ 2): a negative literal binds like a minus.
            return text, _UNARY if text.startswith("-") else _PRIMARY
        case s.StringLiteral(value):
            return format_string(value), _PRIMARY
        case s.BoolLiteral(value):
            return str(value).lower(), _PRIMARY
        case s.NilLiteral():
            return "nil", _PRIMARY
        case s.RecordTerm(shown=shown) if shown:
            return shown, _PRIMARY
        case s.RecordTerm(args):
            return f"[{_terms(args)}]", _PRIMARY
        case s.BranchTerm(name, args):
            return f"${name}({_terms(args)})" if args else f"${name}", _PRIMARY
        case s.Lookup(relation, args):
            return f"{relation}[{_terms(args)}]", _PRIMARY
        case s.Cast(inner, type_name):
            return f"as({format_term(inner)}, {type_name})", _PRIMARY
        case s.AggregateTerm(op, target, body):
            shown = op if target is None else f"{op} {_target(target)}"
            return f"{shown} : {{ {format_formula(body)} }}", _PRIMARY
        case s.Call("^", (base, exponent)):
            return (
                f"{format_term(base, _PRIMARY)} ^ {format_term(exponent, _UNARY)}",
                _POWER,
            )
        case s.Call(name, (operand,)) if name in _PREFIX:
            gap = "" if name == "-" else " "
            shown = format_term(operand, _UNARY)
            if name == "-" and isinstance(operand, s.IntLiteral | s.FloatLiteral):
                shown = f"({shown})"  # without them it would read back as a literal
            return f"{name}{gap}{shown}", _UNARY
        case s.Call(name, (left, right)) if name in _INFIX:
            strength = _INFIX[name]
            sides = format_term(left, strength), format_term(right, strength + 1)
            return f" {name} ".join(sides), strength
        case s.Call(name, args):
            return f"{name}({_terms(args)})", _PRIMARY


def _target(term: s.Term) -> str:
    """Return the target of an aggregate; an aggregate inside it would take the outer colon."""
    text = format_term(term)
    return f"({text})" if _has_aggregate(term) else text


def _has_aggregate(term: s.Term) -> bool:
    match term:
        case s.AggregateTerm():
            return True
        case s.Call(_, args) | s.RecordTerm(args) | s.BranchTerm(_, args) | s.Lookup(_, args):
            return any(map(_has_aggregate, args))
        case s.Cast(inner):
            return _has_aggregate(inner)
        case _:
            return False


def _terms(terms: tuple[s.Term, ...]) -> str:
    return ", ".join(format_term(term) for term in terms)


def format_formula(formula: s.Formula, strength: int = 0) -> str:
    """Return the formula as text; strengths are 0 for `;`, 1 for `,` and 2 for a single literal."""
    match formula:
        case s.Either(parts):
            text = "; ".join(format_formula(part, 1) for part in parts)
            return f"({text})" if strength > 0 else text
        case s.Both(parts):
            text = ", ".join(format_formula(part, 2) for part in parts)
            return f"({text})" if strength > 1 else text
        case s.Not(inner):
            # The parser reads `!a = b` correctly, but people may not.
            shown = format_formula(inner, 2)
            return f"!({shown})" if isinstance(inner, s.Compared) else f"!{shown}"
        case s.AtomFormula(relation, args) | s.Tested(relation, args):
            return f"{relation}({_terms(args)})"
        case s.Compared(op, left, right):
            return f"{format_term(left)} {op} {format_term(right)}"
        case s.Truth(value):
            return str(value).lower()


def format_head(head: s.Head) -> str:
    """Return the head of a rule as text."""
    if isinstance(head, s.FunctionalHead):
        return f"{head.relation}[{_terms(head.args)}] = {format_term(head.value)}"
    return format_formula(head)


def format_rule(rule: s.RuleStatement) -> str:
    """Return the rule on one line, without its plan."""
    heads = ", ".join(format_head(head) for head in rule.heads)
    return f"{heads}." if rule.body is None else f"{heads} :- {format_formula(rule.body)}."


def format_subsumption(statement: s.SubsumptionStatement) -> str:
    """Return a subsumption on one line."""
    worse, better = format_formula(statement.worse), format_formula(statement.better)
    return f"{worse} <= {better} :- {format_formula(statement.body)}."


def _choice_key(key: s.ChoiceKey) -> str:
    return key.columns[0] if len(key.columns) == 1 else f"({', '.join(key.columns)})"


def format_statement(statement: s.Statement) -> str:
    """Return the statement as text; a rule too long for one line has one condition per line."""
    match statement:
        case s.RuleStatement():
            return _rule(statement)
        case s.SubsumptionStatement():
            return format_subsumption(statement)
        case s.RelationDeclaration(names, attributes, qualifiers, value, choice):
            shown_names = ", ".join(name.name for name in names)
            columns = ", ".join(f"{a.name}: {a.type}" for a in attributes)
            shown = f"({columns})" if value is None else f"[{columns}]: {value}"
            keys = ["choice-domain " + ", ".join(map(_choice_key, choice))] if choice else []
            return " ".join([f".decl {shown_names}{shown}", *qualifiers, *keys])
        case s.Subtype(name, base, True):
            return f".{base}_type {name}"
        case s.Subtype(name, base):
            return f".type {name} <: {base}"
        case s.AliasOrUnion(name, members):
            return f".type {name} = {' | '.join(map(str, members))}"
        case s.RecordDeclaration(name, fields):
            return f".type {name} = [{', '.join(f'{f.name}: {f.type}' for f in fields)}]"
        case s.AlgebraicDeclaration(name, branches):
            return f".type {name} = {' | '.join(map(_branch, branches))}"
        case s.DirectiveStatement(kind, names, parameters):
            shown_names = ", ".join(name.name for name in names)
            shown = ", ".join(
                f"{p.key}={format_string(p.value) if p.quoted else p.value}" for p in parameters
            )
            return f".{kind} {shown_names}" + (f"({shown})" if parameters else "")
        case s.RetainStatement(relation, column, bound):
            shown = format_string(bound.text) if bound.quoted else bound.text
            return f".retain {relation.name}({column.name}, {shown})"
        case s.PragmaStatement(values):
            return " ".join([".pragma", *map(format_string, values)])
        case s.ComponentDeclaration(name, parameters, bases):
            own = s.ComponentType(name, parameters, span=statement.span)
            above = f" : {', '.join(map(str, bases))}" if bases else ""
            return f".comp {own}{above} {{"
        case s.InitStatement(name, component):
            return f".init {name} = {component}"
        case s.OverrideStatement(relation):
            return f".override {relation.name}"


def _branch(branch: s.Branch) -> str:
    fields = ", ".join(f"{f.name}: {f.type}" for f in branch.fields)
    return f"{branch.name} {{ {fields} }}" if fields else f"{branch.name} {{}}"


def _rule(rule: s.RuleStatement) -> str:
    text = format_rule(rule)
    if len(text) > LINE_WIDTH and rule.body is not None:
        heads = ", ".join(format_head(head) for head in rule.heads)
        if isinstance(rule.body, s.Either):
            parts, joint = [format_formula(p, 1) for p in rule.body.parts], ";"
        elif isinstance(rule.body, s.Both):
            parts, joint = [format_formula(p, 2) for p in rule.body.parts], ","
        else:
            parts, joint = [format_formula(rule.body)], ","
        text = f"{heads} :-\n{_INDENT}" + f"{joint}\n{_INDENT}".join(parts) + "."
    if rule.plan:
        orders = ", ".join(f"{p.version}: ({', '.join(map(str, p.order))})" for p in rule.plan)
        text += f"\n{_INDENT}.plan {orders}"
    return text


def format_module(module: s.Module) -> str:
    """Return the whole program as text.

    Comments stay with their statement: those before or inside it are printed above it, one on its
    last line after it. Single blank lines between statements are kept.
    """
    page = _Page(list(module.comments))
    page.statements(module.statements, "")
    page.comments_up_to(None, "")
    return "\n".join(page.lines) + "\n" if page.lines else ""


class _Page:
    """The printed lines, and the comments that are not printed yet."""

    def __init__(self, comments: list[s.Comment]) -> None:
        self.lines: list[str] = []
        self._comments = comments
        self._last_line = 0  # the last line of the input that has been printed

    def statements(self, statements: tuple[s.Statement, ...], indent: str) -> None:
        for statement in statements:
            span = statement.span
            if isinstance(statement, s.ComponentDeclaration):
                self.comments_up_to(span.line, indent)
                self._emit(format_statement(statement), indent, span.line, span.line)
                self.statements(statement.body, indent + _INDENT)
                self.comments_up_to(span.end_line, indent + _INDENT)
                self._emit("}", indent, span.end_line, span.end_line)
                continue
            self.comments_up_to(span.end_line, indent)
            text = format_statement(statement).replace("\n", f"\n{indent}")
            self._emit(text, indent, span.line, span.end_line)

    def comments_up_to(self, end_line: int | None, indent: str) -> None:
        """Print the comments before a line, and those of their own on it."""
        while self._comments and (end_line is None or self._comments[0].line <= end_line):
            comment = self._comments[0]
            if comment.line == end_line and not comment.own_line:
                break  # it is printed after the statement
            self._comments.pop(0)
            if not comment.own_line and comment.line == self._last_line and self.lines:
                self.lines[-1] += f"  {comment.text}"
                self._last_line = comment.end_line
            else:
                self._emit(comment.text, indent, comment.line, comment.end_line)

    def _emit(self, text: str, indent: str, line: int, end_line: int) -> None:
        if self.lines and line > self._last_line + 1:
            self.lines.append("")
        self.lines.append(indent + text)
        self._last_line = max(self._last_line, end_line)
