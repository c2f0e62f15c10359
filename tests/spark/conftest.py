"""One Spark session for all tests of a process: starting one takes seconds.

It is a Spark Connect server as well, for those tests that want to be clients of one. It has the
connectors for Kafka, Avro, Delta and Iceberg, and a catalog `ice` of Iceberg tables.
"""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.bench.kafka_broker import Broker, broker

CONNECTED = ("kafka", "avro", "delta", "iceberg")


@pytest.fixture(scope="session")
def connect_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def spark(connect_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tidelog.spark import open_session
    from tidelog.spark.connectors import settings_for

    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-Dderby.stream.error.file=/dev/null",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": str(connect_port),
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(tmp_path_factory.mktemp("iceberg")),
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    declared = [SimpleNamespace(format=name, options={}) for name in CONNECTED]
    settings = settings_for(declared, given=settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = open_session("tests", settings=settings)
    yield session
    session.stop()


@pytest.fixture
def remote(spark: Any, connect_port: int) -> str:
    """The address of a Spark Connect server."""
    return f"sc://127.0.0.1:{connect_port}"


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """A Kafka broker for all tests of a process."""
    with broker() as running:
        yield running
