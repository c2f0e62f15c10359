"""Proofs as text: an indented tree, in which each row is explained once.

    reach("a", "c")
    │   by reach(x, z) :- reach(x, y), edge(y, z).  (reach.dl:4:1)
    │   with x = "a", z = "c", y = "b"
    ├── reach("a", "b")
    │   │   by reach(x, y) :- edge(x, y).  (reach.dl:3:1)
    │   │   with x = "a", y = "b"
    │   └── edge("a", "b")   given
    └── edge("b", "c")   given

Proofs can be thousands of rows deep, so nothing here is recursive, and very deep ones are cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.proof.gaps import (
    BlockingRow,
    FailedComputation,
    FailedCondition,
    Gap,
    HeldStep,
    MissingRow,
    NotKept,
    OtherAggregate,
    OtherHead,
    RowHeld,
    RuleGap,
    WhyNot,
)
from tidelog.proof.tree import Absence, AggregateTaken, ConditionHeld, Premise, Proof, ProofStep

DEEPEST = 40  # levels of the tree that are shown: lines get wider with each


def proof_text(proof: Proof, depth: int = DEEPEST) -> str:
    """Return a proof as text, down to a depth."""
    return "\n".join(_lines(proof, depth))


def _lines(root: Proof, depth: int) -> Iterator[str]:
    seen: set[int] = set()
    # What is left to show, the next step last: the step, the text before it, and its depth.
    waiting: list[tuple[ProofStep, str, str, int]] = [(Premise(root), "", "", 0)]
    while waiting:
        step, first, rest, level = waiting.pop()
        if not isinstance(step, Premise):
            yield from _indented(_step_lines(step), first, rest)
            continue
        proof = step.proof
        is_known = id(proof) in seen and bool(proof.steps)
        seen.add(id(proof))
        if proof.origin != "rule" or is_known or level >= depth:
            yield f"{first}{proof.text}   {_remark(proof, is_known=is_known)}"
            continue
        yield f"{first}{proof.text}"
        before = rest + ("│   " if proof.steps else "    ")
        assert proof.rule is not None
        yield f"{before}by {proof.rule.text}  ({proof.span})"
        if proof.value_texts:
            shown = ", ".join(f"{name} = {text}" for name, text in proof.value_texts.items())
            yield f"{before}with {shown}"
        for place, below in reversed(list(enumerate(proof.steps))):
            is_last = place == len(proof.steps) - 1
            waiting.append(
                (
                    below,
                    rest + ("└── " if is_last else "├── "),
                    rest + ("    " if is_last else "│   "),
                    level + 1,
                )
            )


def _remark(proof: Proof, *, is_known: bool) -> str:
    if proof.origin == "given":
        return "given"
    if proof.origin == "fact":
        return f"a fact of the program  ({proof.span})"
    if proof.origin == "round":
        return "found in an earlier round, from rows that were not kept"
    if is_known:
        return "see above"
    return f"… from {sum(1 for _ in proof.nodes()) - 1} more rows"


def _step_lines(step: ProofStep) -> list[str]:
    match step:
        case Absence():
            return [f"{step.text}   no such row"]
        case ConditionHeld():
            return [step.with_values]
        case AggregateTaken():
            rows = f"{step.size:,} row{'s' * (step.size != 1)}"
            lines = [f"{step.text}   {step.value_text}, of {rows}"]
            lines += [f"    {', '.join(parts)}" for parts in step.first]
            more = step.size - len(step.first)
            return [*lines, f"    … and {more:,} more"] if more else lines
        case Premise():
            raise AssertionError("a premise is a row of its own")


def _indented(lines: list[str], first: str, rest: str) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{rest if number else first}{line}"


# --- what is missing --------------------------------------------------------------------------


def why_not_text(found: WhyNot) -> str:
    """Return what is missing as text."""
    return "\n".join(_missing_lines(found))


def _missing_lines(found: WhyNot) -> Iterator[str]:
    if found.proof is not None:
        yield f"{found.text} is in `{found.relation}`:"
        yield str(found.proof)
        return
    yield f"{found.text}   is not in `{found.relation}`"
    if not found.rules:
        yield f"└── {not_given(found)}"
        return
    yield f"├── {found.not_kept or 'it is not given'}"
    for place, gap in enumerate(found.rules):
        is_last = place == len(found.rules) - 1
        lines = list(_gap_lines(gap))
        yield from _indented(lines, "└── " if is_last else "├── ", "    " if is_last else "│   ")


def not_given(found: WhyNot) -> str:
    """Return why a row is missing that no rule derives."""
    return found.not_kept or "it is not given, and no rule derives it"


def _gap_lines(found: RuleGap) -> Iterator[str]:
    yield f"by {found.rule.text}  ({found.span})"
    if found.value_texts:
        shown = ", ".join(f"{name} = {text}" for name, text in found.value_texts.items())
        yield f"│   with {shown}"
    for step in found.held:
        yield from _indented(_held_lines(step), "├── ", "│   ")
    more = [f"not tried: {text}" for text in found.untried]
    if not found.is_complete:
        more.append("there are more matches than were tried")
    before = ("├── ", "│   ") if more else ("└── ", "    ")
    yield from _indented(gap_lines(found.gap), *before)
    for place, line in enumerate(more):
        yield f"{'└── ' if place == len(more) - 1 else '├── '}{line}"


def _held_lines(step: HeldStep) -> list[str]:
    if isinstance(step, RowHeld):
        return [f"{step.text}   holds"]
    return _step_lines(step)


def gap_lines(gap: Gap) -> list[str]:
    """Return what does not hold as text, line by line."""
    match gap:
        case MissingRow(text=text, deeper=deeper):
            below = [] if deeper is None else list(_missing_lines(deeper))[1:]
            return [f"{text}   missing", *below]
        case BlockingRow(text=text, row_text=row_text):
            return [f"{text}   but there is {row_text}"]
        case FailedCondition(text, with_values):
            return [f"{with_values}   false" + (f": {text}" if text != with_values else "")]
        case OtherAggregate(text, wanted, value_text):
            has = "it has no value" if value_text is None else f"it is {value_text}"
            return [f"{text}   {has}, not {wanted}"]
        case FailedComputation(text, reason):
            return [f"{text}   cannot be computed: {reason}"]
        case OtherHead(text):
            return [f"{text}   is another head"]
        case NotKept(text):
            return [text]
