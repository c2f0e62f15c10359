"""`.retain` of a program, in a pipeline: the source retains rows as if it declared it itself."""

from __future__ import annotations

import pytest

import tidelog
from tidelog.logic.program import Program
from tidelog.spark.declared import Source
from tidelog.spark.declared_parts import declared_sources
from tidelog.spark.retained_time import RetainedTime

PROGRAM = """
.decl ride(id: number, at: timestamp)
.decl tick(at: number)
.retain ride(at, "90m")
.retain tick(at, 5)
"""


def source(relation: str = "ride", **keys: str) -> Source:
    return Source(relation=relation, format="csv", path="x", **keys)  # type: ignore[arg-type]


def test_a_source_takes_what_the_program_says() -> None:
    without = Program.parse(PROGRAM.replace('.retain ride(at, "90m")', ""))
    (found,) = declared_sources(Program.parse(PROGRAM), [source()])
    (same,) = declared_sources(without, [source(retain="90m", retain_by="at")])
    assert RetainedTime.of(found) is not None
    assert RetainedTime.of(found) == RetainedTime.of(same)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (source(retain="1h", retain_by="at"), "source `ride` has `retain`, and the program has"),
        (source(mode="changes"), '`retain` is for mode = "append", not "changes"'),
        (source("tick"), "`.retain tick` is by a number, and a pipeline needs a time"),
    ],
)
def test_what_a_pipeline_cannot_retain(spec: Source, message: str) -> None:
    with pytest.raises(tidelog.UsageError, match=message.replace(".", r"\.")):
        declared_sources(Program.parse(PROGRAM), [spec])
