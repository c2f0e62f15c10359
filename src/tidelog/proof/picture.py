"""Proofs, and what is missing, as SVG pictures: drawn as join trees are (plan/theta/svg.py)."""

from __future__ import annotations

from tidelog.plan.theta.picture import PictureNode
from tidelog.plan.theta.svg import Drawing
from tidelog.proof.gaps import RowHeld, RuleGap, WhyNot
from tidelog.proof.text import gap_lines, not_given
from tidelog.proof.tree import Absence, AggregateTaken, ConditionHeld, Premise, Proof, ProofStep

DEEPEST = 12  # levels of a tree that are drawn
_CONDITIONS = "conditions, negations and aggregates"


def proof_svg(proof: Proof) -> str:
    """Return a proof as a picture: rules are numbered, and the numbers are at their rows."""
    drawing = Drawing(f"Why {proof.text}")
    numbers: dict[str, int] = {}
    for node in proof.nodes():
        if node.rule is not None and node.rule.text not in numbers:
            numbers[node.rule.text] = len(numbers) + 1
    for text, number in numbers.items():
        drawing.titles(f"[{number}] {text}", "")
    drawing.tree(_drawn(proof, numbers, set(), 0))
    drawing.gap()
    if any(not isinstance(step, Premise) for node in proof.nodes() for step in node.steps):
        drawing.legend(_CONDITIONS)
    return drawing.svg()


def _drawn(proof: Proof, numbers: dict[str, int], seen: set[int], depth: int) -> PictureNode:
    if proof.rule is None:
        return PictureNode(proof.text, True, False, "", ())
    text = f"{proof.text} [{numbers[proof.rule.text]}]"
    if id(proof) in seen or depth >= DEEPEST:
        return PictureNode(f"{text} …", False, False, "", ())
    seen.add(id(proof))
    children = tuple(_step(step, numbers, seen, depth + 1) for step in proof.steps)
    return PictureNode(text, False, False, "", children)


def _step(step: ProofStep, numbers: dict[str, int], seen: set[int], depth: int) -> PictureNode:
    match step:
        case Premise(proof):
            return _drawn(proof, numbers, seen, depth)
        case Absence(text=text) | ConditionHeld(with_values=text):
            return PictureNode(text, True, True, "", ())
        case AggregateTaken(text, _, value_text, size):
            return PictureNode(f"{text}: {value_text}, of {size:,}", True, True, "", ())


def why_not_svg(found: WhyNot) -> str:
    """Return what is missing as a picture, with a tree for each rule."""
    if found.proof is not None:
        return proof_svg(found.proof)
    drawing = Drawing(f"Why not {found.text}")
    if not found.rules:
        drawing.titles(found.text, not_given(found))
    for gap in found.rules:
        drawing.titles(gap.rule.text, "; ".join(line.strip() for line in gap_lines(gap.gap)[:1]))
        drawing.tree(_gap_tree(found, gap))
        drawing.gap()
    drawing.legend("what does not hold")
    return drawing.svg()


def _gap_tree(found: WhyNot, gap: RuleGap) -> PictureNode:
    held = [
        PictureNode(
            step.with_values if isinstance(step, ConditionHeld) else step.text,
            isinstance(step, RowHeld), False, "", (),
        )
        for step in gap.held
    ]  # fmt: skip
    missing = PictureNode(gap_lines(gap.gap)[0], True, True, "", ())
    return PictureNode(found.text, False, False, "", (*held, missing))
