"""`tidelog pipeline`: the commands and their options. What they do is in pipeline_run.py."""

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
    RELATIONAL = "relational"


PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A pipeline file; see docs/pipelines.md.")
]


@pipeline_commands.command()
def run(
    file: PipelineFile,
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous/--once",
            help="Go on until Ctrl-C; or take what is there, and end, which is the default.",
        ),
    ] = False,
    master: Annotated[
        str | None, typer.Option("--master", help="The Spark master; without it, this machine.")
    ] = None,
    remote: Annotated[
        str | None, typer.Option("--remote", help="A Spark Connect server, as sc://host:15002.")
    ] = None,
    placement: Annotated[
        PlacementName | None,
        typer.Option("--placement", help="Where the state is, instead of what the file says."),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option("--shards", min=1, help="How many shards, instead of what the file says."),
    ] = None,
) -> None:
    r"""Run a pipeline. It continues where it ended the last time.

    Ctrl-C finishes the epoch that is under way, and then ends.

    \b
    tidelog pipeline run fraud.toml
    tidelog pipeline run fraud.toml --continuous --master spark://host:7077
    """
    from tidelog.cli.pipeline_run import run_pipeline

    try:
        code = run_pipeline(
            file,
            once=not continuous,
            master=master,
            remote=remote,
            placement=None if placement is None else placement.value,
            shards=shards,
        )
    except KeyboardInterrupt:
        print("interrupted: the next run goes on after the last committed epoch", file=sys.stderr)
        raise typer.Exit(130) from None
    if code:
        raise typer.Exit(code)


@pipeline_commands.command()
def rescale(
    file: PipelineFile,
    shards: Annotated[
        int | None,
        typer.Option("--shards", min=1, help="How many shards; without it, one for each core."),
    ] = None,
    placement: Annotated[
        PlacementName, typer.Option("--placement", help="Where the state goes: driver or sharded.")
    ] = PlacementName.SHARDED,
) -> None:
    r"""Move the state of a pipeline between placements, and to another number of shards.

    The pipeline must not be running. Views stay as they are. Spark is not started.

    \b
    tidelog pipeline rescale fraud.toml --shards 8
    tidelog pipeline rescale fraud.toml --placement driver
    """
    from tidelog.cli.pipeline_run import rescale_pipeline

    rescale_pipeline(file, placement.value, shards)


@pipeline_commands.command()
def check(file: PipelineFile) -> None:
    """Look for mistakes in a pipeline: its file, its program, and schemas. Spark is not started."""
    from tidelog.cli.pipeline_run import check_pipeline

    check_pipeline(file)


@pipeline_commands.command()
def status(file: PipelineFile) -> None:
    """Tell how far a pipeline has come, also while it runs. Spark is not started."""
    from tidelog.cli.pipeline_run import show_status

    show_status(file)
