"""Integer arithmetic that reports overflows, and addition that wraps around.

Numba tells LLVM that signed arithmetic never overflows (`nsw`). So LLVM removes tests made after
the fact, such as `a + b < a` or `a * b // b != a`. The operations here have a defined result. They
are LLVM's own: one instruction and a flag.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic


def _require(type_: Any, *arguments: Any) -> None:
    """Refuse to mix signed and unsigned numbers, which Numba would cast silently."""
    for argument in arguments:
        if not isinstance(argument, types.Integer) or argument.name[0] != type_.name[0]:
            raise TypingError(f"expected {type_}, found {argument}")


def _checked(type_: Any, method: str) -> Any:
    signature = types.Tuple((type_, types.boolean))(type_, type_)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        both = getattr(builder, method)(*args)
        parts = [builder.extract_value(both, i) for i in (0, 1)]
        return context.make_tuple(builder, signature.return_type, parts)

    return signature, codegen


@intrinsic
def add(typingctx: Any, a: Any, b: Any) -> Any:
    """Return (a + b, overflowed) of two int64."""
    _require(types.int64, a, b)
    return _checked(types.int64, "sadd_with_overflow")


@intrinsic
def subtract(typingctx: Any, a: Any, b: Any) -> Any:
    """Return (a - b, overflowed) of two int64."""
    _require(types.int64, a, b)
    return _checked(types.int64, "ssub_with_overflow")


@intrinsic
def multiply(typingctx: Any, a: Any, b: Any) -> Any:
    """Return (a * b, overflowed) of two int64."""
    _require(types.int64, a, b)
    return _checked(types.int64, "smul_with_overflow")


@intrinsic
def multiply_unsigned(typingctx: Any, a: Any, b: Any) -> Any:
    """Return (a * b, overflowed) of two uint64."""
    _require(types.uint64, a, b)
    return _checked(types.uint64, "umul_with_overflow")


@intrinsic
def wrapped_add(typingctx: Any, a: Any, b: Any) -> Any:
    """Return a + b of two int64, modulo 2**64."""
    _require(types.int64, a, b)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.add(*args)

    return types.int64(types.int64, types.int64), codegen
