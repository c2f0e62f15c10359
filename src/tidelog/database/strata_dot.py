"""The strata of a program as Graphviz DOT text: which relation is derived from which.

Given relations are boxes, recursive strata are in frames. A dashed line leads from a relation that
must be complete first, because it is negated or aggregated.
"""

from __future__ import annotations

from tidelog.logic.program import Program
from tidelog.logic.stratify import dependencies
from tidelog.plan.theta.dot import quoted


def strata_dot(program: Program) -> str:
    """Return the strata of a program as a graph."""
    lines = [
        "digraph strata {",
        "  rankdir=BT;",
        '  node [fontname="monospace", fontsize=12, shape=ellipse];',
    ]
    for stratum in program.strata:
        shape = "" if stratum.rules else " [shape=box]"
        names = [f"{quoted(name)}{shape};" for name in stratum.relations]
        if stratum.recursive:
            lines += [f"  subgraph cluster_{stratum.index} {{", '    label="recursive";']
            lines += [f"    {name}" for name in names] + ["  }"]
        else:
            lines += [f"  {name}" for name in names]
    edges: dict[tuple[str, str], bool] = {}
    for rule in program.rules:
        for need in dependencies(rule.body):
            edge = (need.relation, rule.head.relation)
            edges[edge] = edges.get(edge, False) or bool(need.how)
    for (source, target), is_complete in edges.items():
        style = " [style=dashed]" if is_complete else ""
        lines.append(f"  {quoted(source)} -> {quoted(target)}{style};")
    return "\n".join([*lines, "}"])
