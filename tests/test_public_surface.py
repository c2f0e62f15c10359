"""The public names, and what importing them costs: nothing heavy is loaded before it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

import tidelog

HEAVY = {"lark", "networkx", "numba", "numpy", "pandas", "polars", "pyarrow", "pydantic"}

HELP = """
import sys
from tidelog.cli.main import main
sys.argv = ["tidelog", *"{words}".split()]
try:
    main()
except SystemExit as end:
    assert not end.code
"""

PUBLIC = [
    "__version__",
    "Change",
    "DataError",
    "Database",
    "DatabaseReader",
    "DeadLetter",
    "Diagnostic",
    "EpochReport",
    "EvaluationError",
    "Event",
    "FactsError",
    "FunctionalConflict",
    "Group",
    "JsonLines",
    "LayerReport",
    "LimitError",
    "Opened",
    "Past",
    "Program",
    "ProgramError",
    "Progress",
    "Proof",
    "Semigroup",
    "SetFunction",
    "StateError",
    "StateReport",
    "TidelogError",
    "Transaction",
    "TriggerFailure",
    "TriggerHandle",
    "TriggerStatus",
    "UsageError",
    "View",
    "Webhook",
    "WhyNot",
    "aggregate",
    "forget_aggregate",
    "forget_function",
    "function",
    "open_reader",
]


def loaded_after(code: str) -> set[str]:
    """Return the heavy packages that a new interpreter has loaded after running `code`."""
    report = "import sys; sys.stderr.write('\\n' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}\n{report}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return HEAVY & set(done.stderr.rpartition("\n")[2].split())


def test_the_public_names() -> None:
    assert tidelog.__all__ == PUBLIC
    assert dir(tidelog) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(tidelog, name) is not None
    assert not hasattr(tidelog, "Databse")


def test_importing_tidelog_is_light() -> None:
    assert loaded_after("import tidelog") == set()


def test_the_errors_are_light() -> None:
    assert loaded_after("from tidelog import ProgramError, UsageError") == set()


@pytest.mark.parametrize("words", ["--help", "run --help", "check --help"])
def test_help_is_light(words: str) -> None:
    assert loaded_after(HELP.format(words=words)) == set()


@pytest.mark.parametrize("command", ["check", "fmt --check"])
def test_commands_that_need_no_engine_load_the_parser_only(command: str, tmp_path: Path) -> None:
    program = tmp_path / "p.dl"
    program.write_text(".decl p(x: number)\np(1).\np(x) :- p(x).\n")
    assert loaded_after(HELP.format(words=f"{command} {program}")) == {"lark"}


def test_the_reference_engine_needs_no_kernels() -> None:
    code = "import tidelog; tidelog.Database('.decl p(x: number) p(1).', engine='reference')"
    assert loaded_after(code) == {"lark"}


def test_the_check_sees_what_is_loaded() -> None:
    assert "lark" in loaded_after("import tidelog; tidelog.Program.parse('.decl p()')")
