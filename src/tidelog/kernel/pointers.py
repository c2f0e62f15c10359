"""Reading and writing by address, inside kernels.

A join reads from a handful of arrays that change with every call. Passed as arguments, each array
costs a tenth of a microsecond and is part of the kernel's signature. As one array of addresses they
cost nothing, and one compiled kernel can take any number of them. The price is that nothing checks
bounds here, not even in tests. Callers must keep the arrays alive, and pass valid positions.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

_I64 = ir.IntType(64)


def _require_integers(*arguments: Any) -> None:
    if not all(isinstance(argument, types.Integer) for argument in arguments):
        raise TypingError("addresses and positions are integers")


@intrinsic
def load64(typingctx: Any, address: Any, position: Any) -> Any:
    """Return the 64-bit integer at `address[position]`."""
    _require_integers(address, position)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _I64.as_pointer())
        return builder.load(builder.gep(pointer, [args[1]]))

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load32(typingctx: Any, address: Any, position: Any) -> Any:
    """Return the 32-bit integer at `address[position]`, widened."""
    _require_integers(address, position)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(32).as_pointer())
        return builder.sext(builder.load(builder.gep(pointer, [args[1]])), _I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def store64(typingctx: Any, address: Any, position: Any, value: Any) -> Any:
    """Write a 64-bit integer to `address[position]`."""
    _require_integers(address, position, value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _I64.as_pointer())
        builder.store(args[2], builder.gep(pointer, [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def store32(typingctx: Any, address: Any, position: Any, value: Any) -> Any:
    """Write the low 32 bits of an integer to `address[position]`."""
    _require_integers(address, position, value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(32).as_pointer())
        builder.store(builder.trunc(args[2], ir.IntType(32)), builder.gep(pointer, [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def address64(typingctx: Any, array: Any) -> Any:
    """Return the address of a contiguous array of 64-bit integers."""
    if not isinstance(array, types.Array) or (array.dtype, array.layout) != (types.int64, "C"):
        raise TypingError("address64 takes a contiguous array of 64-bit integers")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        make_array = context.make_array(signature.args[0])
        return builder.ptrtoint(make_array(context, builder, args[0]).data, _I64)

    return types.int64(array), codegen


@intrinsic
def bits_of(typingctx: Any, value: Any) -> Any:
    """Return the 64 bits of a float as an integer."""
    if not isinstance(value, types.Float):
        raise TypingError("bits_of takes a float")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _I64)

    return types.int64(types.float64), codegen


@intrinsic
def float_of(typingctx: Any, bits: Any) -> Any:
    """Return the float that has these 64 bits."""
    _require_integers(bits)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen
