"""`tidelog`: the commands, their options and exit codes.

Exit codes: 0 success; 1 an error in the program or the data; 2 wrong usage; 130 interrupted.
Messages are printed to standard error. Commands import what they need when they run, so that
`--help` is fast.
"""

from __future__ import annotations

import atexit
import gc
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli import state
from tidelog.cli.pipeline import pipeline_commands
from tidelog.errors import TidelogError, UsageError

app = typer.Typer(
    name="tidelog",
    help="Datalog views that are maintained while their data changes.",
    epilog="A first program: examples/reach. The tutorial: docs/tutorial.md.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(state.app, name="state")
app.add_typer(pipeline_commands, name="pipeline")


class EngineName(StrEnum):
    """The engines that `run` can use."""

    REFERENCE = "reference"
    KERNEL = "kernel"


class ScaleName(StrEnum):
    """How much `bench` measures."""

    SMALL = "small"
    FULL = "full"


ProgramFile = Annotated[
    Path, typer.Argument(metavar="PROGRAM", help="A program: Datalog in Soufflé's dialect.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        from tidelog import __version__

        typer.echo(f"tidelog {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of all commands."""


@app.command()
def run(
    program: ProgramFile,
    facts: Annotated[
        Path, typer.Option("-F", "--facts", help="The folder of the .facts files.")
    ] = Path(),
    output: Annotated[
        str,
        typer.Option("-D", "--output", help="The folder for results; - prints them instead."),
    ] = ".",
    epochs: Annotated[
        Path | None,
        typer.Option(
            "--epochs",
            help="A folder of epochs, applied in name order. An epoch is a folder of"
            " <relation>.changes files: lines of + or - and a row, separated by tabs.",
        ),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="The engine to run on.")
    ] = EngineName.KERNEL,
    stats: Annotated[
        bool,
        typer.Option(
            "--stats", help="Print sizes, times and what each epoch did to standard error."
        ),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            help="How many threads join large relations; 0 for all cores, as without the option"
            " and TIDELOG_THREADS.",
        ),
    ] = None,
) -> None:
    r"""Evaluate a program on facts, then apply epochs of changes.

    Every relation with an .output directive is written to <relation>.csv, sorted. With --epochs
    the net changes of each epoch are written to changes/<epoch>/<relation>.changes. If there is
    any error, nothing is written.

    \b
    tidelog run reach.dl -F facts/ -D out/
    tidelog run reach.dl -F facts/ -D out/ --epochs epochs/ --stats
    """
    # Evaluating makes many objects and few cycles: searching for cycles took a tenth of the time.
    gc.set_threshold(50_000, 20, 20)
    from tidelog.cli.run import run_program

    try:
        run_program(program, facts, output, epochs, stats, engine.value, threads)
    except KeyboardInterrupt:
        # Caught here, because typer would end the process without a message.
        print("interrupted: nothing was written", file=sys.stderr)
        raise typer.Exit(130) from None


@app.command()
def query(
    program: ProgramFile,
    body: Annotated[
        str, typer.Argument(metavar="BODY", help="A rule body, such as 'reach(\"a\", x)'.")
    ],
    facts: Annotated[
        Path, typer.Option("-F", "--facts", help="The folder of the .facts files.")
    ] = Path(),
    headers: Annotated[
        bool, typer.Option("--headers", help="Print the names of the variables first.")
    ] = False,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="The engine to run on.")
    ] = EngineName.KERNEL,
) -> None:
    r"""Print the rows that satisfy a rule body: its variables, separated by tabs.

    Only what the question needs is computed, for the values that it binds. A body without variables
    prints () if it holds.

    \b
    tidelog query reach.dl 'reach("Aden", x)' -F facts/
    tidelog query reach.dl 'road(x, y), !road(y, x)' -F facts/ --headers
    """
    from tidelog.cli.query import ask_program

    try:
        ask_program(program, body, facts, engine.value, headers=headers)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(130) from None


@app.command()
def check(program: ProgramFile) -> None:
    """Parse and analyse a program, and print every mistake with its place and likely fix."""
    from tidelog.cli.source import check_program

    check_program(program)


@app.command()
def fmt(
    programs: Annotated[
        list[Path], typer.Argument(metavar="PROGRAM...", help="Programs to format.")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 if something would change.")
    ] = False,
    stdout: Annotated[
        bool, typer.Option("--stdout", help="Print the formatted text instead of writing it back.")
    ] = False,
) -> None:
    """Format programs in place. Comments and meaning are preserved."""
    from tidelog.cli.source import format_programs

    format_programs(programs, check_only=check, to_stdout=stdout)


