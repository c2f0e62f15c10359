"""Runs the pages of the documentation: what a page shows is what happens.

Fenced blocks are taken in order, in one folder and one Python namespace for each page. What is done
with a block is said by the words after its backquotes:

    datalog                  the program must check without a mistake
    datalog file=NAME        ... and is written to the page's folder
    datalog shows=RELATION   ... and is evaluated; the next block, `tsv`, is the relation's rows
    datalog error            it must not check; the next block, `text`, is the exact message
    datalog fails            it checks, but not on its data; the next block is the exact message
    text file=NAME           written to the page's folder, and so for `tsv` (with real tabs)
    python                   executed; lines behind `>>>` are compared as a doctest
    python file=NAME         written to the page's folder
    console                  the commands behind `$ ` are run and their output compared: standard
                             output, then standard error; `...` as the last line stands for any rest
    console exit=N           ... and the last command ends with this exit code
    sh no-run                not executed; for `make` only, which would run these tests again

Commands are `tidelog ..`, `cat FILE..`, `ls FOLDER` and `python FILE`, without a shell. The folder
`examples` of the project is there. Every other block is an error.

`python tests/docs/pages.py PAGE..` writes into the pages what happens now, for all but doctests.
Read the difference before you commit it.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
_FENCE = re.compile(r"^(\s*)```+(.*)$")
_SHELL_SIGNS = set("|<>;&$`*?")


@dataclass
class Block:
    """One fenced block: its words, its text and the line on which the text starts."""

    words: list[str]
    line: int
    lines: list[str] = field(default_factory=list)

    @property
    def language(self) -> str:
        return self.words[0] if self.words else ""

    @property
    def flags(self) -> set[str]:
        return {word for word in self.words[1:] if "=" not in word}

    @property
    def options(self) -> dict[str, str]:
        return dict(word.split("=", 1) for word in self.words[1:] if "=" in word)

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


@dataclass
class Shown:
    """What a block says that happens, and what does."""

    block: Block
    happens: str

    @property
    def is_right(self) -> bool:
        return self.block.text == self.happens


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of a page."""
    blocks: list[Block] = []
    current: Block | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        fence = _FENCE.match(line)
        if current is None and fence is not None:
            assert not fence[1], f"line {number}: a fence must not be indented"
            current = Block(fence[2].split(), number + 1)
        elif current is not None and fence is not None:
            blocks.append(current)
            current = None
        elif current is not None:
            current.lines.append(line)
    assert current is None, f"the block on line {current.line} has no end"
    return blocks


class Runner:
    """Executes the blocks of one page in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._namespace: dict[str, object] = {"__name__": "__main__"}
        self._expected: str | None = None  # what the next block has to show
        (folder / "examples").symlink_to(ROOT / "examples")

    def run(self, blocks: list[Block]) -> Iterator[Shown]:
        """Yield what each block shows; raise AssertionError for what cannot be shown."""
        for block in blocks:
            if self._expected is not None:
                assert block.language in ("text", "tsv"), _at(block, "the result is missing")
                assert block.words[1:] == [], _at(block, "this block is a result")
                yield Shown(block, self._expected)
                self._expected = None
                continue
            yield from self._block(block)
        assert self._expected is None, "the result of the last block is missing"

    def _block(self, block: Block) -> Iterator[Shown]:
        match block.language:
            case "datalog":
                self._datalog(block)
            case "text" | "tsv" if "file" in block.options:
                self._write(block)
            case "python" if "file" in block.options:
                self._write(block)
            case "python":
                self._python(block)
            case "console":
                yield from self._console(block)
            case "sh" if block.flags == {"no-run"}:
                for line in filter(None, block.lines):
                    assert line.startswith("make "), _at(block, f"`{line}` is not executed")
            case _:
                raise AssertionError(_at(block, f"a block that is not executed: {block.words}"))

    def _write(self, block: Block) -> Path:
        path = self._folder / block.options["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return path

    def _datalog(self, block: Block) -> None:
        import tidelog
        from tidelog.io.parameters import check_parameters
        from tidelog.io.results import format_rows

        if "file" in block.options:
            self._write(block)
        try:
            program = tidelog.Program.parse(block.text, block.options.get("file", "program.dl"))
            check_parameters(program)
        except tidelog.ProgramError as error:
            assert "error" in block.flags, _at(block, f"this does not check:\n{error}")
            self._expected = f"{error}\n"
            return
        assert "error" not in block.flags, _at(block, "this has no mistake")
        if "fails" in block.flags:
            try:
                tidelog.Database(program)
            except tidelog.DataError as error:
                self._expected = f"{error}\n"
                return
            raise AssertionError(_at(block, "this evaluates without an error"))
        if "shows" in block.options:
            name = block.options["shows"]
            rows = tidelog.Database(program).view(name)
            self._expected = format_rows(rows, program.relations[name], program.records, {})

    def _python(self, block: Block) -> None:
        with contextlib.chdir(self._folder):
            if not any(line.startswith(">>> ") for line in block.lines):
                exec(compile(block.text, f"line {block.line}", "exec"), self._namespace)
                return
            said: list[str] = []
            runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
            parser = doctest.DocTestParser()
            test = parser.get_doctest(block.text, {}, "page", "page", block.line - 1)
            test.globs = self._namespace
            runner.run(test, out=said.append, clear_globs=False)
            assert not said, "".join(said)

    def _console(self, block: Block) -> Iterator[Shown]:
        assert block.lines and block.lines[0].startswith("$ "), _at(block, "no command")
        commands: list[list[str]] = []
        for line in block.lines:
            if line.startswith("$ "):
                commands.append([])
            commands[-1].append(line)
        happens: list[str] = []
        code = 0
        for line, *said in commands:
            assert code == 0, _at(block, "only the last command may fail")
            output, code = self._command(line.removeprefix("$ "))
            happens.append(line)
            shown = output.removesuffix("\n").split("\n") if output else []
            if said and said[-1] == "..." and shown[: len(said) - 1] == said[:-1]:
                shown = said
            happens += shown
        wanted = int(block.options.get("exit", "0"))
        assert code == wanted, _at(block, f"exit code {code}, not {wanted}:\n" + "\n".join(happens))
        yield Shown(block, "".join(f"{line}\n" for line in happens))

    def _command(self, line: str) -> tuple[str, int]:
        """Return the output and the exit code of a command."""
        name, *words = shlex.split(line)
        unquoted = re.sub(r"'[^']*'", "", line)
        assert not _SHELL_SIGNS & set(unquoted), f"`{line}` needs a shell"
        if name == "tidelog":
            return _tidelog(words, self._folder)
        paths = [self._folder / word for word in words]
        match name:
            case "cat":
                return "".join(path.read_text(encoding="utf-8") for path in paths), 0
            case "ls":
                (folder,) = paths
                names = sorted(path.name for path in folder.iterdir())
                return "".join(f"{name}\n" for name in names), 0
            case "python":
                done = subprocess.run(
                    [sys.executable, *words], cwd=self._folder, capture_output=True, text=True,
                    encoding="utf-8", check=False, timeout=60,
                )  # fmt: skip
                return done.stdout + done.stderr, done.returncode
        raise AssertionError(f"there is no command `{name}` on a page")


def _tidelog(words: list[str], folder: Path) -> tuple[str, int]:
    """Run the command line in this process: a new one for each command would take minutes."""
    from tidelog.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["tidelog", *words]),
        mock.patch.dict(os.environ, {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    return out.getvalue() + err.getvalue(), code if isinstance(code, int) else 0


def _at(block: Block, reason: str) -> str:
    return f"block on line {block.line}: {reason}"


def update(page: Path) -> None:
    """Write what happens into `page`."""
    lines = page.read_text(encoding="utf-8").split("\n")
    with tempfile.TemporaryDirectory() as folder:
        shown = list(Runner(Path(folder)).run(blocks_of("\n".join(lines))))
    for one in reversed(shown):
        start = one.block.line - 1
        if not one.is_right:
            print(f"{page}:{one.block.line}")
        happens = one.happens.removesuffix("\n").split("\n") if one.happens else []
        lines[start : start + len(one.block.lines)] = happens
    page.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        update(Path(name))
