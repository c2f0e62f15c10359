"""A Kafka broker for measurements and tests: one node on the loopback, in a JVM of its own.

The JVM is a Py4J gateway, as Spark's is. So topics and messages are made by calls from Python and
not by command line tools, which take seconds each. The JVM ends with this process, even if it is
killed. Its jars are downloaded once, from Maven, by the code that downloads connectors.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tidelog.spark.connectors import download, jar_folder
from tidelog.spark.java import provide_java

VERSION = "4.1.1"
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


def jars() -> list[Path]:
    """Return the jars of the broker; download them if they are not there."""
    return download([], [f"org.apache.kafka:kafka_2.13:{VERSION}"], excludes=())


class Broker:
    """A broker that runs, with calls for topics and messages."""

    def __init__(self, gateway: JavaGateway, servers: str) -> None:
        self._gateway, self.servers = gateway, servers
        self._jvm: Any = gateway.jvm
        properties = self._jvm.java.util.Properties()
        properties.put("bootstrap.servers", servers)
        self._admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        as_bytes = "org.apache.kafka.common.serialization.ByteArraySerializer"
        for key, value in {
            "key.serializer": as_bytes,
            "value.serializer": as_bytes,
            "linger.ms": "20",
        }.items():
            properties.put(key, value)
        self._producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(properties)

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """Return the options of Spark's reader or writer for a topic."""
        return {"kafka.bootstrap.servers": self.servers, "subscribe": topic, **more}

    def create(self, topic: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic; settings have `_` for the dots of their names."""
        new = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, partitions, 1)
        new = new.configs(self._map({k.replace("_", "."): v for k, v in settings.items()}))
        self._admin.createTopics(self._list([new])).all().get()

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._admin.deleteTopics(self._list([topic])).all().get()

    def add_partitions(self, topic: str, total: int) -> None:
        """Raise the number of partitions of a topic."""
        more = self._jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(total)
        self._admin.createPartitions(self._map({topic: more})).all().get()

    def trim(self, topic: str, partition: int, before: int) -> None:
        """Delete the messages of a partition before an offset, as retention does."""
        place = self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)
        # Py4J takes the method without arguments for the static one of the same name.
        kind = self._jvm.java.lang.Class.forName("org.apache.kafka.clients.admin.RecordsToDelete")
        types = self._gateway.new_array(self._jvm.java.lang.Class, 1)
        types[0] = self._jvm.java.lang.Long.TYPE
        values = self._gateway.new_array(self._jvm.java.lang.Object, 1)
        values[0] = self._jvm.java.lang.Long.valueOf(str(before))
        records = kind.getMethod("beforeOffset", types).invoke(None, values)
        self._admin.deleteRecords(self._map({place: records})).all().get()

    def send(
        self,
        topic: str,
        values: Iterable[str | bytes | None],
        *,
        partition: int | None = None,
        key: str | None = None,
    ) -> None:
        """Write some messages, one call each; None is a tombstone."""
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        named = None if key is None else key.encode()
        for value in values:
            message = value.encode() if isinstance(value, str) else value
            self._producer.send(record(topic, partition, named, message))
        self._producer.flush()

    def _map(self, items: Mapping[Any, Any]) -> Any:
        result = self._jvm.java.util.HashMap()
        for key, value in items.items():
            result.put(key, value)
        return result

    def _list(self, items: Iterable[Any]) -> Any:
        result = self._jvm.java.util.ArrayList()
        for item in items:
            result.add(item)
        return result


def send_frame(frame: Any, broker: Broker, topic: str) -> None:
    """Write a Spark frame to a topic, each row as JSON: for many messages."""
    (
        frame.selectExpr("to_json(struct(*)) as value")
        .write.format("kafka")
        .option("kafka.bootstrap.servers", broker.servers)
        .option("topic", topic)
        .save()
    )


@contextmanager
def broker() -> Iterator[Broker]:
    """Give a broker without topics, and end it afterwards."""
    provide_java()
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    py4j = next(jar_folder().glob("py4j-*.jar"))
    folder = Path(tempfile.mkdtemp(prefix="tidelog-kafka-"))
    process = gateway = None
    try:
        port, token, process = launch_gateway(
            jarpath=str(py4j),
            classpath=os.pathsep.join(str(jar) for jar in jars()),
            javaopts=["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            java_path=java,
            die_on_exit=True,
            enable_auth=True,
            redirect_stderr=subprocess.DEVNULL,
            return_proc=True,
        )
        gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=False)
        )
        yield Broker(gateway, _start(gateway, folder))
    finally:
        if gateway is not None:
            gateway.shutdown()  # so that Java objects that are collected later are not reported
        if process is not None:
            process.kill()  # its data goes, too
            process.wait(60)
            if process.stdin is not None:
                process.stdin.close()
        shutil.rmtree(folder, ignore_errors=True)


def _start(gateway: JavaGateway, folder: Path) -> str:
    """Start the server in the JVM; return its address."""
    jvm: Any = gateway.jvm
    port, controller = _free_ports(2)
    file = folder / "server.properties"
    text = _SETTINGS.format(port=port, controller=controller, data=folder / "data")
    file.write_text(text, encoding="utf-8")
    arguments = ["format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(file)]
    array = gateway.new_array(jvm.java.lang.String, len(arguments))
    for i, argument in enumerate(arguments):
        array[i] = argument
    assert jvm.kafka.tools.StorageTool.execute(array, jvm.java.lang.System.out) == 0
    properties = jvm.java.util.Properties()
    for line in text.split():
        name, _, value = line.partition("=")
        properties.put(name, value)
    configuration = jvm.kafka.server.KafkaConfig.fromProps(properties)
    time = jvm.org.apache.kafka.common.utils.Time.SYSTEM
    jvm.kafka.server.KafkaRaftServer(configuration, time).startup()
    return f"127.0.0.1:{port}"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in sockets]
    finally:
        for free in sockets:
            free.close()
