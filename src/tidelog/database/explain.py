"""A description of how the views of a program are computed.

This part is the same for every engine: the strata and their rules. The kernel adds how each stratum
is maintained, and what that costs, as `Details` (database/explain_kernel.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidelog.logic.graph import reachable
from tidelog.logic.program import ChoiceDomain, Program, Rule, Stratum, Subsumption, ViewOptions
from tidelog.logic.signs import Signs, signs_of_insertions
from tidelog.logic.stratify import dependencies

_ENGINES = {
    "reference": "every epoch re-evaluates the program",
    "kernel": "every epoch follows the changes",
}


class Details(Protocol):
    """What an engine adds to the description of a program."""

    def size(self, relation: str) -> str:
        """Return the number of rows, or nothing when there is no data."""

    def strategy(self, relation: str) -> tuple[str, str]:
        """Return how a derived relation is maintained, and why."""

    def aggregates(self, relation: str) -> list[str]:
        """Return how the aggregates in the rules of a derived relation are maintained."""

    def history(self, relation: str) -> list[str]:
        """Return what the last epoch did for a derived relation."""

    def plans(self, relation: str) -> list[str]:
        """Return the plans of all joins for a derived relation."""

    def footer(self, relations: Sequence[str], *, helpers: bool) -> list[str]:
        """Return the orders of these relations, and of the engine's own if `helpers` are shown."""


def explain(
    program: Program,
    engine: str,
    view: str | None = None,
    details: Details | None = None,
    *,
    plans: bool = False,
) -> str:
    """Return the strata of the program in order, or only those that `view` needs."""
    wanted = set(program.relations)
    if view is not None:
        needs: dict[str, set[str]] = {name: set() for name in program.relations}
        pruned = (kept for kept in program.pruned.values() if isinstance(kept, Subsumption))
        for rule in (*program.rules, *(rule for kept in pruned for rule in kept.rules)):
            needs[rule.head.relation] |= {need.relation for need in dependencies(rule.body)}
        wanted = reachable(needs, view)
    lines = [f"engine: {engine} ({_ENGINES[engine]})"]
    strata = [s for s in program.strata if wanted.issuperset(s.relations)]
    given = [
        name
        for stratum in strata
        for name in stratum.relations
        if not (stratum.rules or name in program.pruned)
    ]
    if given:
        lines.append("given:")
        lines += [f"  {_declared(program, name, details)}" for name in given]
    signs = signs_of_insertions(program)
    for stratum in strata:
        if not set(given).issuperset(stratum.relations):
            lines += _stratum(program, stratum, details, signs, plans=plans)
    if details is not None:
        names = [name for stratum in strata for name in stratum.relations]
        lines += details.footer(names, helpers=plans)
    shown = (options for options in program.views.values() if options.relation in wanted)
    lines += [note for options in shown for note in _view_notes(options, engine)]
    if view is None:
        for note in program.notes:
            place = f" ({note.span})" if note.span is not None else ""
            lines.append(f"note: {note.message}{place}")
    return "\n".join(lines)


def _declared(program: Program, name: str, details: Details | None) -> str:
    count = sum(fact.relation == name for fact in program.facts)
    notes = [f"{count} fact{'s' * (count != 1)} in the program"] if count else []
    retain = program.retained.get(name)
    if retain is not None:
        column = program.relations[name].columns[retain.column].name
        notes.append(f"rows older than the newest `{column}` less {retain.bound} are deleted")
    size = details.size(name) if details is not None else ""
    notes += [size] if size else []
    return "  ".join([str(program.relations[name]), *notes])


def _stratum(
    program: Program,
    stratum: Stratum,
    details: Details | None,
    signs: Mapping[str, Signs],
    *,
    plans: bool,
) -> list[str]:
    kind = "recursive, to a fixpoint" if stratum.recursive else "once"
    names = ", ".join(stratum.relations)
    lines = [f"stratum {stratum.index}: {names} ({kind})"]
    if details is not None:
        strategy, why = details.strategy(stratum.relations[0])
        lines.append(f"  maintained by {strategy}: {why}")
        lines += [f"  {line}" for line in details.aggregates(stratum.relations[0])]
        lines += [f"  {line}" for line in details.history(stratum.relations[0])]
    for name in stratum.relations:
        loses = "  insertions can delete rows" * bool(signs[name] & Signs.MINUS)
        lines.append(f"  {_declared(program, name, details)}{loses}")
        # A rule with a disjunction or several heads has become several: show its text once.
        lines += [f"    {text}" for text in dict.fromkeys(_texts(stratum.rules, name))]
        lines += [f"    {text}" for text in _pruning(program, name)]
    if details is not None and plans:
        lines += [f"  {line}" for line in details.plans(stratum.relations[0])]
    return lines


def _texts(rules: tuple[Rule, ...], name: str) -> list[str]:
    return [rule.text for rule in rules if rule.head.relation == name]


def _pruning(program: Program, name: str) -> list[str]:
    """Return which candidates of a relation are kept."""
    columns = program.relations[name].columns
    match program.pruned.get(name):
        case Subsumption(rules):
            return list(dict.fromkeys(rule.text for rule in rules))
        case ChoiceDomain(keys):
            shown = ("(" + ", ".join(columns[i].name for i in key) + ")" for key in keys)
            return [f"choice-domain {', '.join(shown)}"]
        case None:
            return []


def _view_notes(options: ViewOptions, engine: str) -> list[str]:
    """Return which options of a view have no effect."""
    asked = f"note: `.view {options.relation}` asks for"
    notes = []
    if options.strategy is not None and engine == "reference":
        notes.append(
            f"{asked} strategy {options.strategy}; the reference engine re-evaluates everything"
        )
    if options.virtual and engine == "reference":
        notes.append(f"{asked} virtual true; the reference engine stores everything")
    return notes
