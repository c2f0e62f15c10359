"""Trees of statements, terms and formulas; and how reading goes on behind a mistake."""

from __future__ import annotations

import pytest

from tests.lang.reading import body, parsed, read, shown, statement, term
from tidelog.lang import syntax as s


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", "(+ a (* b c))"),
        ("(a + b) * c", "(* (+ a b) c)"),
        ("a - b - c", "(- (- a b) c)"),
        ("a / b % c", "(% (/ a b) c)"),
        ("a ^ b ^ c", "(^ a (^ b c))"),
        ("a ** b", "(^ a b)"),
        ("-a ^ b", "(- (^ a b))"),
        ("a ^ -b", "(^ a (- b))"),
        ("- - a", "(- (- a))"),
        ("a bshl b + c", "(bshl a (+ b c))"),
        ("a band b bor c", "(bor (band a b) c)"),
        ("a bor b bxor c band d", "(bor a (bxor b (band c d)))"),
        ("a lor b land c", "(lor a (land b c))"),
        ("bnot a band b", "(band (bnot a) b)"),
        ("lnot a land b", "(land (lnot a) b)"),
        ("cat(a, b)", "(cat a b)"),
        ("0x1F + 0b11", "(+ 31 3)"),
    ],
)
def test_how_strongly_operators_bind(text: str, tree: str) -> None:
    assert shown(term(text)) == tree


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a(x), b(x)", "(and a(x) b(x))"),
        ("a(x) ; b(x), c(x)", "(or a(x) (and b(x) c(x)))"),
        ("(a(x) ; b(x)), c(x)", "(and (or a(x) b(x)) c(x))"),
        ("!a(_), x != 1", "(and (not a(_)) (!= x 1))"),
        ("!(a(x), b(x))", "(not (and a(x) b(x)))"),
        ("!!a(x)", "(not (not a(x)))"),
        ("x <= y + 1", "(<= x (+ y 1))"),
        ("n = count : { a(x), x > 1 }", "(= n (count : (and a(x) (> x 1))))"),
        ("n = sum x * y : { a(x, y) }", "(= n (sum (* x y): a(x, y)))"),
        ("n = max x : a(x)", "(= n (max x: a(x)))"),
        ("n = min x : { a(x) } + 1", "(= n (+ (min x: a(x)) 1))"),
    ],
)
def test_formulas(text: str, tree: str) -> None:
    assert shown(body(text)) == tree


def test_literals() -> None:
    number, unsigned, real, text = (term(t) for t in ("0x10", "7u", "1.50", r'"a\n\"b\""'))
    assert (number.value, number.text, number.unsigned) == (16, "0x10", False)
    assert (unsigned.value, unsigned.unsigned) == (7, True)
    assert real.text == "1.50"
    assert text.value == 'a\n"b"'
    assert term("true").value is True
    assert isinstance(term("nil"), s.NilLiteral)
    assert shown(term("[a, [b, 1]]").args[1].args[0]) == "b"


def test_casts_lookups_and_tests() -> None:
    cast = term("as(x, City)")
    assert (shown(cast.term), str(cast.type)) == ("x", "City")
    lookup = term("price[i, 2]")
    assert (lookup.relation, [shown(arg) for arg in lookup.args]) == ("price", ["i", "2"])
    test = body('match("a.*", x)')
    assert (test.name, shown(test.args[1])) == ("match", "x")
    assert body("true").value is True


def test_rules() -> None:
    rule = statement("p(x), q(y) :- a(x, y). .plan 0: (2, 1), 1: ()")
    assert [shown(head) for head in rule.heads] == ["p(x)", "q(y)"]
    assert [(order.version, order.order) for order in rule.plan] == [(0, (2, 1)), (1, ())]
    assert statement("p(1).").body is None
    functional = statement("price[i] = p :- cost(i, p).").heads[0]
    assert (functional.relation, shown(functional.value)) == ("price", "p")


def test_declarations() -> None:
    two = statement(".decl a, b(x: number, y: set(decimal(10, 2))) inline output")
    assert [name.name for name in two.names] == ["a", "b"]
    assert [(a.name, str(a.type)) for a in two.attributes] == [
        ("x", "number"), ("y", "set(decimal(10,2))"),
    ]  # fmt: skip
    assert two.qualifiers == ("inline", "output")
    functional = statement(".decl price[item: symbol]: float")
    assert (functional.attributes[0].name, str(functional.value)) == ("item", "float")


