"""Strategies that a program or a database asks for, and which of them a relation can have.

`.view v(strategy="recompute")` and `Database(.., strategy={"v": "recompute"})` force a strategy.
Here is what the strata of the program say about it. What depends on the lowered rules is refused
when they are lowered (plan/forced.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.errors import did_you_mean
from tidelog.lang.diagnostics import Diagnostics
from tidelog.logic.graph import shortest_path
from tidelog.logic.program import Stratum, ViewOptions
from tidelog.logic.stratify import dependencies

STRATEGIES = ("counting", "elastic", "theta-tree", "leapfrog", "recompute")
_NOT_RECURSIVE = ("counting", "theta-tree", "leapfrog")


@dataclass(frozen=True)
class Refusal:
    """Why a relation cannot have a strategy, and what to do instead."""

    why: str
    hint: str | None = None


def unknown(strategy: str) -> Refusal | None:
    """Return why there is no such strategy; None if there is one."""
    if strategy in STRATEGIES:
        return None
    hint = did_you_mean(strategy, STRATEGIES) or f"the strategies are {', '.join(STRATEGIES)}"
    return Refusal(f"there is no strategy `{strategy}`", hint)


def refusal(
    strata: Iterable[Stratum], asked: Mapping[str, str], relation: str, strategy: str
) -> Refusal | None:
    """Return why a relation cannot have a known strategy; None if the strata allow it.

    `asked` has all forced strategies: relations that depend on each other have one in common.
    """
    (stratum,) = (s for s in strata if relation in s.relations)
    if not stratum.rules:
        return Refusal(
            f"`{relation}` has no rules, so no strategy maintains it",
            "a strategy is for a relation that rules derive",
        )
    if strategy in _NOT_RECURSIVE and stratum.recursive:
        cycle = " needs ".join(f"`{name}`" for name in _cycle(stratum, relation))
        return Refusal(
            f"`{strategy}` cannot maintain `{relation}`, which is recursive: {cycle}",
            "`elastic` and `recompute` maintain recursive relations",
        )
    for other in stratum.relations:
        if asked.get(other, strategy) != strategy:
            return Refusal(
                f"`{relation}` and `{other}` depend on each other,"
                f" and cannot have two strategies, `{strategy}` and `{asked[other]}`",
                "ask for one of them",
            )
    return None


def check_views(
    views: Mapping[str, ViewOptions],
    strata: Sequence[Stratum],
    unsure: Collection[str],
    diagnostics: Diagnostics,
) -> None:
    """Report strategies of `.view` directives that their relations cannot have.

    The rules of relations that are `unsure` may have mistakes, which are reported already.
    """
    without_rules = {name for s in strata if not s.rules for name in s.relations}
    for name, view in views.items():
        if view.virtual and not (name in without_rules and name in unsure):
            refused = _not_virtual(name, view, name in without_rules)
            if refused is not None:
                diagnostics.error("bad-view", refused.why, view.span, refused.hint)
    asked = {name: view.strategy for name, view in views.items() if view.strategy is not None}
    for name, strategy in asked.items():
        if name in without_rules and name in unsure:
            continue
        found = refusal(strata, asked, name, strategy)
        if found is not None:
            diagnostics.error("bad-view", found.why, views[name].span, found.hint)


def _not_virtual(name: str, view: ViewOptions, is_given: bool) -> Refusal | None:
    """Return why the text of a program cannot have a virtual view."""
    if is_given:
        why = f"`{name}` has no rules, so its rows cannot be computed"
        return Refusal(why, "only a relation that rules derive can be virtual")
    if view.strategy is not None:
        return Refusal(
            f"`{name}` cannot be virtual and maintained by `{view.strategy}`",
            "leave out one of them: a virtual view is not stored, and has a strategy of its own",
        )
    return None


def _cycle(stratum: Stratum, relation: str) -> list[str]:
    """Return a shortest cycle of needs from a recursive relation to itself."""
    needs: dict[str, list[str]] = {name: [] for name in stratum.relations}
    for rule in stratum.rules:
        for need in dependencies(rule.body):
            if need.relation in needs and need.relation not in needs[rule.head.relation]:
                needs[rule.head.relation].append(need.relation)
    paths = (shortest_path(needs, first, relation) for first in needs[relation])
    return [relation, *min(paths, key=len)]
