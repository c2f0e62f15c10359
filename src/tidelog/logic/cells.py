"""Unknown types, and how they become known.

Each term of a rule gets a *cell*. Cells that must have the same type are merged (union-find). A
cell has a type, or only the kinds that are possible: the literal `1` has any numeric type until its
neighbours decide. A known type also has its origin, for messages.

After a clash its cells are *spoiled*: from then on they merge with everything, so that a mistake is
reported once.
"""

from __future__ import annotations

from tidelog.values.types import Kind, Type


class TypeClash(Exception):
    """Two cells cannot have one type."""


class Cell:
    """One unknown type."""

    def __init__(
        self,
        type_: Type | None = None,
        kinds: frozenset[Kind] | None = None,
        default: Type | None = None,
        origin: str = "",
    ) -> None:
        self._parent: Cell | None = None
        self._type = type_
        self._kinds = kinds
        self._default = default
        self._origin = origin
        self._spoiled = False

    def root(self) -> Cell:
        """Return the cell that stands for all those merged with this one."""
        cell = self
        while cell._parent is not None:
            cell = cell._parent
        return cell

    @property
    def type(self) -> Type | None:
        """Return the type, if it is known."""
        return self.root()._type

    @property
    def kinds(self) -> frozenset[Kind] | None:
        """Return the kinds that are still possible; None for all of them."""
        root = self.root()
        return frozenset({root._type.kind}) if root._type is not None else root._kinds

    def merge(self, other: Cell) -> None:
        """Merge two cells; raise TypeClash and change nothing if they cannot have one type."""
        a, b = self.root(), other.root()
        if a is b:
            return
        if a._spoiled or b._spoiled:
            b._parent, a._spoiled = a, True
            return
        if a._type is not None and b._type is not None and a._type != b._type:
            raise TypeClash
        kinds = (
            a._kinds if b._kinds is None else b._kinds if a._kinds is None else a._kinds & b._kinds
        )
        type_ = a._type or b._type
        if kinds is not None and (not kinds or (type_ is not None and type_.kind not in kinds)):
            raise TypeClash
        b._parent = a
        a._origin = a._origin if a._type is not None else b._origin
        a._type, a._kinds = type_, kinds
        # A float literal next to an integer literal makes both floats.
        defaults = [d for d in (a._default, b._default) if d is not None]
        fitting = [d for d in defaults if kinds is None or d.kind in kinds]
        a._default = (fitting or defaults)[-1] if defaults else None

    def set(self, type_: Type, origin: str = "") -> None:
        """Give the cell a type; raise TypeClash if it cannot have it."""
        self.merge(Cell(type_, origin=origin))

    def restrict(self, kinds: frozenset[Kind]) -> None:
        """Allow only `kinds`; raise TypeClash if none is left."""
        self.merge(Cell(kinds=kinds))

    @property
    def spoiled(self) -> bool:
        """Return whether a mistake about this cell was reported."""
        return self.root()._spoiled

    def spoil(self) -> None:
        """Remember that a mistake about this cell was reported."""
        self.root()._spoiled = True

    def settle(self) -> Type | None:
        """Return the type, or the default if nothing has decided it."""
        root = self.root()
        if root._type is None and root._default is not None:
            root._type = root._default
        return root._type

    def describe(self) -> str:
        """Return what is known, in words."""
        root = self.root()
        if root._type is not None:
            return with_article(f"`{root._type}`") + (f" ({root._origin})" if root._origin else "")
        if root._default is not None:
            return f"a {root._default} literal"
        if root._kinds is not None and Kind.NUMBER in root._kinds:
            return "a number"
        if root._kinds is not None:
            return " or ".join(with_article(name) for name in sorted(k.value for k in root._kinds))
        return "of unknown type"


def with_article(name: str) -> str:
    """Return the name of a type with "a" or "an" before it.

    >>> with_article("unsigned"), with_article("`symbol`")
    ('an unsigned', 'a `symbol`')
    """
    return f"{'an' if name.strip('`')[:1] in 'aeiouAEIOU' else 'a'} {name}"
