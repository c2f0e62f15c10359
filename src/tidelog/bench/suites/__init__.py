"""The suites, one per file, in the order in which they run."""

from __future__ import annotations

from tidelog.bench.model import Suite
from tidelog.bench.suites import (
    aggregates,
    closure,
    crdt,
    durable,
    galen,
    graphs,
    join,
    language,
    leapfrog,
    pointsto,
    program,
    rules,
    spark,
    theta,
    virtual,
    workload,
)

SUITES: dict[str, Suite] = {
    module.SUITE.name: module.SUITE
    for module in (
        closure,
        join,
        leapfrog,
        theta,
        virtual,
        aggregates,
        galen,
        crdt,
        workload,
        graphs,
        pointsto,
        program,
        rules,
        durable,
        spark,
        language,
    )
}
