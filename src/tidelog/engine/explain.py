"""How the views of a program are computed, in words."""

from __future__ import annotations

from tidelog.logic.program import Program, Rule, Stratum
from tidelog.logic.stratify import dependency_graph

_ENGINES = {
    "reference": "every epoch evaluates the program anew",
    "kernel": "every epoch follows the changes",
}


def explain(program: Program, engine: str, view: str | None = None) -> str:
    """Return the strata of the program in order, or only those that `view` needs."""
    wanted = set(program.relations)
    if view is not None:
        import networkx as nx

        graph = dependency_graph(program.relations, program.rules)
        wanted = nx.ancestors(graph, view) | {view}
    lines = [f"engine: {engine} ({_ENGINES[engine]})"]
    given = [
        name
        for stratum in program.strata
        if not stratum.rules
        for name in stratum.relations
        if name in wanted
    ]
    if given:
        lines.append("given:")
        lines += [f"  {program.relations[name]}{_facts(program, name)}" for name in given]
    for stratum in program.strata:
        if stratum.rules and wanted.issuperset(stratum.relations):
            lines += _stratum(program, stratum)
    for options in program.views.values():
        if options.relation in wanted:
            asked = [f"strategy {options.strategy}"] if options.strategy else []
            asked += (
                [f"virtual {str(options.virtual).lower()}"] if options.virtual is not None else []
            )
            lines.append(
                f"note: `.view {options.relation}` asks for {', '.join(asked) or 'nothing'};"
                f" the {engine} engine has one way only"
            )
    if view is None:
        for note in program.notes:
            place = f" ({note.span})" if note.span is not None else ""
            lines.append(f"note: {note.message}{place}")
    return "\n".join(lines)


def _facts(program: Program, name: str) -> str:
    count = sum(fact.relation == name for fact in program.facts)
    return f"  {count} fact{'s' * (count != 1)} in the program" if count else ""


def _stratum(program: Program, stratum: Stratum) -> list[str]:
    kind = "recursive, to a fixpoint" if stratum.recursive else "once"
    names = ", ".join(stratum.relations)
    lines = [f"stratum {stratum.index}: {names} ({kind})"]
    for name in stratum.relations:
        lines.append(f"  {program.relations[name]}{_facts(program, name)}")
        # A rule with a disjunction or several heads has become several: show its text once.
        lines += [f"    {text}" for text in dict.fromkeys(_texts(stratum.rules, name))]
    return lines


def _texts(rules: tuple[Rule, ...], name: str) -> list[str]:
    return [rule.text for rule in rules if rule.head.relation == name]
