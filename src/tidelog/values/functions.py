"""Functions from Python, used in rules like functors.

In a rule a functor is known by its name. A `UserFunction` is such a name, with what computes it: so
it passes through planning like any other functor, and the engines find the function in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidelog.values.types import Kind, Type

_DTYPES = {
    Kind.NUMBER: "int64",
    Kind.UNSIGNED: "uint64",
    Kind.FLOAT: "float64",
    Kind.BOOL: "bool",
}


class UserFunction(str):
    """The name of a function that is registered from Python, its types, and how it is called."""

    __slots__ = ("function", "gives", "takes", "vectorised")

    def __new__(
        cls,
        name: str,
        function: Callable[..., Any],
        takes: tuple[Type, ...],
        gives: Type,
        vectorised: bool,
    ) -> UserFunction:
        """Make the name of a function from `takes` to `gives`."""
        made = super().__new__(cls, name)
        made.function, made.takes, made.gives, made.vectorised = function, takes, gives, vectorised
        return made

    function: Callable[..., Any]
    takes: tuple[Type, ...]
    gives: Type
    vectorised: bool

    def one(self, *values: Any) -> Any:
        """Return the result for one row."""
        if self.vectorised:
            return self.many([[value] for value in values], 1)[0]
        return self.function(*values)

    def many(self, columns: Sequence[Sequence[Any]], rows: int) -> list[Any]:
        """Return the results of a vectorised function for columns of values."""
        import numpy as np

        arrays = []
        for column, type_ in zip(columns, self.takes, strict=True):
            array = np.empty(rows, _DTYPES.get(type_.kind, "object"))
            array[:] = column
            arrays.append(array)
        result = self.function(*arrays)
        found: list[Any] = result.tolist() if isinstance(result, np.ndarray) else list(result)
        if len(found) != rows:
            raise ValueError(f"{len(found)} results for {rows} rows")
        return found
