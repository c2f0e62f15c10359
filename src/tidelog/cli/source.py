"""Commands about program text: check, fmt and explain."""

from __future__ import annotations

import sys
from pathlib import Path

from tidelog.errors import UsageError


def check_program(path: Path) -> None:
    """Report the errors in the program at `path`, or that there are none."""
    from tidelog.io.parameters import check_parameters
    from tidelog.logic.program import Program

    program = Program.load(path)
    check_parameters(program)
    counts = [
        f"{len(items)} {one if len(items) == 1 else many}"
        for items, one, many in (
            (program.relations, "relation", "relations"),
            (program.rules, "rule", "rules"),
            (program.strata, "stratum", "strata"),
        )
    ]
    print(f"{path}: fine ({', '.join(counts)})")


def explain_program(
    path: Path, view: str | None, *, plans: bool, engine: str, shards: int | None = None
) -> None:
    """Print how an engine would compute the program at `path`."""
    from tidelog.database.explain import explain
    from tidelog.logic.program import Program

    program = Program.load(path)
    if view is not None:
        program.relation(view)
    details = None
    if engine == "kernel":
        from tidelog.database.explain_kernel import details_without_data

        details = details_without_data(program)
    print(explain(program, engine, view, details, plans=plans))
    if shards is not None:
        from tidelog.sharding.describing import describe
        from tidelog.sharding.layout import lay_out

        print("\n".join(describe(lay_out(program, shards))))


def format_programs(paths: list[Path], *, check_only: bool, to_stdout: bool) -> None:
    """Format programs; with `check_only` only report which ones would change."""
    results = [(path, *_formatted(path)) for path in paths]
    would_change = [path for path, before, after in results if before != after]
    if to_stdout:
        for _, _, after in results:
            sys.stdout.write(after)
    elif check_only:
        for path in would_change:
            print(f"would reformat {path}", file=sys.stderr)
        if would_change:
            sys.exit(1)
    else:
        from tidelog.io.atomic import write_all

        write_all({p: [after.encode()] for p, before, after in results if before != after})
        for path in would_change:
            print(f"reformatted {path}", file=sys.stderr)


def _formatted(path: Path) -> tuple[str, str]:
    """Return the text of the program before and after formatting."""
    from tidelog.lang.diagnostics import Diagnostics
    from tidelog.lang.parser import parse
    from tidelog.lang.preprocess import uses_preprocessor
    from tidelog.lang.printer import format_module
    from tidelog.logic.analyse import read_program
    from tidelog.source import SourceText

    text = read_program(path)
    if uses_preprocessor(text):
        raise UsageError(f"`{path}` has preprocessor lines (#define ..), which fmt would lose")
    diagnostics = Diagnostics()
    module = parse(SourceText(str(path), text), diagnostics)
    diagnostics.raise_if_any()
    return text, format_module(module)
