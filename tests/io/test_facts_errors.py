"""Facts files that are refused: what is wrong, and where."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.typed_values import LIST, RECORDS, relation
from tidelog.errors import FactsError, UsageError
from tidelog.io.facts import read_facts
from tidelog.logic.program import Relation
from tidelog.values.types import NUMBER, SYMBOL

EDGE = relation(NUMBER, SYMBOL, name="edge")
PAIRS = relation(NUMBER, NUMBER)
LISTS = relation(NUMBER, LIST)
CSV = {"rfc4180": "true"}


def refusal(
    folder: Path, content: str | bytes, of: Relation, parameters: dict[str, str]
) -> FactsError:
    path = folder / "r.facts"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(FactsError) as caught:
        read_facts(path, of, RECORDS, parameters)
    assert caught.value.file == str(path)
    return caught.value


@pytest.mark.parametrize(
    ("content", "of", "parameters", "place", "reason"),
    [
        ("1\t2\n3\tx\n", PAIRS, {}, (2, 3), "`x` is not a number"),
        ("é€\t2\n", PAIRS, {}, (1, 1), "`é€` is not a number"),
        ("12\té\n", PAIRS, {}, (1, 4), "`é` is not a number"),
        ("1\t2 \n", PAIRS, {}, (1, 3), "`2 ` is not a number"),
        ("\ufeff1\tx\n", PAIRS, {}, (1, 3), "`x` is not a number"),
        ("h\th\n1\tx\n", PAIRS, {"headers": "true"}, (2, 3), "`x` is not a number"),
        ("1\tx\r\n", PAIRS, {}, (1, 3), "`x` is not a number"),
        ("a\t1\tx\n", PAIRS, {"columns": "1:2"}, (1, 5), "`x` is not a number"),
        ("1::x\n", PAIRS, {"delimiter": "::"}, (1, 4), "`x` is not a number"),
        ("1\t2\t3\n", PAIRS, {}, (1, 5), "expected 2 fields, found 3"),
        ("1\t2\n1\n", PAIRS, {}, (2, 2), "expected 2 fields, found 1"),
        ("1\t2\n", relation(NUMBER), {}, (1, 3), "expected 1 field, found 2"),
        ("1\t2\n", PAIRS, {"columns": "0:2"}, (1, 4), "expected at least 3 fields, found 2"),
        ("1\t2\n\n3\t4\n", PAIRS, {}, (2, 1), "missing values: the line is empty"),
        ("1\t2\n\n\n", PAIRS, {}, (2, 1), "missing values: the line is empty"),
        ("\n1\n", relation(NUMBER), {}, (1, 1), "missing values: the line is empty"),
        ("true\n", relation(), {}, (1, 1), "expected `()`, found `true`"),
        ("1,[2, x]\n", LISTS, {"delimiter": ","}, (1, 3), "`[2, x]` is not a List: expected `[`"),
        ("1\t[2, nil\n", LISTS, {}, (1, 3), "`[2, nil` is not a List: expected `]`"),
        ('1,"a\n', EDGE, CSV, (1, 3), "the quoted field is not closed"),
        ('1,"a"b\n', EDGE, CSV, (1, 3), "text follows the closing quote of the field"),
        ('1,"a\nb",c\n', EDGE, CSV, (2, 4), "expected 2 fields, found 3"),
        ('1,"a\nb"\nx,c\n', EDGE, CSV, (3, 1), "`x` is not a number"),
        ('"a\nb",x\n', relation(SYMBOL, NUMBER), CSV, (2, 4), "`x` is not a number"),
        (b"a\tb\nc\xc3\xa9\xffd\n", EDGE, {}, (2, 3), "byte 0xff is not UTF-8"),
        (b"\xef\xbb\xbfa\xff\n", EDGE, {}, (1, 2), "byte 0xff is not UTF-8"),
    ],
)
def test_a_mistake_has_its_place_and_reason(
    tmp_path: Path,
    content: str | bytes,
    of: Relation,
    parameters: dict[str, str],
    *,
    place: tuple[int, int],
    reason: str,
) -> None:
    error = refusal(tmp_path, content, of, parameters)
    assert (error.line, error.column) == place
    assert error.reason.startswith(reason)


def test_the_message_shows_place_reason_and_relation(tmp_path: Path) -> None:
    error = refusal(tmp_path, "x\ta\n", EDGE, {})
    place = tmp_path / "r.facts"
    help_text = "help: the line must fit edge(a: number, b: symbol)"
    assert str(error) == f"{place}:1:1: `x` is not a number\n  {help_text}"


def test_a_line_with_another_delimiter_gets_a_hint(tmp_path: Path) -> None:
    error = refusal(tmp_path, "1,2\n", PAIRS, {})
    assert 'fields are separated by a tab here; or say `delimiter=","`' in str(error)


def test_a_line_with_tabs_gets_a_hint(tmp_path: Path) -> None:
    error = refusal(tmp_path, "1\t2\n", PAIRS, {"delimiter": ";"})
    assert r'fields are separated by `;` here; or say `delimiter="\t"`' in str(error)


def test_a_mistake_in_a_large_file_has_its_place_too(tmp_path: Path) -> None:
    content = "1\t2\n" * 50_000 + "3\tx\n" + "1\t2\n" * 50_000
    error = refusal(tmp_path, content, PAIRS, {})
    assert (error.line, error.column, error.reason) == (50_001, 3, "`x` is not a number")


def test_a_missing_file_is_named_with_help(tmp_path: Path) -> None:
    path = tmp_path / "edge.facts"
    with pytest.raises(FactsError) as caught:
        read_facts(path, EDGE, {}, {})
    assert str(caught.value).startswith(f"{path}: no such facts file\n  help: create `edge.facts`")


def test_a_missing_folder_is_named_with_help(tmp_path: Path) -> None:
    with pytest.raises(FactsError) as caught:
        read_facts(tmp_path / "nowhere" / "edge.facts", EDGE, {}, {})
    assert f"there is no folder `{tmp_path / 'nowhere'}`" in str(caught.value)


def test_a_folder_is_not_a_facts_file(tmp_path: Path) -> None:
    with pytest.raises(FactsError, match="cannot read the facts file: Is a directory"):
        read_facts(tmp_path, EDGE, {}, {})


def test_a_damaged_gzip_file_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path, gzip.compress(b"1\ta\n" * 100)[:-12], EDGE, {})
    assert error.reason.startswith("the gzip file is damaged")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"IO": "sqlite"}, ".input edge: IO=sqlite is not supported\n  help: use IO=file"),
        ({"IO": "stdin"}, ".input edge: IO=stdin is not supported"),
        ({"delimeter": ","}, "unknown parameter `delimeter`\n  help: did you mean `delimiter`?"),
        ({"zzz": "1"}, "unknown parameter `zzz`\n  help: the parameters are IO, filename"),
        ({"headers": "yes"}, "`headers` must be true or false, not `yes`"),
        ({"delimiter": ""}, "the delimiter is empty"),
        ({"delimiter": "\n"}, "the delimiter cannot contain the end of a line"),
        ({"delimiter": '"', **CSV}, "the delimiter cannot contain a quote when rfc4180=true"),
        ({"columns": "0;1"}, "`columns` must be a list such as `0:2:3`, counted from 0, not `0;1`"),
        ({"columns": "0"}, "`columns` must name 2 different columns of the file, not `0`"),
        ({"columns": "1:1"}, "`columns` must name 2 different columns of the file, not `1:1`"),
    ],
)
def test_parameters_that_cannot_work_are_refused(
    tmp_path: Path, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_facts(tmp_path / "edge.facts", EDGE, {}, parameters)
    assert message in str(caught.value)