def test_types() -> None:
    assert statement(".type City").name == "City"
    assert str(statement(".type City <: symbol").base) == "symbol"
    assert [str(m) for m in statement(".type A = B | C").members] == ["B", "C"]
    assert [f.name for f in statement(".type P = [x: number, y: P]").fields] == ["x", "y"]


def test_directives() -> None:
    directive = statement('.input a, b(IO=file, filename="x.csv", rate=2)')
    assert (directive.kind, [name.name for name in directive.names]) == ("input", ["a", "b"])
    assert [(p.key, p.value) for p in directive.parameters] == [
        ("IO", "file"), ("filename", "x.csv"), ("rate", "2"),
    ]  # fmt: skip
    retain = statement('.retain payment(at, "1h")')
    assert (retain.relation.name, retain.column.name) == ("payment", "at")
    assert (retain.bound.text, retain.bound.quoted) == ("1h", True)
    assert statement(".retain e(n, 100)").bound.text == "100"
    assert statement('.pragma "provenance" "none"').values == ("provenance", "none")


def test_positions_take_no_part_in_comparisons() -> None:
    one, other = parsed("p(x) :- q(x)."), parsed("\n\n  p( x )\n  :- q(x) .")
    assert one.statements == other.statements
    assert one.statements != parsed("p(y) :- q(y).").statements


# --- behind a mistake ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lines", "kept"),
    [
        ("p(x :- q(x).\nr(1).", [1], ["r"]),
        ("p(1).\nq(,).\nr(2).\ns(:).\nt(3).", [2, 4], ["p", "r", "t"]),
        ("p(1)\nq(2).", [1], []),
        (".decl p(x number)\nq(1).", [1], ["q"]),
    ],
)
def test_reading_goes_on_behind_a_mistake(text: str, lines: list[int], kept: list[str]) -> None:
    module, mistakes = read(text)
    assert [line for _, line, _ in mistakes] == lines
    names = [head.relation for rule in module.statements for head in rule.heads]  # type: ignore[union-attr]
    assert [name for name in names if name in kept] == kept


def test_what_could_not_be_read_is_remembered_by_name() -> None:
    module, mistakes = read(".decl edge(x number)\np(x) :- edge(x).")
    assert len(mistakes) == 1
    assert module.unread == {"edge"}
    assert not module.hides_names


def test_a_broken_component_hides_names() -> None:
    module, mistakes = read(".comp A { .decl p(x number) }\n.init a = A\nq(x) :- a.p(x).")
    assert [code for code, _, _ in mistakes] == ["syntax"]
    assert module.hides_names


def test_statements_between_braces_belong_to_their_component() -> None:
    module = parsed(".comp A<T> : B<T>, C { .comp D { p(1). } .init d = D\n} q(x) :- d.p(x).")
    outer, rule = module.statements
    assert isinstance(outer, s.ComponentDeclaration) and isinstance(rule, s.RuleStatement)
    assert (outer.name, outer.parameters) == ("A", ("T",))
    assert list(map(str, outer.bases)) == ["B<T>", "C"]
    inner, init = outer.body
    assert isinstance(inner, s.ComponentDeclaration) and isinstance(init, s.InitStatement)
    assert len(inner.body) == 1
    assert (outer.span.line, outer.span.end_line, outer.span.end_column) == (1, 2, 2)


def test_a_full_stop_joins_names_only_after_an_instance() -> None:
    text = ".init c = C\np(x) :- q(x), x = y.r(c.x.y) :- c.q(y), c .\nq(2)."
    _, mistakes = read(text)
    assert [line for _, line, _ in mistakes] == [2]
    _, rule, other, _ = parsed(text.replace(", c .", ".")).statements
    assert isinstance(rule, s.RuleStatement) and isinstance(other, s.RuleStatement)
    assert other.heads[0] == s.AtomFormula(
        "r", (s.Variable("c.x.y", span=rule.span),), span=rule.span
    )


def test_the_empty_program() -> None:
    assert parsed("").statements == ()
    assert parsed("// nothing\n").statements == ()


def test_deep_nesting_is_read() -> None:
    depth = 150
    inner = term("(" * depth + "x" + ")" * depth)
    assert inner == term("x")
