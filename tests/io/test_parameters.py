"""Parameters of directives, checked for a whole program before it runs."""

from __future__ import annotations

import pytest

from tests.typed_values import relation
from tidelog.errors import ProgramError
from tidelog.io.parameters import check_parameters
from tidelog.logic.program import Directive, DirectiveKind, Program
from tidelog.source import SourceText, Span
from tidelog.values.types import NUMBER

EDGE = relation(NUMBER, name="edge")


def program(*directives: Directive) -> Program:
    return Program("p", "", {}, {"edge": EDGE}, (), (), (), directives, {})


def test_parameters_that_can_work_pass() -> None:
    check_parameters(
        program(
            Directive(DirectiveKind.INPUT, "edge", {"columns": "3"}),
            Directive(DirectiveKind.OUTPUT, "edge", {"IO": "stdout"}),
            Directive(DirectiveKind.PRINTSIZE, "edge", {}),
        )
    )


@pytest.mark.parametrize(
    ("kind", "parameters", "message"),
    [
        (DirectiveKind.INPUT, {"IO": "stdout"}, ".input edge: IO=stdout is not supported"),
        (DirectiveKind.OUTPUT, {"IO": "json"}, ".output edge: IO=json is not supported"),
        (DirectiveKind.OUTPUT, {"columns": "0"}, ".output edge: unknown parameter `columns`"),
    ],
)
def test_each_kind_of_directive_is_checked(
    kind: DirectiveKind, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(ProgramError) as caught:
        check_parameters(program(Directive(kind, "edge", parameters)))
    assert caught.value.diagnostics[0].message.startswith(message)


def test_the_message_begins_with_the_place_of_the_directive() -> None:
    source = SourceText("p.dl", ".input edge(IO=sqlite)")
    span = Span(source, 1, 1, 1, 23)
    with pytest.raises(ProgramError) as caught:
        check_parameters(program(Directive(DirectiveKind.INPUT, "edge", {"IO": "sqlite"}, span)))
    assert str(caught.value).startswith("p.dl:1:1: error: .input edge: IO=sqlite is not supported")
