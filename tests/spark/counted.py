"""Runs pipelines in a session with an event log, and prints what they say of their epochs.

The words are a folder for the event log, and one for the pipelines. Every pipeline has a name of
its own, by which its jobs are found in the log.
"""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.piping import PLACEMENTS, PROGRAM, Folder
from tests.spark.test_example import script
from tidelog.spark import EpochDone, Pipeline, Sink, open_session

FORMATS = ("csv", "json", "parquet")
EDGES = ([(1, 2), (2, 3), (3, 1)], [(3, 4), (4, 5)], [(5, 6), (6, 7), (7, 1), (1, 9)])
LABELS = [(1, "one"), (4, "four")]


def write(path: Path, format: str, names: tuple[str, str], rows: list[Any]) -> None:
    """Write a file of a format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if format == "parquet":
        columns = zip(*rows, strict=True)
        pq.write_table(pa.table(dict(zip(names, map(list, columns), strict=True))), path)
    elif format == "csv":
        lines = [names, *rows]
        path.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    else:
        path.write_text(
            "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
        )


def small(spark: Any, path: Path, format: str, placement: str) -> list[EpochDone]:
    """Run a pipeline of three epochs; a restart lies before the last one."""
    folder = Folder(path, PROGRAM)
    options = {"options": {"header": "true"}} if format == "csv" else {}
    sources = (
        folder.source("edge", format, files_per_epoch=1, **options),
        # All labels together are read again when there is a new file: they have no stream.
        folder.source("label", format, mode="snapshot", **options),
    )
    sinks = [
        Sink("reach", what="changes", format=format, path=str(path / "out" / "reach")),
        Sink("reaches", format=format, path=str(path / "out" / "reaches")),
    ]
    write(path / "in" / "label" / "0", format, ("x", "name"), LABELS)
    done = []
    for numbers in ((0, 1), (2,)):
        for number in numbers:
            file = path / "in" / "edge" / str(number)
            write(file, format, ("x", "y"), EDGES[number])
            os.utime(file, (number, number))
        with Pipeline(
            PROGRAM, name=path.name, state=path / "state", sources=sources, sinks=sinks,
            **PLACEMENTS[placement],
        ) as pipeline:  # fmt: skip
            done += pipeline.run(spark)
    return done


def fraud(spark: Any, path: Path) -> list[EpochDone]:
    """Run the example; the second file has a bad row."""
    generate = script("generate")
    generate.prepare(path)
    done = []
    with Pipeline.from_file(path / "fraud.toml") as pipeline:
        for _ in generate.arrive(path, 3, 200):
            done += pipeline.run(spark)
    return done


def main(log: str, folder: str) -> None:
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": Path(log).as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.driver.memory": "1g",
    }
    spark = open_session("counted", master="local[2]", settings=settings)
    runs = {"fraud": fraud(spark, Path(folder, "fraud"))}
    for placement in PLACEMENTS:
        for format in FORMATS:
            path = Path(folder, f"{format}-{placement}")
            runs[path.name] = small(spark, path, format, placement)
    spark.stop()  # completes the log
    epochs = {name: list(map(dataclasses.asdict, done)) for name, done in runs.items()}
    print(json.dumps(epochs))


if __name__ == "__main__":
    main(*sys.argv[1:])
