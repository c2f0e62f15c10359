"""Pipelines on Spark: sources, epochs, views, sinks. Needs `pip install 'tidelog[spark]'`.

Nothing of Spark is imported before it is used: names are loaded when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.spark.data_source import register as register
    from tidelog.spark.declared import Sink as Sink
    from tidelog.spark.declared import Source as Source
    from tidelog.spark.declared import Trigger as Trigger
    from tidelog.spark.epoch_done import EpochDone as EpochDone
    from tidelog.spark.listener import MetricsListener as MetricsListener
    from tidelog.spark.pipeline import Pipeline as Pipeline
    from tidelog.spark.session import open_session as open_session
    from tidelog.spark.views import batch_writer as batch_writer
    from tidelog.spark.views import view as view

_WHERE = {
    "EpochDone": "tidelog.spark.epoch_done",
    "MetricsListener": "tidelog.spark.listener",
    "Pipeline": "tidelog.spark.pipeline",
    "Sink": "tidelog.spark.declared",
    "Source": "tidelog.spark.declared",
    "Trigger": "tidelog.spark.declared",
    "batch_writer": "tidelog.spark.views",
    "open_session": "tidelog.spark.session",
    "register": "tidelog.spark.data_source",
    "view": "tidelog.spark.views",
}
__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'tidelog.spark' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
