"""Programs in files that include other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog import Program, ProgramError
from tidelog.reference import evaluate


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".dl").write_text(text)
    return folder / "main.dl"


@pytest.mark.parametrize(
    "line", ['.include "lib/a.dl"', '#include "lib/a.dl"', "#include <lib/a.dl>"]
)
def test_included_text_takes_the_place_of_the_line(tmp_path: Path, line: str) -> None:
    path = write(
        tmp_path,
        main=f"#define N 2\n{line} // more\nq(x) :- p(x).\n.decl q(x: number)\n",
        lib__a='.include "b.dl"\np(N).\n',
        lib__b=".decl p(x: number)\n#define M 3\np(M).\n",
    )
    assert evaluate(Program.load(path), {})["q"] == {(2,), (3,)}


def test_a_guard_and_a_cycle(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        main='#include "a.dl"\n#include "a.dl"\n#include "main.dl"\np(1).\n',
        a='#ifndef A\n#define A\n.decl p(x: number)\n#endif\n#include "a.dl"\n',
    )
    assert evaluate(Program.load(path), {})["p"] == {(1,)}


def test_an_include_in_a_comment_is_none(tmp_path: Path) -> None:
    path = write(tmp_path, main='/*\n#include "none.dl"\n*/\n.decl p(x: number)\np(1).\n')
    program = Program.load(path)
    assert evaluate(program, {})["p"] == {(1,)}
    assert program.text == path.read_text()


def test_mistakes_are_reported_where_they_are(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        main='.decl q(x: number)\n.include "lib.dl"\nq("a").\n',
        lib=".decl p(x: number)\n\np(1.5).\n",
    )
    with pytest.raises(ProgramError) as caught:
        Program.load(path)
    places = [str(found.span) for found in caught.value.diagnostics]
    assert places == [f"{tmp_path / 'lib.dl'}:3:3", f"{path}:3:3"]
    assert "  3 | p(1.5)." in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    path = write(tmp_path, main='.include "lib.dl"\nq(x) :- p(x).\n')
    with pytest.raises(ProgramError) as caught:
        Program.load(path)
    (found,) = caught.value.diagnostics
    assert (found.code, str(found.span)) == ("preprocessor", f"{path}:1:10")
