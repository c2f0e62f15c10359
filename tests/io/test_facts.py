"""Facts files that are read, one convention at a time."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from tests.typed_values import LIST, RECORDS, relation
from tidelog.io.facts import facts_path, read_facts
from tidelog.logic.program import Directive, DirectiveKind, Relation
from tidelog.values.text import NAN
from tidelog.values.types import FLOAT, NUMBER, SYMBOL, set_type

EDGE = relation(NUMBER, SYMBOL, name="edge")
LISTS = relation(NUMBER, LIST)


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(content: str | bytes, of: Relation, **parameters: str) -> list[tuple[Any, ...]]:
        path = tmp_path / "r.facts"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_facts(path, of, RECORDS, parameters)

    return read


def directive(**parameters: str) -> Directive:
    return Directive(DirectiveKind.INPUT, "edge", parameters)


# --- plain lines ------------------------------------------------------------------------------


def test_fields_are_separated_by_tabs(read: Any) -> None:
    assert read("1\ta\n2\tb c\n", EDGE) == [(1, "a"), (2, "b c")]


def test_rows_keep_their_order_and_repetitions(read: Any) -> None:
    assert read("2\ta\n1\ta\n2\ta\n", EDGE) == [(2, "a"), (1, "a"), (2, "a")]


def test_the_last_line_needs_no_end(read: Any) -> None:
    assert read("1\ta\n2\tb", EDGE) == [(1, "a"), (2, "b")]


def test_an_empty_file_has_no_rows(read: Any) -> None:
    assert read("", EDGE) == []


def test_windows_line_ends_are_taken_off(read: Any) -> None:
    assert read("1\ta\r\n2\tb\r\n", EDGE) == [(1, "a"), (2, "b")]


def test_a_carriage_return_inside_a_line_stays(read: Any) -> None:
    assert read("1\ta\rb\n", EDGE) == [(1, "a\rb")]


def test_a_byte_order_mark_is_dropped_once(read: Any) -> None:
    assert read("\ufeff1\ta\n", EDGE) == [(1, "a")]
    assert read("\ufeff\ufeffa\n", relation(SYMBOL)) == [("\ufeffa",)]


def test_an_empty_symbol_is_a_symbol(read: Any) -> None:
    assert read("1\t\n", EDGE) == [(1, "")]


def test_an_empty_line_is_the_empty_symbol_of_a_single_column(read: Any) -> None:
    assert read("a\n\n", relation(SYMBOL)) == [("a",), ("",)]


def test_one_empty_line_at_the_end_is_tolerated(read: Any) -> None:
    assert read("1\n\n", relation(NUMBER)) == [(1,)]


def test_texts_that_other_readers_take_for_null_are_symbols(read: Any) -> None:
    assert read("NA\nnull\nNaN\n", relation(SYMBOL)) == [("NA",), ("null",), ("NaN",)]


def test_quotes_mean_nothing_in_plain_lines(read: Any) -> None:
    assert read('"a"\n"b\n', relation(SYMBOL)) == [('"a"',), ('"b',)]


def test_there_is_one_nan(read: Any) -> None:
    assert all(value is NAN for (value,) in read("nan\nNaN\n", relation(FLOAT)))


# --- nullary relations ------------------------------------------------------------------------


def test_a_nullary_relation_holds_when_its_file_has_the_empty_row(read: Any) -> None:
    assert read("()\n", relation()) == [()]


def test_a_nullary_relation_does_not_hold_when_its_file_is_empty(read: Any) -> None:
    assert read("", relation()) == []


# --- parameters -------------------------------------------------------------------------------


def test_the_delimiter_may_be_another(read: Any) -> None:
    assert read("1;a b\n", EDGE, delimiter=";") == [(1, "a b")]


def test_the_delimiter_may_have_several_characters(read: Any) -> None:
    assert read("1::a:b\n", EDGE, delimiter="::") == [(1, "a:b")]


def test_a_backslash_t_is_a_tab(read: Any) -> None:
    assert read("1\ta\n", EDGE, delimiter="\\t") == [(1, "a")]


def test_a_header_is_skipped(read: Any) -> None:
    assert read("number\tname\n1\ta\n", EDGE, headers="true") == [(1, "a")]


def test_columns_are_picked_in_the_given_order(read: Any) -> None:
    assert read("a\tx\t1\tmore\nb\ty\t2\n", EDGE, columns="2:0") == [(1, "a"), (2, "b")]


def test_rfc4180_separates_by_commas_and_reads_quotes(read: Any) -> None:
    text = '1,"a, ""b"""\r\n2,c\r\n'
    assert read(text, EDGE, rfc4180="true") == [(1, 'a, "b"'), (2, "c")]


