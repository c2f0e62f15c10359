"""The jars of connectors: what is asked for, what the user names, and what fails clearly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import UsageError
from tidelog.spark import connectors
from tidelog.spark.connectors import driver_of, needed, settings_for
from tidelog.spark.declared import Source

KAFKA = Source("r", "kafka")
DELTA = Source("r", "delta", "t")
ICEBERG = Source("r", "iceberg", "t", mode="snapshot")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that would be downloaded."""
    modules: list[str] = []

    def download(alone: list[str], packages: list[str], settings: object) -> list[Path]:
        modules.extend([*alone, *packages])
        return [Path(f"/jars/{name.split(':')[1]}.jar") for name in (*alone, *packages)]

    monkeypatch.setattr(connectors, "download", download)
    return modules


def test_files_need_nothing(asked: list[str]) -> None:
    given = {"spark.jars.packages": "a:b:1"}
    assert settings_for([Source("r", "csv", "in")], given=given, version="4.1.4") == given
    assert asked == []


def test_kafka_needs_four_jars(asked: list[str]) -> None:
    settings = settings_for([KAFKA], version="4.1.4")
    names = [module.split(":", 1)[1] for module in asked]
    assert names == [
        "spark-sql-kafka-0-10_2.13:4.1.3",
        "spark-token-provider-kafka-0-10_2.13:4.0.0",
        "kafka-clients:3.9.1",
        "commons-pool2:2.12.1",
    ]
    assert settings["spark.jars"].count(".jar") == 4


def test_settings_are_joined(asked: list[str]) -> None:
    given = {
        "spark.sql.extensions": "x.Y",
        "spark.jars": "/mine.jar",
        "spark.jars.packages": "a:b:1",
    }
    settings = settings_for([DELTA, ICEBERG], given=given, version="4.1.4")
    assert settings["spark.sql.extensions"].split(",")[0] == "x.Y"
    assert settings["spark.sql.extensions"].count(",") == 2
    assert settings["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")
    assert settings["spark.jars"].startswith("/mine.jar,/jars/delta-spark")
    assert settings["spark.jars"].endswith("/jars/b.jar")
    assert settings["spark.jars.packages"] == ""


@pytest.mark.parametrize(
    "given",
    [
        {"spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"},
        {"spark.jars": "/x/iceberg-spark-runtime-4.1_2.13-1.11.0.jar"},
        {"spark.tidelog.connectors": "given"},
    ],
)
def test_what_the_user_names_wins(asked: list[str], given: dict[str, str]) -> None:
    settings = settings_for([ICEBERG], given=given, version="4.1.4")
    assert asked == []
    assert given.items() <= settings.items()


def test_a_catalog_needs_its_connector() -> None:
    given = {"spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog"}
    assert [found.name for found in needed(given=given)] == ["iceberg"]


def test_drivers_by_address(asked: list[str]) -> None:
    options = {"url": "jdbc:postgresql://host/shop"}
    settings_for([Source("r", "jdbc", mode="snapshot", options=options)], version="4.3.0")
    assert [module.split(":")[1] for module in asked] == ["postgresql"]
    driver = driver_of("jdbc:sqlserver://host;x=1")
    assert driver is not None
    assert driver.class_name.endswith("SQLServerDriver")
    assert driver_of("jdbc:odd:x") is None


def test_no_connector_for_this_spark(asked: list[str]) -> None:
    with pytest.raises(UsageError, match=r"`iceberg` and Spark 4\.3 .*\n  help: "):
        settings_for([ICEBERG], version="4.3.0")
    assert settings_for([KAFKA], version="4.3.0")["spark.jars"]


def test_a_repository_that_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://127.0.0.1:9/")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"cannot be reached\n  help: .*spark\.jars"):
        connectors.download(["org.example:nothing:1"], folder=tmp_path / "jars")


def test_a_module_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", f"{(tmp_path / 'empty').as_uri()}/")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"not found: org\.example:nothing:1"):
        connectors.download(["org.example:nothing:1"], folder=tmp_path / "jars")
