"""Arrays whose end is the end of what may be read: reading beyond it kills the process.

Importing this gives NumPy another allocator (NEP 49). Each array gets pages of its own, ends where
they end, and a page follows that nobody may touch. Kernels that read by address are not checked by
Numba; on such arrays the processor checks them. It notices what is read or written behind an array,
from its first byte if its length is a multiple of eight bytes; not what is in front of it, nor in
arrays that a kernel makes.

    python -m pytest -p tests.kernel.guarded tests/kernel/test_join.py
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from numba import cfunc, types

PAGE = mmap.PAGESIZE
HEADER = PAGE  # a page in front, for the size of the mapping and of the array
_SET_HANDLER = 304  # the place of PyDataMem_SetHandler in NumPy's table of functions
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

_libc = ctypes.CDLL(None)
_size, _int = ctypes.c_size_t, ctypes.c_int


def _function(name: str, result: type, *arguments: type) -> ctypes._NamedFuncPointer:
    found = getattr(_libc, name)
    found.restype, found.argtypes = result, arguments
    return found


_map = _function("mmap", _size, _size, _size, _int, _int, _int, _size)
_protect = _function("mprotect", _int, _size, _size, _int)
_unmap = _function("munmap", _int, _size, _size)
_move = _function("memmove", _size, _size, _size, _size)
_NO_ACCESS, _FAILED = 0, ctypes.c_size_t(-1).value

_word = types.uintp


@cfunc(_word(_word, _word))
def _allocate(context, size):  # type: ignore[no-untyped-def]
    room = (max(size, 1) + 7) // 8 * 8
    inner = HEADER + (room + PAGE - 1) // PAGE * PAGE
    base = _map(0, inner + PAGE, _READ_WRITE, _FLAGS, -1, 0)
    if base == _FAILED:
        return _word(0)
    _protect(base + inner, PAGE, _NO_ACCESS)
    header = np.array([inner + PAGE, size], np.uintp)
    _move(base, header.ctypes.data, 16)
    return _word(base + inner - room)


@cfunc(_word(_word, _word, _word))
def _allocate_zeros(context, count, size):  # type: ignore[no-untyped-def]
    return _allocate(context, count * size)


@cfunc(types.void(_word, _word, _word))
def _free(context, address, size):  # type: ignore[no-untyped-def]
    if address:
        base = address // PAGE * PAGE - HEADER
        header = np.empty(2, np.uintp)
        _move(header.ctypes.data, base, 16)
        _unmap(base, header[0])


@cfunc(_word(_word, _word, _word))
def _reallocate(context, address, size):  # type: ignore[no-untyped-def]
    new = _allocate(context, size)
    if address and new:
        header = np.empty(2, np.uintp)
        _move(header.ctypes.data, address // PAGE * PAGE - HEADER, 16)
        _move(new, address, min(size, header[1]))
        _free(context, address, header[1])
    return new


class _Handler(ctypes.Structure):
    """NumPy's PyDataMem_Handler."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


_handler = _Handler(
    b"guarded", 1, None,
    _allocate.address, _allocate_zeros.address, _reallocate.address, _free.address,
)  # fmt: skip


def install() -> None:
    """Let NumPy allocate guarded arrays from now on, in this thread and context."""
    python = ctypes.pythonapi
    python.PyCapsule_GetPointer.restype = ctypes.c_void_p
    python.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    python.PyCapsule_New.restype = ctypes.py_object
    python.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    table = python.PyCapsule_GetPointer(np._core._multiarray_umath._ARRAY_API, None)
    place = ctypes.c_void_p.from_address(table + _SET_HANDLER * ctypes.sizeof(ctypes.c_void_p))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(place.value)
    set_handler(python.PyCapsule_New(ctypes.addressof(_handler), b"mem_handler", None))


install()
