"""A driver script for spark-submit: opens a session, runs a pipeline, and says what was honoured.

The words are a pipeline file and, as JSON, arguments for `open_session`.
"""

import json
import sys

from tidelog.spark import Pipeline, open_session
from tidelog.spark.pipeline_file import read_pipeline_file
from tidelog.spark.session import ui_address

KEYS = (
    "spark.app.name",
    "spark.sql.shuffle.partitions",
    "spark.sql.session.timeZone",
    "spark.ui.retainedJobs",
    "spark.sql.streaming.minBatchesToRetain",
    "spark.driver.memory",
    "spark.log.level",
)


def main(file: str, keys: str) -> None:
    spec = read_pipeline_file(file)
    spark = open_session(spec.name, settings=spec.spark, **json.loads(keys))
    assert open_session(spec.name) is spark  # the active one
    with Pipeline.from_file(spec) as pipeline:
        pipeline.run(spark)
        rows = pipeline.table("reach").num_rows
    context = spark.sparkContext
    print(
        json.dumps(
            {
                "master": context.master,
                "ui": ui_address(spark),
                "rows": rows,
                **{key: context.getConf().get(key) for key in KEYS},
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
