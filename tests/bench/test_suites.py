"""Suites that need no facts, in this process and at their smallest; and how facts are read."""

import gzip
import zipfile
from pathlib import Path

import pytest

from tidelog.bench import facts, program_facts
from tidelog.bench.model import Request, Scale
from tidelog.bench.ours import percentile
from tidelog.bench.suites import SUITES, aggregates, crdt, galen, workload

SMALL = Request(Scale.SMALL, None)
MOVES = ("insert", "delete")


@pytest.mark.parametrize(
    ("suite", "case", "what"),
    [
        ("closure", "tidelog on medium graph", "bootstrap"),
        ("join", "tidelog on small sides", "bootstrap of 10,000 rows each side"),
    ],
)
def test_our_cases_measure(suite: str, case: str, what: str) -> None:
    first, median, p99, *_ = SUITES[suite].case(case).measure(SMALL)
    assert first.what == what
    assert first.rows is not None and first.rows > 1000
    assert first.bytes_per_row is not None and first.bytes_per_row > 8
    assert median.what.endswith("median")
    assert median.seconds is not None and p99.seconds is not None
    assert 0 < median.seconds <= p99.seconds


def test_a_durable_database_is_measured() -> None:
    suite = SUITES["durable"]
    figures = {figure.what: figure for case in suite.cases for figure in case.measure(SMALL)}
    assert figures["open"].rows == figures["bootstrap"].rows == 97_993
    assert "MB mapped" in figures["open"].note
    assert len([f for f in figures.values() if f.what.endswith("median")]) == 3


def test_peers_compute_the_same() -> None:
    ours = next(SUITES["closure"].case("tidelog on large graph").measure(SMALL))
    (peer,) = SUITES["closure"].case("duckdb on large graph").measure(SMALL)
    assert ours.rows == peer.rows == 97_993


def test_a_whole_program_is_analysed_from_files_to_files() -> None:
    (figure,) = SUITES["program"].case("tidelog").measure(SMALL)
    assert figure.note.startswith("140,")
    assert figure.rows is not None and figure.rows > 30_000


def test_generated_facts_depend_on_the_seed_only(tmp_path: Path) -> None:
    names = ("Method", "VirtualCall", "Handler")
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / folder).mkdir()
        assert program_facts.write_facts(tmp_path / folder, names, 20, seed) > 300
    a, b, c = ([(tmp_path / x / f"{n}.facts").read_bytes() for n in names] for x in "abc")
    assert a == b
    assert a != c


@pytest.mark.parametrize("name", aggregates.AGGREGATES)
def test_aggregates_measure_groups_of_all_sizes(name: str) -> None:
    first, *figures = SUITES["aggregates"].case(f"tidelog on {name}").measure(SMALL)
    assert first.rows == 3
    wanted = [f"{what}, {n:,} rows, median" for n in (10, 100, 1000) for what in MOVES]
    if name == "max":
        wanted += ["insert a new maximum, median", "delete the maximum, median"]
    assert [figure.what for figure in figures] == wanted
    assert all(figure.seconds for figure in figures)


def test_exact_sums_equal_fsum() -> None:
    ours, *others = SUITES["aggregates"].case("tidelog on exact sums").measure(SMALL)
    assert ours.note == "equal to fsum, bit for bit"
    assert [figure.what for figure in others] == ["take away", "plain sum", "fsum"]


def test_peers_aggregate_as_many_groups() -> None:
    ours = list(SUITES["aggregates"].case("tidelog on 1,000 groups").measure(SMALL))
    peer = list(SUITES["aggregates"].case("duckdb on 1,000 groups").measure(SMALL))
    assert {figure.rows for figure in (*ours, *peer)} == {1000, None}
    assert {figure.against for figure in peer} < {figure.what for figure in ours}


def test_the_workload_has_thirteen_epochs() -> None:
    given = {"p": [(i,) for i in range(500)]}
    epochs = workload.epochs(given, large=100)
    assert len(epochs) == 12  # and the first evaluation
    sizes = [len(inserted) - len(deleted) for inserted, deleted in epochs]
    assert sizes == [-10, 10, -10, 10, -10, 10, -100, -10, 10, -10, 10, 100]
    present = {("p", row) for row in given["p"]}
    for inserted, deleted in epochs:
        assert present.issuperset(deleted) and present.isdisjoint(inserted)
        present = (present - set(deleted)) | set(inserted)
    assert len(present) == 500


def test_facts_come_out_of_their_archive(tmp_path: Path) -> None:
    (tmp_path / "a.dl").write_text(
        '.decl p(x: number, y: number)\n.input p(filename="in/p.txt", delimiter=",")\n'
    )
    with zipfile.ZipFile(tmp_path / "facts.zip", "w") as archive:
        archive.writestr("in/p.txt", "1,2\n3,4\n")
    program, given = facts.read_packed(tmp_path, "a.dl")
    assert list(program.relations) == ["p"]
    assert given == {"p": [(1, 2), (3, 4)]}
    (tmp_path / "graph.tsv.gz").write_bytes(gzip.compress(b"1\t2\n3\t4\n"))
    assert facts.read_pairs(tmp_path / "graph.tsv.gz") == [(1, 2), (3, 4)]


def test_a_hub_is_what_most_others_use() -> None:
    assert galen._hub([(1, 2), (3, 1), (4, 1), (2, 2), (1, 1)]) == (1, 2)


def test_a_part_of_the_editing_is_a_prefix(tmp_path: Path) -> None:
    (tmp_path / "crdt.dl").write_text(
        ".decl insert(c: number, n: number, pc: number, pn: number)\n"
        ".decl remove(c: number, n: number)\n.input insert\n.input remove\n"
    )
    inserts = "".join(f"{i}\t0\t{i - 1}\t0\n" for i in range(1, 41))
    with zipfile.ZipFile(tmp_path / "facts.zip", "w") as archive:
        archive.writestr("insert.facts", inserts)
        archive.writestr("remove.facts", "2\t0\n30\t0\n")
    _, few = crdt.read_crdt(tmp_path, full=False)
    assert few == {"insert": [(1, 0, 0, 0), (2, 0, 1, 0)], "remove": [(2, 0)]}


def test_percentiles() -> None:
    values = [float(i) for i in range(100)]
    assert percentile(values, 50) == 49.5
    assert percentile(values, 90) == 90.0
    assert percentile(values, 99) == 99.0
    assert percentile([3.0], 99) == 3.0
