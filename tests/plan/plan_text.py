"""Lowered programs and join orders as text, for the golden fixtures of plan/.

What is looked at are the fields of rules, layers and steps, not the names of their classes, and
relations that lowering has made are numbered as they come. So the text stays as it is when names
inside plan/ change, and is another when a plan is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidelog.logic.program import Program
from tidelog.plan.lower import lower
from tidelog.plan.order import Orderer, Stats
from tidelog.plan.steps import Seek

# --- rules --------------------------------------------------------------------------------------


class RuleText:
    """The parts of one lowered rule as text."""

    def __init__(self, rule: Any, arities: Mapping[str, int]) -> None:
        self._rule, self._arities = rule, arities

    def slot(self, slot: str | None) -> str:
        """Return a slot: a constant by its value."""
        constant = self._rule.constants.get(slot)
        return "_" if slot is None else slot if constant is None else repr(constant.value)

    def slots(self, slots: Sequence[str | None]) -> str:
        return ", ".join(map(self.slot, slots))

    def atom(self, atom: Any) -> str:
        """Return an atom; one without columns has a slot all the same, which is left out."""
        args = atom.args if self._arities.get(atom.relation, 1) else ()
        return f"{'!' * atom.negated}{atom.relation}({self.slots(args)})"

    def condition(self, condition: Any) -> str:
        """Return a condition. Python computes what follows `python`; what ends in `?` may fail."""
        fields = set(vars(condition))
        if {"into", "value"} <= fields:
            value = condition.value
            if isinstance(value, str):
                return f"{self.slot(condition.into)} = {self.slot(value)}"
            text = f"{value.op}({self.slots(value.args)}){'?' * value.fallible}"
            return f"{self.slot(condition.into)} = {'python ' * value.external}{text}"
        if {"left", "right"} <= fields:
            op = condition.op.value
            return f"{self.slot(condition.left)} {op} {self.slot(condition.right)}"
        if "record" in fields:
            return f"[{self.slots(condition.into)}] = {self.slot(condition.record)}"
        if "start" in fields:
            bounds = [condition.start, condition.stop]
            bounds += [] if condition.step is None else [condition.step]
            return f"{self.slot(condition.into)} in range({self.slots(bounds)})"
        test = f"{condition.op}({self.slots(condition.args)}){'?' * condition.fallible}"
        return f"python {'!' * condition.negated}{test}"

    def rule(self) -> str:
        """Return the whole rule."""
        parts = [self.atom(atom) for atom in self._rule.atoms]
        parts += [self.condition(condition) for condition in self._rule.conditions]
        body = f" :- {', '.join(parts)}" if parts else ""
        return f"{self.atom(self._rule.head)}{body}."


# --- lowered programs ---------------------------------------------------------------------------


def lowered_text(program: Program) -> str:
    """Return the layers of a lowered program, from the first to the last.

    Relations without rules are left out.
    """
    lowered = lower(program)
    arities = {name: len(types) for name, types in lowered.relations.items()}
    lines: list[str] = []
    for layer in lowered.layers:
        lines += _layer(layer, arities)
    return _renumbered("\n".join(lines))


def _layer(layer: Any, arities: Mapping[str, int]) -> Iterator[str]:
    if not (layer.rules or layer.aggregation or layer.recompute):
        return
    words = ", ".join(
        word
        for word, holds in (
            ("recursive", layer.recursive),
            ("evaluated again by the reference", layer.recompute is not None),
            (f"errors of {layer.errors_of}", layer.errors_of is not None),
        )
        if holds
    )
    yield f"{', '.join(layer.relations)}:{' ' * bool(words)}{words}"
    for rule in layer.rules:
        yield f"    {RuleText(rule, arities).rule()}"
    for part in layer.aggregation.each if layer.aggregation else ():
        yield f"    {_aggregate(part)}"


def _aggregate(part: Any) -> str:
    def columns(numbers: Sequence[int]) -> str:
        return f"({', '.join(map(str, numbers))})"

    text = f"{part.op} over {part.source} by {columns(part.group)}"
    if part.target is not None:
        text += f" of column {part.target}: {part.target_type}"
    if part.order:
        text += f" ordered by {columns(part.order)}"
    if part.failed is not None:
        text += f", failures in {part.failed}"
    return f"{text} -> {part.result_type}"


def _renumbered(text: str) -> str:
    """Return the text with made relations numbered by their first occurrence."""
    numbers: dict[str, str] = {}
    return re.sub(
        r"(?<=@)\d+", lambda found: numbers.setdefault(found[0], str(len(numbers) + 1)), text
    )


# --- join orders --------------------------------------------------------------------------------

ROWS, DISTINCT = 10_000.0, 1_000.0
DRIVER = 10.0


def order_text(program: Program, options: Mapping[str, str]) -> str:
    """Return the steps in which the last rule of a program is joined, and the orders they read.

    The options: `from: edge` drives the join by ten changes of the first atom of that relation,
    `from: head` by ten rows of the head; `rows: edge 100 (10, 20)` gives the rows and distinct
    values of a relation, 10,000
    and 1,000 without it; `orders: edge (1, 0)` an order that exists beside the declared one;
    `price: 2` what a new order costs for each row. Several are separated by semicolons.
    """
    lowered = lower(program)
    rule = lowered_rule(lowered)
    arities = {name: len(types) for name, types in lowered.relations.items()}
    say = RuleText(rule, arities)
    wanted = options.get("from")
    atoms = [*rule.atoms, rule.head] if wanted == "head" else list(rule.atoms)
    relations = [atom.relation for atom in atoms]
    driver = None
    if wanted is not None:
        driver = len(atoms) - 1 if wanted == "head" else relations.index(wanted)
    stats = {name: Stats(rows, distinct) for name, rows, distinct in _stats(options)}
    held: dict[str, list[tuple[int, ...]]] = {}
    for name, columns in _named(options.get("orders", "")):
        held.setdefault(name, []).append(tuple(map(int, columns)))

    def of(atom: int) -> Stats:
        arity = len(atoms[atom].args)
        usual = Stats(DRIVER, (DRIVER,) * arity) if atom == driver else None
        return usual or stats.get(relations[atom]) or Stats(ROWS, (DISTINCT,) * arity)

    def orders_of(atom: int) -> list[tuple[int, ...]]:
        return [tuple(range(len(atoms[atom].args))), *held.get(relations[atom], [])]

    plan = Orderer(
        atoms, rule.conditions, frozenset(rule.constants), driver, of, orders_of,
        float(options.get("price", "0")),
    ).plan()  # fmt: skip
    lines = [_step(step, plan, say) for step in plan.steps]
    for number, (atom, order) in enumerate(zip(plan.atoms, plan.orders, strict=True)):
        if number != plan.driver and order != tuple(range(len(order))):
            lines.append(f"reads {say.atom(atom)} in the order {order}")
    return "\n".join(lines)


def lowered_rule(lowered: Any) -> Any:
    """Return the lowered form of the last rule of a program, not of what lowering has made."""
    rules = [rule for layer in lowered.layers for rule in layer.rules]
    return max((r for r in rules if "@" not in r.head.relation), key=lambda rule: rule.id)


def _stats(options: Mapping[str, str]) -> Iterator[tuple[str, float, tuple[float, ...]]]:
    for text in options.get("rows", "").split(";"):
        if text.strip():
            name, rows, *distinct = re.findall(r"[\w@]+", text)
            yield name, float(rows), tuple(map(float, distinct))


def _named(text: str) -> Iterator[tuple[str, list[str]]]:
    for part in text.split(";"):
        if part.strip():
            name, *numbers = re.findall(r"[\w@]+", part)
            yield name, numbers


def _step(step: Any, plan: Any, say: RuleText) -> str:
    fields = set(vars(step))

    def atom() -> str:
        text = say.atom(plan.atoms[step.atom])
        return f"{text}, which drives" if step.atom == plan.driver else text

    if "slot" in fields:
        meet = " and ".join(say.atom(plan.atoms[a]) for a in step.atoms)
        return f"bind {say.slot(step.slot)} where {meet} agree"
    if "what" in fields:
        return f"{'bind' if step.binds else 'check'} {say.condition(step.what)}"
    if "count" in fields:
        return f"each {say.condition(step.count)}"
    if "columns" not in fields:
        return f"check {atom()}"
    verb = "seek" if isinstance(step, Seek) else "scan"
    return f"{verb} columns {step.columns} of {atom()}"
