"""The changes of a view in a Kafka topic, by Spark's connector.

The value of a message is the change as JSON, with `op` and `epoch`. The key is the row as JSON, so
all changes of a row are in one partition of the topic, in order. Kafka has no transactions across
Spark's tasks: after a crash, the messages of the last epoch may be there twice. Key, `op` and
`epoch` together identify a change.
"""

from __future__ import annotations

from typing import Any

from tidelog.spark.sink_files import JSON_OPTIONS
from tidelog.spark.sinks import Writer


class KafkaWriter(Writer):
    """A topic with the changes of a view."""

    @property
    def where(self) -> str:
        """The topic, for messages."""
        return self.spec.options["topic"]

    def write_table(self, epoch: int, frame: Any) -> None:
        """Never called: a topic has no rows to replace, and declarations are checked."""
        raise AssertionError

    def write_changes(self, epoch: int, frame: Any) -> None:
        """Send the changes of an epoch."""
        messages(frame, [column.name for column in self.relation.columns]).write.format(
            "kafka"
        ).options(**self.spec.options).save()


def messages(frame: Any, names: list[str]) -> Any:
    """Return changes as messages; `names` are the columns of the view."""
    from pyspark.sql import functions as F

    def text(columns: list[str]) -> Any:
        quoted = [F.col("`" + name.replace("`", "``") + "`") for name in columns]
        return F.to_json(F.struct(*quoted), JSON_OPTIONS) if columns else F.lit("{}")

    return frame.select(text(names).alias("key"), text(frame.columns).alias("value"))
