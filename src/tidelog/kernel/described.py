"""A join as a row of numbers (kernel/join_layout.py): its arrays, and the call of its interpreter.

The walk (kernel/walk.py) runs joins by itself. It calls the interpreter by address, not by name: if
a function is called by name, Numba links its code into the caller, and LLVM optimises it there
again. The interpreter is by far the largest kernel. It took 3 s in each of the two kernels of the
walk.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numba.np import arrayobj as untyped_arrayobj

from tidelog.kernel import join_layout as k
from tidelog.kernel.signatures import declared

_I64 = ir.IntType(64)
_cgutils: Any = untyped_cgutils
_arrays: Any = untyped_arrayobj


def _array(dimensions: int) -> Any:
    """Return an intrinsic for `carray`: it takes Numba one step instead of fifteen."""
    array_type: Any = types.Array
    result = array_type(types.int64, dimensions, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        program = _arrays.make_array(signature.args[0])(context, builder, args[0])
        at = builder.mul(args[1], _I64(k.ARRAY_COLUMNS))

        def number(column: int) -> Any:
            place = builder.add(at, _I64(k.FIRST_ARRAY + column))
            return builder.load(builder.gep(program.data, [place]))

        shape = [number(1 + axis) for axis in range(dimensions)]
        strides = [_I64(8)]
        for size in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        array = _arrays.make_array(result)(context, builder)
        data = builder.inttoptr(number(0), _I64.as_pointer())
        _arrays.populate_array(array, data, shape, strides, _I64(8), meminfo=None)
        return array._getvalue()

    @intrinsic
    def array(typingctx: Any, program: Any, which: Any) -> Any:
        if program != array_type(types.int64, 1, "C") or not isinstance(which, types.Integer):
            raise TypingError("expected a described join and the number of an array")
        return result(program, types.int64), codegen

    return array


array1, array2, array3 = (_array(dimensions) for dimensions in (1, 2, 3))


def _view(dimensions: int, element: Any, width: int) -> Any:
    """Return an intrinsic that makes an array of an address and the size of each dimension.

    `width` is that of an element, in bytes.
    """
    array_type: Any = types.Array
    result = array_type(element, dimensions, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shape = list(args[1:])
        strides = [_I64(width)]
        for size in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], size))
        array = _arrays.make_array(result)(context, builder)
        data = builder.inttoptr(args[0], array.data.type)
        _arrays.populate_array(array, data, shape, strides, _I64(width), meminfo=None)
        return array._getvalue()

    if dimensions == 1:

        @intrinsic
        def view1(typingctx: Any, address: Any, n: Any) -> Any:
            return result(types.int64, types.int64), codegen

        return view1

    @intrinsic
    def view2(typingctx: Any, address: Any, rows: Any, columns: Any) -> Any:
        return result(types.int64, types.int64, types.int64), codegen

    return view2


# Arrays by address: nothing checks that they are there, and that they have this size.
view1, view2 = (_view(dimensions, types.int64, 8) for dimensions in (1, 2))
view_i32, view_u32 = (_view(1, element, 4) for element in (types.int32, types.uint32))
view_flags = _view(1, types.boolean, 1)


@intrinsic
def call_join(typingctx: Any, address: Any, *arguments: Any) -> Any:
    """Return what `join` (kernel/join.py), at this address, returns for the arguments."""
    expected = declared()["join.join"][0]
    if arguments != expected:
        raise TypingError(f"expected {expected}, found {arguments}")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        convention = context.call_conv
        function = convention.get_function_type(types.int64, expected)
        callee = builder.inttoptr(args[0], function.as_pointer())
        values = _cgutils.unpack_tuple(builder, args[1])
        status, result = convention.call_function(builder, callee, types.int64, expected, values)
        with _cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return result

    packed: Any = types.StarArgTuple
    return types.int64(types.int64, packed(arguments)), codegen
