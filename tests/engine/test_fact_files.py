"""Files of facts that are read in chunks give what the exact reader gives, or are left out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.io.test_fast_read import PIECES
from tests.typed_values import RECORDS, relation
from tidelog import Database, FactsError
from tidelog.engine import fact_files
from tidelog.engine.fact_files import encoded_files
from tidelog.io.facts import FactsFile, open_facts
from tidelog.io.parameters import FileFormat
from tidelog.io.rows import column, read_exactly
from tidelog.logic.program import Relation
from tidelog.runtime.workers import Workers
from tidelog.store.codec import Codec
from tidelog.values.types import NUMBER, SYMBOL, UNSIGNED, Row, Type

PLAIN = [SYMBOL, NUMBER, UNSIGNED]
FORMATS = [FileFormat(), FileFormat(headers=True), FileFormat(delimiter=",")]
CHUNKS = [1, 2, 3, 7, 40, 1 << 12]


def exact(data: bytes, of: Relation, format: FileFormat) -> list[Row] | None:
    columns = [column(field, RECORDS) for field in of.columns]
    try:
        return read_exactly(data.removeprefix(b"\xef\xbb\xbf"), "f", columns, format, "")
    except FactsError:
        return None


def in_chunks(
    data: bytes, of: Relation, format: FileFormat, chunk: int, threads: int = 1
) -> list[Row] | None:
    """Return the rows as the engine would read them; None if it leaves the file out."""
    codec = Codec(RECORDS)
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        opened = FactsFile(Path(file.name), of, RECORDS, {}, format)
        found = encoded_files({of.name: opened}, codec, Workers(threads), chunk).get(of.name)
    if found is None:
        return None
    decoders = [codec.decoder(field.type) for field in of.columns]
    columns = [list(map(d, own.tolist())) for d, own in zip(decoders, found, strict=True)]
    return list(zip(*columns, strict=True))


@given(
    st.lists(st.sampled_from([*PIECES, "\t", "\n", "1"])).map("".join),
    st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3),
    st.sampled_from(FORMATS),
    st.sampled_from(CHUNKS),
)
@example("\ufeff\ufeffa\n", [SYMBOL], FileFormat(), 7)
@example("a\r\nb\r\n", [SYMBOL], FileFormat(), 7)
@example("\n\n", [SYMBOL], FileFormat(), 1)
@example("1\n\n", [NUMBER], FileFormat(), 1)
@example("-1\n", [UNSIGNED], FileFormat(), 1)
@example("-0\t007\n", [NUMBER, UNSIGNED], FileFormat(), 2)
@example("name\na", [SYMBOL], FileFormat(headers=True), 3)
def test_random_text_is_read_alike(
    text: str, types: list[Type], format: FileFormat, chunk: int
) -> None:
    of = relation(*types)
    found = in_chunks(text.encode(), of, format, chunk)
    if found is not None:
        assert repr(found) == repr(exact(text.encode(), of, format))


TEXT = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=["Cs"]), max_size=12)


@given(
    st.lists(st.tuples(TEXT, st.integers(-(10**17), 10**17), TEXT), max_size=30),
    st.booleans(),
    st.sampled_from(CHUNKS),
    st.sampled_from([1, 2, 4]),
)
def test_plain_files_are_not_left_out(
    rows: list[tuple[str, int, str]], ends: bool, chunk: int, threads: int
) -> None:
    text = "\n".join("\t".join(map(str, row)) for row in rows) + ("\n" if ends and rows else "")
    of = relation(SYMBOL, NUMBER, SYMBOL)
    data = text.encode()
    assert in_chunks(data, of, FileFormat(), chunk, threads) == exact(data, of, FileFormat())


@pytest.mark.parametrize("cut", [b"\xff", b"\xc3", b"\xed\xa0\x80"])
def test_what_is_not_utf8_is_left_out(cut: bytes) -> None:
    data = b"a\n" * 9 + cut + b"\nb\n"
    assert in_chunks(data, relation(SYMBOL), FileFormat(), 4) is None


@pytest.mark.parametrize("chunk", [8, 16, 64])
def test_long_lines_are_left_out(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(fact_files, "LONGEST", 16)
    of = relation(SYMBOL)
    for size in range(40):
        data = b"ab\n" * 3 + b"x" * size + b"\n" + b"cd\n" * 20
        found = in_chunks(data, of, FileFormat(), chunk)
        assert found in (None, exact(data, of, FileFormat()))
        assert found is not None or size >= 16


def many_lines(count: int) -> list[str]:
    return [f"<some.long.name.Class{i * 7919 % count}: void method()>/x\t{i}" for i in range(count)]


@pytest.mark.parametrize("spoiled", [None, "same", "crlf", "wrong"])
def test_a_file_through_the_engine(tmp_path: Path, spoiled: str | None) -> None:
    lines = many_lines(3000)
    if spoiled == "same":
        lines[2000] = lines[2000].split("\t")[0] + "\t0x10"  # only the exact reader knows
    if spoiled == "crlf":
        lines[2000] += "\r"
    if spoiled == "wrong":
        lines[2000] = "one field"
    path = tmp_path / "edge.facts"
    path.write_text("\n".join(lines), newline="")
    source = ".decl edge(x: symbol, n: number)\n.decl r(n: number)\nr(n) :- edge(_, n).\n"
    of = Database(source).program.relation("edge")
    opened = open_facts(path, of, {}, {})
    assert isinstance(opened, FactsFile)
    if spoiled == "wrong":
        with pytest.raises(FactsError, match=":2001:"):
            Database(source, facts={"edge": opened})
        return
    found: list[Any] = []
    for threads in (1, 2, 4):
        database = Database(source, facts={"edge": opened}, threads=threads)
        assert set(database.view("edge")) == set(opened.read())
        assert len(database.view("r")) == len({row[1] for row in opened.read()})
        symbols = database._core.kernel._catalog.codec.symbols
        found.append(symbols.entries(0, len(symbols)))
    assert found[0] == found[1] == found[2]
