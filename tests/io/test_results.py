"""Results as text and as files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.typed_values import LIST, RECORDS, TYPES, relation, rows
from tidelog.errors import DataError, UsageError
from tidelog.io.facts import read_facts
from tidelog.io.parameters import output_format
from tidelog.io.results import OutputPlan, ResultFile, format_rows, output_path
from tidelog.io.tabular import to_arrow
from tidelog.io.text import encode, table_text
from tidelog.logic.program import Directive, DirectiveKind
from tidelog.values.order import sort_rows
from tidelog.values.types import FLOAT, NUMBER, SYMBOL, UNSIGNED

EDGE = relation(NUMBER, SYMBOL, name="edge")
WORD = relation(SYMBOL)
CSV = {"rfc4180": "true"}
PARAMETERS: list[dict[str, str]] = [
    {},
    {"headers": "true"},
    {"delimiter": ","},
    {"delimiter": "ab"},
    CSV,
    {"delimiter": "aa", "headers": "true", **CSV},
]


def output(**parameters: str) -> Directive:
    return Directive(DirectiveKind.OUTPUT, "edge", parameters)


# --- text -------------------------------------------------------------------------------------


def test_rows_are_sorted_by_value_and_not_by_text() -> None:
    assert format_rows([(10, "a"), (9, "b"), (9, "a")], EDGE, {}, {}) == "9\ta\n9\tb\n10\ta\n"


def test_no_rows_are_an_empty_text() -> None:
    assert format_rows([], EDGE, {}, {}) == ""


def test_a_nullary_relation_is_written_as_the_empty_row() -> None:
    assert format_rows([()], relation(), {}, {}) == "()\n"
    assert format_rows([], relation(), {}, {}) == ""


def test_headers_are_the_names_of_the_columns() -> None:
    parameters = {"headers": "true", "delimiter": ";"}
    assert format_rows([(1, "x")], EDGE, {}, parameters) == "a;b\n1;x\n"


def test_floats_are_short() -> None:
    assert format_rows([(1.0,), (0.1,)], relation(FLOAT), {}, {}) == "0.1\n1\n"


def test_many_rows_are_written_as_few_are() -> None:
    many = [(i * 7919 % 30_011, "x") for i in range(30_011)]
    text = format_rows(many, EDGE, {}, {})
    assert text == "".join(f"{i}\tx\n" for i in range(30_011))


@pytest.mark.parametrize(
    ("symbol", "text"),
    [
        ("a b", "a b"),
        ("a,b", '"a,b"'),
        ('say "hi"', '"say ""hi"""'),
        ("a\nb", '"a\nb"'),
        (" a", '" a"'),
        ("a ", '"a "'),
        ("", '""'),
    ],
)
def test_rfc4180_quotes_symbols_that_need_it(symbol: str, text: str) -> None:
    assert format_rows([(symbol,)], WORD, {}, CSV) == text + "\n"


def test_rfc4180_quotes_records_because_of_their_commas() -> None:
    assert format_rows([((1, None),)], relation(LIST), RECORDS, CSV) == '"[1, nil]"\n'


def test_records_may_stand_between_commas_without_quotes() -> None:
    text = format_rows([(1, (2, None))], relation(NUMBER, LIST), RECORDS, {"delimiter": ","})
    assert text == "1,[2, nil]\n"


def test_stdout_has_the_rulers_of_souffle() -> None:
    text = format_rows([(1, "x")], EDGE, {}, {"IO": "stdout"})
    assert text == "---------------\nedge\n===============\n1\tx\n===============\n"


def test_stdout_has_headers_below_the_name() -> None:
    text = format_rows([], EDGE, {}, {"IO": "stdout", "headers": "true"})
    assert text == "---------------\nedge\na\tb\n===============\n===============\n"


# --- nothing is lost --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("symbol", "parameters", "culprit"),
    [
        ("x\ty", {}, r"`b` contains the delimiter `\t`"),
        ("x;y", {"delimiter": ";"}, "`b` contains the delimiter `;`"),
        ("x\ny", {}, "`b` contains the end of a line"),
        ("x\r", {}, "`b` contains the end of a line"),
    ],
)
def test_a_symbol_that_would_not_read_back_is_an_error(
    symbol: str, parameters: dict[str, str], culprit: str
) -> None:
    with pytest.raises(DataError) as caught:
        format_rows([(1, "fine"), (2, symbol)], EDGE, {}, parameters)
    message = str(caught.value)
    assert message.startswith(f"a row of `edge` cannot be written: {culprit}\n  row: ('2', ")
    assert message.endswith("help: `.output edge(rfc4180=true)` writes such symbols in quotes")


