"""What two results disagree on, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(
    ours: Mapping[str, frozenset[Any]], theirs: Mapping[str, frozenset[Any]], peer: str
) -> str | None:
    """Return how the two results differ, or None when all relations are equal."""
    lines = []
    if ours.keys() != theirs.keys():
        lines.append(f"relations: {sorted(ours)} here, {sorted(theirs)} in {peer}")
    for name in ours.keys() & theirs.keys():
        only_ours = sorted(ours[name] - theirs[name], key=repr)
        only_theirs = sorted(theirs[name] - ours[name], key=repr)
        if only_ours or only_theirs:
            lines.append(f"{name}: only here {only_ours}, only in {peer} {only_theirs}")
    return "\n".join(sorted(lines)) or None