@app.command()
def explain(
    program: ProgramFile,
    view: Annotated[
        str | None, typer.Argument(metavar="[VIEW]", help="Only this view and what it needs.")
    ] = None,
    plans: Annotated[
        bool, typer.Option("--plans", help="Also show how each rule is joined, step by step.")
    ] = False,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="The engine that would run it.")
    ] = EngineName.KERNEL,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards", min=1, help="Also show how rows are distributed over this many shards."
        ),
    ] = None,
    dot: Annotated[
        bool,
        typer.Option(
            "--dot", help="Print a graph for Graphviz instead: the join trees of VIEW, or strata."
        ),
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Write a picture of the join trees of VIEW."),
    ] = None,
) -> None:
    r"""Show how a program is computed: strata, how each is maintained and why, and its joins.

    Plans assume that all relations have the same size, because there is no data here. For the
    plans of a database with its data, see `Database.explain` in Python.

    \b
    tidelog explain reach.dl
    tidelog explain reach.dl reach --plans
    tidelog explain fraud.dl tried --svg tried.svg
    """
    if dot or svg is not None:
        from tidelog.cli.pictures import draw_program

        draw_program(program, view, dot=dot, svg=svg)
        return
    from tidelog.cli.source import explain_program

    explain_program(program, view, plans=plans, engine=engine.value, shards=shards)


@app.command()
def why(
    program: ProgramFile,
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The relation of the row.")],
    values: Annotated[
        str, typer.Argument(metavar="VALUES", help="The row, as a fact has it: '\"a\", 1'.")
    ] = "",
    facts: Annotated[
        Path, typer.Option("-F", "--facts", help="The folder of the .facts files.")
    ] = Path(),
    is_missing: Annotated[
        bool, typer.Option("--not", help="Show why the row is not there.")
    ] = False,
    depth: Annotated[
        int,
        typer.Option("--depth", min=1, help="With --not: how far to follow rows that are missing."),
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Write it as a picture, and print nothing."),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="The engine to run on.")
    ] = EngineName.KERNEL,
) -> None:
    r"""Show why a row is in a view: a proof from facts, rule by rule. Or why it is not.

    \b
    tidelog why reach.dl reach '"Aden", "Cove"' -F facts/
    tidelog why reach.dl reach '"Cove", "Elm"' -F facts/ --not
    """
    from tidelog.cli.why import why_row

    why_row(
        program, view, values, facts, engine.value,
        is_missing=is_missing, depth=depth, as_json=as_json, svg=svg,
    )  # fmt: skip


@app.command()
def bench(
    suites: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SUITE...]", help="Suites to run; all if none is named."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="The folder with the facts that some suites need."),
    ] = None,
    scale: Annotated[
        ScaleName,
        typer.Option(
            "--scale", help="small: to check that everything works; full: the sizes of the targets."
        ),
    ] = ScaleName.SMALL,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Measure other engines, if installed.")
    ] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all results to this file, as JSON.")
    ] = None,
    markdown_file: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            help="Also write the tables to this file, as Markdown: between its markers, if it"
            " has any.",
        ),
    ] = None,
    plot_file: Annotated[
        Path | None,
        typer.Option("--plot", help="Also draw the points of the suite to this file, as SVG."),
    ] = None,
    list_suites: Annotated[
        bool, typer.Option("--list", help="List the suites without running them.")
    ] = False,
) -> None:
    r"""Measure Tidelog and compare it with other engines.

    Every measurement runs in a process of its own. A measurement that is not possible, because
    facts or an engine are missing, is listed with the reason.

    \b
    tidelog bench closure join
    tidelog bench --scale full --data facts/ --json results.json
    """
    from tidelog.cli.bench import list_them, run_bench

    if list_suites:
        list_them()
        return
    try:
        run_bench(suites or [], data, scale.value, peers, json_file, markdown_file, plot_file)
    except KeyboardInterrupt:
        print("interrupted: the results of earlier suites are complete", file=sys.stderr)
        raise typer.Exit(130) from None


@app.command()
def warm(
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False,
) -> None:
    """Compile the kernels, so that the first run need not. They are kept for later runs."""
    from tidelog.cli.compiling import warm_kernels

    try:
        warm_kernels(quiet)
    except KeyboardInterrupt:
        print("interrupted: the kernels compiled so far are kept", file=sys.stderr)
        raise typer.Exit(130) from None


def main() -> None:
    """Run the command line and exit."""
    # Before Python ends, it searches all objects for cycles to destroy. A large run would wait for
    # that for a third of a second, after everything is written.
    atexit.register(gc.freeze)
    try:
        app()
    except UsageError as error:
        _fail(error, 2)
    except TidelogError as error:
        _fail(error, 1)
    except BrokenPipeError:
        # The reader of our output has closed the pipe (`tidelog .. | head`): not an error.
        sys.stderr.close()
        sys.exit(0)


def _fail(error: TidelogError, code: int) -> None:
    from tidelog.spark.environment import scrub

    text = scrub(str(error))
    print(
        text if " error: " in text.split("\n", maxsplit=1)[0] else f"error: {text}", file=sys.stderr
    )
    sys.exit(code)
