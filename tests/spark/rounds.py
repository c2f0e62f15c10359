"""Runs a pipeline file whenever a line comes on standard input, and tells of the epochs.

    python tests/spark/rounds.py FILE

For tests whose session has settings of its own: a process has one session.
"""

from __future__ import annotations

import dataclasses
import json
import sys

from tidelog.spark import Pipeline, open_session
from tidelog.spark.pipeline_file import read_pipeline_file


def main(file: str) -> None:
    spec = read_pipeline_file(file)
    spark = open_session(spec.name, settings=spec.spark)
    for _ in sys.stdin:
        with Pipeline.from_file(spec) as pipeline:
            done = pipeline.run(spark)
        print("epochs", json.dumps([dataclasses.asdict(epoch) for epoch in done]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
