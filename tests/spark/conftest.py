"""One Spark session for all tests of a process: starting one takes seconds.

It is a Spark Connect server as well, for those tests that want to be clients of one.
"""

from __future__ import annotations

import socket
import warnings
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def connect_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def spark(connect_port: int) -> Iterator[Any]:
    from tidelog.spark import open_session

    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-Dderby.stream.error.file=/dev/null",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": str(connect_port),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = open_session("tests", settings=settings)
    yield session
    session.stop()


@pytest.fixture
def remote(spark: Any, connect_port: int) -> str:
    """The address of a Spark Connect server."""
    return f"sc://127.0.0.1:{connect_port}"