def test_rfc4180_fields_may_contain_line_ends(read: Any) -> None:
    assert read('1,"a\r\nb\n"\n2,c', EDGE, rfc4180="true") == [(1, "a\r\nb\n"), (2, "c")]


def test_rfc4180_numbers_may_be_quoted(read: Any) -> None:
    assert read('"1","a"\n', EDGE, rfc4180="true") == [(1, "a")]


def test_rfc4180_quotes_inside_a_plain_field_are_text(read: Any) -> None:
    assert read('1,a"b"c\n', EDGE, rfc4180="true") == [(1, 'a"b"c')]


def test_rfc4180_takes_another_delimiter(read: Any) -> None:
    assert read('1;"a;b"\n', EDGE, rfc4180="true", delimiter=";") == [(1, "a;b")]


def test_rfc4180_skips_a_header_that_spans_lines(read: Any) -> None:
    assert read('"the\nnumber",name\n1,a\n', EDGE, rfc4180="true", headers="true") == [(1, "a")]


def test_parameters_that_souffle_sets_itself_are_taken(read: Any) -> None:
    parameters = {"IO": "file", "name": "edge", "fact-dir": "x", "operation": "input"}
    assert read("1\ta\n", EDGE, **parameters, attributeNames="a\tb") == [(1, "a")]


# --- brackets ---------------------------------------------------------------------------------


def test_brackets_of_records_protect_commas(read: Any) -> None:
    rows = read("1,[2, [3, nil]]\n4,nil\n", LISTS, delimiter=",")
    assert rows == [(1, (2, (3, None))), (4, None)]


def test_braces_of_sets_protect_commas(read: Any) -> None:
    of = relation(set_type(NUMBER), NUMBER)
    assert read("{1, 2},3\n", of, delimiter=",") == [(frozenset({1, 2}), 3)]


def test_brackets_in_symbols_protect_nothing(read: Any) -> None:
    assert read("[a,1\n", relation(SYMBOL, NUMBER), delimiter=",") == [("[a", 1)]


def test_brackets_of_columns_that_are_not_picked_protect_commas(read: Any) -> None:
    assert read("[1, nil],7\n", relation(NUMBER), delimiter=",", columns="1") == [(7,)]


# --- files ------------------------------------------------------------------------------------


def test_gzip_is_recognised_whatever_the_name(read: Any) -> None:
    assert read(gzip.compress(b"1\ta\n"), EDGE) == [(1, "a")]


def test_the_file_is_named_after_the_relation(tmp_path: Path) -> None:
    assert facts_path(directive(), tmp_path) == tmp_path / "edge.facts"


def test_the_file_may_have_another_name(tmp_path: Path) -> None:
    assert facts_path(directive(filename="x/e.csv"), tmp_path) == tmp_path / "x" / "e.csv"


def test_an_absolute_name_ignores_the_folder(tmp_path: Path) -> None:
    absolute = str(tmp_path / "e.csv")
    assert facts_path(directive(filename=absolute), "elsewhere") == Path(absolute)


def test_a_packed_file_stands_in_for_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "edge.facts.gz").touch()
    assert facts_path(directive(), tmp_path) == tmp_path / "edge.facts.gz"


def test_a_plain_file_goes_before_a_packed_one(tmp_path: Path) -> None:
    (tmp_path / "edge.facts.gz").touch()
    (tmp_path / "edge.facts").touch()
    assert facts_path(directive(), tmp_path) == tmp_path / "edge.facts"
