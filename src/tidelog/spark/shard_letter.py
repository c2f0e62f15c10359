"""Work for shards as a text, which goes along with a Spark job.

Spark plans a job anew for each function that it is given, and that takes longer than a small epoch.
So the function is always the same, and what is to be done comes as a property of the job. Rows are
in it as Arrow has them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import pyarrow as pa

from tidelog.engine.shard_state import ShardRef
from tidelog.io.tabular import to_arrow
from tidelog.logic.program import Relation
from tidelog.spark.conversion import rows_of
from tidelog.spark.declared import Source
from tidelog.spark.shard_reading import FilePart
from tidelog.spark.shard_task import Rows, Work, as_bytes, router_of
from tidelog.values.types import Row

_Parts = Sequence[Mapping[str, set[Row]]]


def written(work: Work) -> str:
    """Return work as a text."""
    data: dict[str, Any] = {name.name: getattr(work, name.name) for name in fields(work)}
    if work.refs is not None:
        data["refs"] = [ref.as_data() for ref in work.refs]
    data["files"] = [asdict(part) for part in work.files]
    if work.rows is not None:
        relation_of, records = _relations(data)

        def texts(parts: _Parts) -> list[dict[str, str]]:
            return [
                {name: _packed(rows, relation_of(name), records) for name, rows in part.items()}
                for part in parts
            ]

        data["rows"] = [texts(work.rows.inserted), texts(work.rows.deleted)]
    return json.dumps(data, separators=(",", ":"))


def read(text: str) -> Work:
    """Return the work that was written."""
    data = json.loads(text)
    for name in ("sides", "watched"):
        data[name] = tuple(data[name])
    if data["refs"] is not None:
        data["refs"] = tuple(map(ShardRef.from_data, data["refs"]))
    data["files"] = tuple(
        FilePart(
            part["name"], Source(**part["source"]), tuple(part["paths"]), tuple(part["labels"])
        )
        for part in data["files"]
    )
    if data["rows"] is not None:
        relation_of, records = _relations(data)

        def parts(texts: Sequence[Mapping[str, str]]) -> _Parts:
            return [
                {name: _unpacked(rows, relation_of(name), records) for name, rows in part.items()}
                for part in texts
            ]

        data["rows"] = Rows(*map(parts, data["rows"]))
    return Work(**data)


def _relations(data: Mapping[str, Any]) -> tuple[Callable[[str], Relation], Any]:
    """Return what tells the relation of a version's name, and the records of the program."""
    program, router = router_of(data["program"], data["program_name"], tuple(data["sides"]))
    sharding = router.sharding
    relations = {sharding.name_of(v): program.relations[v.relation] for v in sharding.versions}
    return relations.__getitem__, program.records


def _packed(rows: set[Row], relation: Relation, records: Any) -> str:
    table = (
        to_arrow(list(rows), relation, records)
        if relation.columns
        else pa.table({"": pa.array([True] * len(rows), pa.bool_())})
    )
    return base64.b64encode(as_bytes(table)).decode("ascii")


def _unpacked(text: str, relation: Relation, records: Any) -> set[Row]:
    table = pa.ipc.open_stream(base64.b64decode(text)).read_all()
    return set(rows_of(table, relation, records))