def test_half_a_surrogate_pair_is_an_error() -> None:
    with pytest.raises(DataError, match=r"`r`: a symbol with '\\ud800' cannot be encoded"):
        encode(format_rows([("\ud800",)], WORD, {}, {}), "r")


@given(st.data())
def test_what_is_written_reads_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    of = relation(*data.draw(st.lists(st.sampled_from(TYPES), max_size=3)))
    drawn = data.draw(rows(of, max_size=4))
    parameters = data.draw(st.sampled_from(PARAMETERS))
    path = tmp_path_factory.mktemp("results") / "r.csv"
    try:
        path.write_bytes(encode(format_rows(drawn, of, RECORDS, parameters), "r"))
    except DataError:
        assert "rfc4180" not in parameters
        return
    assert set(read_facts(path, of, RECORDS, parameters)) == set(drawn)


@given(st.data())
def test_rows_in_columns_are_written_alike(data: st.DataObject) -> None:
    types = data.draw(
        st.lists(st.sampled_from([NUMBER, UNSIGNED, SYMBOL, FLOAT]), min_size=1, max_size=3)
    )
    of = relation(*types)
    drawn = sort_rows(data.draw(rows(of, max_size=6)), of.columns, {})
    parameters = data.draw(st.sampled_from([{}, {"delimiter": ";"}, *PARAMETERS[2:]]))
    parts = table_text(to_arrow(drawn, of, {}), of.columns, output_format(of, parameters))
    found = None if parts is None else b"".join(parts)
    if found is not None:
        assert found == encode(format_rows(drawn, of, {}, parameters), "r")
    elif not drawn:
        assert FLOAT in types or parameters, "nothing stands in the way"


# --- plans ------------------------------------------------------------------------------------


def test_a_plan_writes_nothing_before_it_is_told_to(tmp_path: Path) -> None:
    plan = OutputPlan(tmp_path)
    plan.add([ResultFile(output(), EDGE, [(1, "x")])], {})
    assert list(tmp_path.iterdir()) == []
    assert plan.write() == ""
    assert (tmp_path / "edge.csv").read_text() == "1\tx\n"


def test_a_plan_returns_what_is_to_be_printed_in_order(tmp_path: Path) -> None:
    plan = OutputPlan(tmp_path)
    plan.add(
        [ResultFile(Directive(DirectiveKind.PRINTSIZE, "edge", {}), EDGE, [(1, "x"), (2, "y")])], {}
    )
    plan.add([ResultFile(output(IO="stdout"), EDGE, [(1, "x")])], {})
    assert plan.write().startswith("edge\t2\n---------------\nedge\n")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_takes_further_files(tmp_path: Path) -> None:
    plan = OutputPlan(tmp_path)
    plan.add_text("changes/1/edge.changes", "+\t1\tx\n")
    plan.write()
    assert (tmp_path / "changes" / "1" / "edge.changes").read_text() == "+\t1\tx\n"


def test_two_outputs_to_one_file_are_refused(tmp_path: Path) -> None:
    plan = OutputPlan(tmp_path)
    plan.add([ResultFile(output(), EDGE, [])], {})
    with pytest.raises(UsageError, match="two outputs write the same file"):
        plan.add([ResultFile(output(filename="edge.csv"), EDGE, [])], {})


def test_packed_output_is_the_same_every_time(tmp_path: Path) -> None:
    packed = []
    for name in ("one", "two"):
        plan = OutputPlan(tmp_path / name)
        plan.add([ResultFile(output(compress="true"), EDGE, [(1, "x")])], {})
        plan.write()
        packed.append((tmp_path / name / "edge.csv.gz").read_bytes())
    assert packed[0] == packed[1]
    assert gzip.decompress(packed[0]) == b"1\tx\n"
    assert packed[0][4:8] == b"\0\0\0\0"  # no time


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({}, "edge.csv"),
        ({"compress": "true"}, "edge.csv.gz"),
        ({"filename": "x.tsv", "compress": "true"}, "x.tsv"),
    ],
)
def test_the_file_is_named(parameters: dict[str, str], name: str) -> None:
    assert output_path(output(**parameters), "out") == Path("out") / name


@pytest.mark.parametrize("device", ["json", "jsonfile", "sqlite"])
def test_other_devices_are_not_supported(device: str) -> None:
    with pytest.raises(UsageError, match=f".output edge: IO={device} is not supported"):
        format_rows([], EDGE, {}, {"IO": device})


def test_unknown_parameters_are_refused_with_a_hint() -> None:
    with pytest.raises(UsageError, match="unknown parameter `header`\n  help: did you mean `hea"):
        format_rows([], EDGE, {}, {"header": "true"})
