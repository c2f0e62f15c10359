"""`tidelog pipeline`: the commands and their options.

They are carried out by pipeline_run.py, pipeline_status.py and pipeline_admin.py.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

pipeline_commands = typer.Typer(
    help="Run pipelines on Spark: sources, epochs, views, sinks.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class PlacementName(StrEnum):
    """Where the state of a pipeline is."""

    AUTO = "auto"
    DRIVER = "driver"
    SHARDED = "sharded"


PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A pipeline file; see docs/pipelines.md.")
]

Master = Annotated[
    str | None,
    typer.Option(
        "--master", help="The Spark master; by default that of spark-submit, or this machine."
    ),
]
Remote = Annotated[
    str | None,
    typer.Option("--remote", help="A Spark Connect server, such as sc://host:15002."),
]


@pipeline_commands.command()
def run(
    file: PipelineFile,
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous/--once",
            help="Continue until Ctrl-C; by default, process what is there and exit.",
        ),
    ] = False,
    master: Master = None,
    remote: Remote = None,
    placement: Annotated[
        PlacementName | None,
        typer.Option("--placement", help="The placement of the state; overrides the file."),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option("--shards", min=1, help="The number of shards; overrides the file."),
    ] = None,
    until_idle: Annotated[
        str | None,
        typer.Option(
            "--until-idle",
            metavar="DURATION",
            help="With --continuous, end when nothing new has come for so long, such as 30s.",
        ),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option("--chart", help="Write a picture of the epochs to this SVG file."),
    ] = None,
) -> None:
    r"""Run a pipeline. It continues after the last committed epoch.

    Ctrl-C stops it after the current epoch.

    \b
    tidelog pipeline run fraud.toml
    tidelog pipeline run fraud.toml --continuous --master spark://host:7077
    """
    from tidelog.cli.pipeline_run import run_pipeline
    from tidelog.spark.declared import seconds_of

    try:
        code = run_pipeline(
            file,
            once=not continuous,
            master=master,
            remote=remote,
            placement=None if placement is None else placement.value,
            shards=shards,
            until_idle=None if until_idle is None else seconds_of(until_idle),
            chart=chart,
        )
    except KeyboardInterrupt:
        print("interrupted: the next run continues after the last committed epoch", file=sys.stderr)
        raise typer.Exit(130) from None
    if code:
        raise typer.Exit(code)


@pipeline_commands.command()
def rescale(
    file: PipelineFile,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards", min=1, help="The number of shards; by default, one for each core."
        ),
    ] = None,
    placement: Annotated[
        PlacementName, typer.Option("--placement", help="The new placement: driver or sharded.")
    ] = PlacementName.SHARDED,
) -> None:
    r"""Move the state of a pipeline to another placement or another number of shards.

    The pipeline must not be running. Views do not change. Spark is not started.

    \b
    tidelog pipeline rescale fraud.toml --shards 8
    tidelog pipeline rescale fraud.toml --placement driver
    """
    from tidelog.cli.pipeline_run import rescale_pipeline

    rescale_pipeline(file, placement.value, shards)


@pipeline_commands.command()
def check(file: PipelineFile) -> None:
    """Check a pipeline: its file, its program and the schemas. Spark is not started."""
    from tidelog.cli.pipeline_run import check_pipeline

    check_pipeline(file)


@pipeline_commands.command()
def status(
    file: PipelineFile,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the progress of a pipeline, also while it runs. Spark is not started."""
    from tidelog.cli.pipeline_status import show_status

    show_status(file, as_json=as_json)


@pipeline_commands.command()
def reset(
    file: PipelineFile,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove the state of a pipeline: rows, checkpoint, quarantine, progress of sinks.

    The next run reads the sources from the beginning. Sources and targets of sinks stay as they
    are. The pipeline must not be running.
    """
    from tidelog.cli.pipeline_admin import reset_pipeline

    reset_pipeline(file, yes=yes)


@pipeline_commands.command()
def refresh(
    file: PipelineFile,
    view: Annotated[
        str | None, typer.Option("--view", help="Compare and write only this view.")
    ] = None,
    master: Master = None,
    remote: Remote = None,
) -> None:
    """Evaluate all views again from the given rows, and write the tables of sinks again.

    Differences are reported. There should be none. The pipeline must not be running.
    """
    from tidelog.cli.pipeline_admin import refresh_pipeline

    refresh_pipeline(file, view, {"master": master, "remote": remote})


@pipeline_commands.command("replay-quarantine")
def replay(
    file: PipelineFile,
    source: Annotated[
        str | None, typer.Option("--source", help="Only rows of this source.")
    ] = None,
    master: Master = None,
    remote: Remote = None,
) -> None:
    """Apply the rows of the quarantine that fit now, as an epoch. The others stay there.

    Rows fit that did not before when the program or the source was changed. The pipeline must not
    be running.
    """
    from tidelog.cli.pipeline_admin import replay_quarantine

    replay_quarantine(file, source, {"master": master, "remote": remote})
