"""`tidelog state`: inspect, verify, compact and move durable databases."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Inspect and move durable databases: info, verify, compact, export, import, copy.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(metavar="STATE", help="The folder of the database.")]
_ANYWHERE = "a folder, or an address such as s3://bucket/folder."


@app.command()
def info(state: Folder) -> None:
    """Print a summary of a state. It may be in use."""
    from tidelog.persist.state_tools import info as look

    found = look(state)
    manifest = found.manifest
    print(f"{state}: format {manifest.format}, written by Tidelog {manifest.written_by}")
    print(f"program    {manifest.program_name}")
    print(f"epoch      {found.epoch:,}; retained since {found.oldest_epoch:,}")
    print(
        f"snapshot   epoch {manifest.snapshot.epoch:,}, {manifest.snapshot.data_bytes:,} bytes;"
        f" {found.replayed:,} epochs to replay"
    )
    print(f"log        {found.log_bytes:,} bytes in {len(manifest.segments):,} files")
    width = max(map(len, found.rows), default=0)
    for name, rows in found.rows.items():
        print(f"  {name:<{width}}  {rows:,} rows in the snapshot")


@app.command()
def verify(
    state: Folder,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also re-evaluate the program and compare all views."),
    ] = False,
) -> None:
    """Verify all checksums. If a file is damaged, print the place and exit with code 1."""
    from tidelog.persist.state_tools import verify as check

    found = check(state, deep=deep)
    for problem in found.problems:
        print(f"error: {problem}", file=sys.stderr)
    if found.problems:
        raise typer.Exit(1)
    also = "; views equal a fresh evaluation" if deep else ""
    print(
        f"{state}: fine at epoch {found.epoch:,}"
        f" ({found.bytes:,} bytes of arrays, {found.records:,} epochs in the log{also})"
    )
    if found.unfinished:
        print(f"epoch {found.epoch + 1:,} is incomplete; opening the database completes it")


@app.command()
def compact(
    state: Folder,
    retain_epochs: Annotated[
        int, typer.Option("--retain-epochs", min=0, help="Epochs to retain in the log.")
    ] = 0,
) -> None:
    """Merge everything into one snapshot, and drop the log. No process may write meanwhile."""
    from tidelog.persist.state_tools import compact as merge

    merge(state, retain_epochs)


@app.command(name="export")
def export_command(
    state: Folder,
    into: Annotated[str, typer.Argument(metavar="FOLDER", help=f"New: {_ANYWHERE}")],
) -> None:
    """Write the program and the given rows as Arrow files that any version of Tidelog reads."""
    from tidelog.persist.state_tools import export_state

    print(f"{into}: the facts of epoch {export_state(state, into):,}")


@app.command(name="import")
def import_command(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help=f"An export: {_ANYWHERE}")],
    state: Annotated[Path, typer.Argument(metavar="STATE", help="The folder of a new database.")],
) -> None:
    """Make a database from an export. It continues at the exported epoch."""
    from tidelog.persist.state_tools import import_state

    print(f"{state}: epoch {import_state(folder, state):,}")


@app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="STATE", help=f"A database: {_ANYWHERE}")],
    target: Annotated[str, typer.Argument(metavar="COPY", help=f"New: {_ANYWHERE}")],
) -> None:
    """Copy a database, which may be in use. Source or target must be a local folder."""
    from tidelog.persist.state_copy import copy_state

    print(f"{target}: epoch {copy_state(source, target):,}")
