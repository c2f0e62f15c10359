"""Lets every Spark session know the format `tidelog`, without a call of `tidelog.spark.register`.

Spark looks for modules whose names begin with `pyspark_` and takes their `DefaultSource`.
"""

from tidelog.spark.data_source import TidelogDataSource as DefaultSource

__all__ = ["DefaultSource"]
