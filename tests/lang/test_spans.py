"""Every node knows the text that it was made from."""

from __future__ import annotations

import pytest

from tests.lang.reading import nodes, parsed, written
from tidelog.lang import syntax as s

PROGRAM = """\
.type City <: symbol
.type Pair = [x: number, y: City]
.decl road, rail(from: City,
    to: City) inline
.decl price[item: symbol]: decimal(10, 2)
.input road(IO=file, name="road.csv")

road("a", "b").
p(x + 2 * y, [x, nil]) :-
    q(x, y), !r(x, _) ,
    ( x < 3 ; s(as(y, City)) ),
    n = sum z * 2 : { t(x, z), z != price["x"] },
    match("a.*", y).
price[i] = v :- cost(i, v). .plan 0: (1)
"""


def all_nodes() -> list[s.Node]:
    return nodes(parsed(PROGRAM).statements)


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (s.Subtype, [".type City <: symbol"]),
        (s.RecordDeclaration, [".type Pair = [x: number, y: City]"]),
        (s.RelationName, ["road", "rail", "price", "road"]),
        (s.Attribute, ["x: number", "y: City", "from: City", "to: City", "item: symbol"]),
        (s.Parameter, ["IO=file", 'name="road.csv"']),
        (s.RecordTerm, ["[x, nil]"]),
        (s.NilLiteral, ["nil"]),
        (s.Not, ["!r(x, _)"]),
        (s.Anonymous, ["_"]),
        (s.Cast, ["as(y, City)"]),
        (s.Lookup, ['price["x"]']),
        (s.AggregateTerm, ['sum z * 2 : { t(x, z), z != price["x"] }']),
        (s.Tested, ['match("a.*", y)']),
        (s.FunctionalHead, ["price[i] = v"]),
        (s.PlanOrder, ["0: (1)"]),
        (s.Call, ["x + 2 * y", "2 * y", "z * 2"]),
        (s.IntLiteral, ["2", "3", "2"]),
    ],
)
def test_positions(kind: type[s.Node], texts: list[str]) -> None:
    assert [written(PROGRAM, node) for node in all_nodes() if type(node) is kind] == texts


def test_rules_and_declarations_over_several_lines() -> None:
    statements = parsed(PROGRAM).statements
    assert written(PROGRAM, statements[2]).endswith("\n    to: City) inline")
    assert (statements[6].span.line, statements[6].span.end_line) == (9, 13)
    assert written(PROGRAM, statements[6]).startswith("p(x + 2 * y, [x, nil]) :-\n")
    assert written(PROGRAM, statements[6]).endswith('match("a.*", y).')
    assert written(PROGRAM, statements[7]) == "price[i] = v :- cost(i, v). .plan 0: (1)"


def test_variables_are_where_they_are_written() -> None:
    for node in all_nodes():
        if isinstance(node, s.Variable):
            assert written(PROGRAM, node) == node.name


def test_a_node_lies_within_the_one_above_it() -> None:
    def start_and_end(node: s.Node) -> tuple[tuple[int, int], tuple[int, int]]:
        span = node.span
        return (span.line, span.column), (span.end_line, span.end_column)

    for outer in all_nodes():
        start, end = start_and_end(outer)
        assert start < end
        for inner in nodes(outer):
            assert start <= start_and_end(inner)[0] < start_and_end(inner)[1] <= end


def test_parts_of_spans() -> None:
    rule = parsed(PROGRAM).statements[6]
    span = rule.span
    assert str(span) == "t.dl:9:1"
    word = span.word("match")
    assert (word.line, word.column, word.end_column) == (13, 5, 10)
    assert span.word("nowhere") is span
    assert (span.first(1).end_line, span.first(1).end_column) == (9, 2)
    other = parsed(PROGRAM).statements[7].span
    assert (span.to(other).line, span.to(other).end_line) == (9, 14)
