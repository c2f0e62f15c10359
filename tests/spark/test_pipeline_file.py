"""The pipeline file: what it may hold, and what is said about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import UsageError
from tidelog.spark import Pipeline
from tidelog.spark.pipeline_file import read_pipeline_file

GOOD = """
[pipeline]
name = "fraud"
program = "fraud.dl"
state = "state"
placement = "auto"
shards = 4

[pipeline.spark]
"spark.driver.memory" = "1g"

[[source]]
relation = "payment"
format = "csv"
path = "in/payment"
mode = "append"
op = "op"
options = { header = true, maxColumns = 10 }
columns = { account = "acct" }

[[source]]
relation = "account"
format = "parquet"
path = "s3a://bucket/account"

[[sink]]
view = "fraud"
what = "table"
format = "parquet"
path = "out/fraud"
"""
PROGRAM = """
.decl payment(account: symbol, amount: number)
.decl account(account: symbol)
.decl fraud(account: symbol)
fraud(a) :- account(a), payment(a, x), x > 400.
"""


def write(folder: Path, text: str) -> Path:
    (folder / "fraud.dl").write_text(PROGRAM)
    file = folder / "fraud.toml"
    file.write_text(text)
    return file


def test_the_file_of_the_contract(tmp_path: Path) -> None:
    spec = read_pipeline_file(write(tmp_path, GOOD))
    assert (spec.name, spec.placement, spec.shards) == ("fraud", "auto", 4)
    assert (spec.program, spec.state) == (tmp_path / "fraud.dl", tmp_path / "state")
    assert spec.spark == {"spark.driver.memory": "1g"}
    first, second = spec.sources
    assert first.path == str(tmp_path / "in" / "payment")
    assert first.options == {"header": "true", "maxColumns": "10"}
    assert first.columns == {"account": "acct"}
    assert second.path == "s3a://bucket/account"
    assert spec.sinks[0].path == str(tmp_path / "out" / "fraud")
    with Pipeline.from_file(spec) as pipeline:
        assert [source.name for source in pipeline.sources] == ["payment", "account"]
        assert [sink.name for sink in pipeline.sinks] == ["fraud-table-parquet"]


def test_what_is_left_out_has_a_value(tmp_path: Path) -> None:
    spec = read_pipeline_file(write(tmp_path, '[pipeline]\nprogram = "fraud.dl"\n'))
    assert (spec.name, spec.state, spec.sources) == ("fraud", tmp_path / "state", ())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[pipeline]", "[pipelin]", "the file: unknown key `pipelin`\n  help: did you mean"),
        ('name = "fraud"', "name = 7", "[pipeline]: `name` must be text in quotes, not 7"),
        ("shards = 4", "shards = true", "[pipeline]: `shards` must be a whole number, not True"),
        ('program = "fraud.dl"', "", "[pipeline]: `program` is missing"),
        ('program = "fraud.dl"', 'program = "no.dl"', "[pipeline]: there is no program `"),
        ('placement = "auto"', 'placement = "drivr"', "did you mean `driver`?"),
        ('placement = "auto"', 'placement = "relational"', "must be one of auto, driver, sharded"),
        ("shards = 4", "shards = 0", "`shards` is 1 or more, not 0"),
        (
            'relation = "payment"',
            'relaton = "payment"',
            "[[source]] number 1: unknown key `relaton`\n  help: did you mean `relation`?",
        ),
        ('relation = "payment"', "", "[[source]] number 1: `relation` is missing"),
        (
            'relation = "payment"',
            'relation = "paymnt"',
            "a source names the relation `paymnt`, which the program does not declare"
            "\n  help: did you mean `payment`?",
        ),
        (
            'mode = "append"',
            'mode = "apend"',
            "[[source]] number 1: `mode` must be one of",
        ),
        ('path = "in/payment"', "", "number 1: a source of format `csv` needs a `path`"),
        ("header = true", "header = [1]", "`options`: `header` must be text, not [1]"),
        ('account = "acct"', 'acount = "acct"', "which `payment(account: symbol, amount: number)`"),
        (
            "[[sink]]",
            "[sink]",
            "[sink]: must be a list of tables\n  help: write [[sink]] for each one",
        ),
        (
            'view = "fraud"',
            'view = "frauds"',
            "a sink names the view `frauds`, which the program does not declare",
        ),
        (
            'what = "table"',
            'what = "tabel"',
            "[[sink]] number 1: `what` must be one of table",
        ),
        (
            'format = "parquet"\npath = "out/fraud"',
            'format = "jdbc"',
            "needs the options `url` and `dbtable`",
        ),
        ('"out/fraud"', '"out/fraud', "invalid TOML: "),
    ],
)
def test_a_mistake_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in GOOD
    file = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(Exception, match=r"fraud\.toml|`columns`") as error:
        Pipeline.from_file(file)
    assert message in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no pipeline file"):
        read_pipeline_file(tmp_path / "fraud.toml")


def test_a_program_in_place_of_a_pipeline_file(tmp_path: Path) -> None:
    program = tmp_path / "fraud.dl"
    program.write_text(".decl p(x: number)\n")
    with pytest.raises(UsageError, match="this is a program; a pipeline file names it"):
        read_pipeline_file(program)


def test_names_that_pipelines_use_themselves(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="`tidelog_offsets` is a name reserved for pipelines"):
        Pipeline(".decl tidelog_offsets(x: number)", state=tmp_path, sources=[])


def test_values_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = GOOD.replace("header = true", 'header = true, password = "${FRAUD_PASS}"')
    file = write(tmp_path, text)
    monkeypatch.delenv("FRAUD_PASS", raising=False)
    with pytest.raises(UsageError, match=r"number 1: `options`: `password`: .* no variable"):
        read_pipeline_file(file)
    monkeypatch.setenv("FRAUD_PASS", "open sesame")
    spec = read_pipeline_file(file)
    assert spec.sources[0].options["password"] == "open sesame"
    assert "sesame" not in repr(spec)


def test_addresses(tmp_path: Path) -> None:
    text = GOOD.replace('"in/payment"', f'"file://{tmp_path}/in"').replace(
        '"out/fraud"', '"dbfs:/out"'
    )
    state = f'"file:{tmp_path}/s"'
    spec = read_pipeline_file(write(tmp_path, text.replace('state = "state"', f"state = {state}")))
    assert spec.sources[0].path == f"{tmp_path}/in"
    assert spec.sources[1].path == "s3a://bucket/account"
    assert spec.sinks[0].path == "dbfs:/out"
    assert spec.state == tmp_path / "s"
    with pytest.raises(UsageError, match="`state` must be a path on this machine"):
        read_pipeline_file(write(tmp_path, GOOD.replace('"state"', '"s3a://bucket/state"')))
