"""The types that Python calls each kernel with, so that all can be compiled before any is called.

A line names a kernel and the types of its arguments. `i64[][]` is a contiguous array of two
dimensions; `strided:` marks one that need not be contiguous, `const:` one that is read only. A
kernel that is called with several combinations has several lines.

The kernels of a block share helpers, so one process should compile them: it compiles a helper once.
Blocks and their lines are ordered by the time they take, longest first (kernel/compile_all.py).

tests/cli/test_warm.py compares the lines with what the engine calls, and prints those that are
wrong.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

_LINES = """
join.join: i64[][] i64[][] i64[][] i64[][] i64[][][] i64[][] i64[][][] i64[][] i64[][] i64[][]
    i64[] i64[][][] i64[][][] i64[][][] i64[] i64[] i64[][] i64[] i64
trace.trace: i64[][] i64[][] i64[][] i64[][] i64[][][] i64[][][] i64[][] i64[][] i64[] i64[][][][]
    i64[][][][] i64[][][][] i64[][] i64[] i64[] i64[][] i64[][] i64[] i64[] i64[] i64[][] i64[][]
    i64[][][] i64[][] i64[][] i64[][] i64[]
walk.lose: i64[][] i64[][] i64 i64[][] i64[][] i64[] i64[][] i64[][] i64[][] i64[][] i64[]
join.begin: i64[] i64[] i64[] i64[][][] i64[] i64[] i64
walk.settle: i64[][] i64[][] i64 i64 i64[][] i64[][] i64[] i64[][] i64[] i64[] i64[][] i64[][]
    i64[][] i64[][] i64[][] i64[]
repair.offer: i64[][] i64 i64 i64[][] i64[] i64 i64 i64 i64[][] i64[][] i64 i64[][] i64
repair.lose: i64[][] i64 i64[][] i64[] i64 i64[][] i64 i64[]
trace.read_both: i64[][][] i64[][][][] i64[][] i64 i64[][] i64 i64
trace.restart: i64[] i64[] i64[] i64[][] i64[][] i64 bool
join.read_runs: i64[][][] i64[][][] i64[][] i64 i64[][] i64 bool bool bool
repair.old_levels: i64[][] i64 i64[][] i64 i32[]
repair.rehash: i64[][] i64[][] i64 i64[][] i64[][]
repair.take: i64[][] i64[][] i64 i64 i64[][] i64[]
repair.level_above: i64[][] i64

epoch.derive: i64[] bool
epoch.give: i64[] bool i64 i64[][] i64[][]
epoch.end: i64[] bool
accumulate.add_up: i64[][] u32[] i64[] i64[][] i64[] i64[] i64[] i64[][] i64 i64[] i64 i64 i64
    i64[][] i64[][] i64[][]
groups.note_groups: i64[][] i32[] i64[] i64[][] i64[] i64 i64 i64[] i64[][] i32[] i64
siblings.write_results: i64[][] u32[] i64[][] i64[][] i64 i64[] bool i64[] i64[][] i64[][] bool[]
    bool[]
accumulate.finish: i64[][] i32[] u32[] i64[] i64[][] bool
siblings.changed_rows: i64[][] i64[][] i64[][] i64[][] bool[] bool[] i64[][] i64[][]
groups.find_groups: i64[][] i32[] i64[][] i64[] i64 i64[]
spreading.spread: i64[][] i64 i64[][] i64[][] i64[][] i64[]
nesting.find_partners: i64[][] i64 i64 i64[][] i64 i64[][] i64 i64[][] i64 i64 i64[] i64[]
nesting.write: i64[][] i64[][] i64 i64[][] i64 i64 i64[][] i64[][]
nesting.multiply: i64[] i64[] i64[] bool i64 i64[]
wavelet.build: i64[] i64[] i32[][]
wavelet.multiply_by_points: i32[][] i64[][] i64[] i64[] i64 i64[]
nesting.limits: i64[][] i64 i64[][] i64 i64 i64[][]
nesting.leave_out: i64[] i64 i64[][]
nesting.add_up: i64[] i64 i64[]
groups.enter_all: i64[][] i64 i32[]
accumulate.order_by_part: i64[] i64 i64 i64[] i64[]

descriptors.find: i64[][] i64 i64 i64[][] i64 i64[][]
intervals.stab: i64[][] i64[][] i64 i64 i64[][] i64[][] i64 i64[][]
intervals.surgeries: i64[][] i64 i64 i64[][] i64[][] i64 bool[][]
intervals.unite: i64[][] i64 i64[][]
descriptors.write_marks: i64[][] i64 i64 i64[][] i32[] i64 i64 i64[][] i64[][] i64[][] i64
descriptors.place: i64[][] i64[][] i64[][] i64 i64[][] i64[][]
descriptors.extremes: i64[][] i64 i64[][] i64[][] i64 bool i64 i64 i64 i64 i64[] bool[]
descriptors.rows_between: i64[][] i64 i64[][] i64[][] bool i64 i64[][]
complement.complement: i64[][] i64[][] i64[][] i64[][] i64 i64 i64[][] i64[] i64[][] i64[]
scan.fold_ranges: i64[][] i64 i64 i64 i64 i64 i64 i64[][] i64[][] i64[][] i64[][]
scan.fold: i64[][] i64 i64 i64 i64 i64 i64 i64[][] i64 i64 i64[][]
scan.grow: i64[][] i64 i64 i64 i64 i64 i64 i64[][]
scan.renew: i64[][] i64 i64 i64 i64 i64 i64 i64[][] i64[]
descriptors.describe: i64[][] i32[] i32[] i32[] i64 i64[]
descriptors.describe: i64[][] i32[] i64[] i32[] i64 i64[]
descriptors.merge_few: i64[][] i64 i64 i64 i64[][] i32[] i32[] bool
descriptors.write_counts: i64[][] i64 i64[][] i64[] i64 i64[][] i64
descriptors.put_back: i64[][] i64 i64[][] i64
descriptors.commit_deaths: i64[][] i64[][] i64 i64[]
descriptors.kill: i64[][] i64 i64[][] i64 i64[][] i64
descriptors.fill_directory: i64[][] i64 i64 i32[]
descriptors.address_of: i32[]
descriptors.address_of: i64[]
descriptors.address_of: i64[][]
descriptors.address_of: i64[][][]
descriptors.address_of: bool[]

sets.change_sets: i64[][] i64[] i64[] i64[] i64[] i64[] i64[] bool[] i64 i64[][]
sets.find_set: i64[][] i64[] i64[] i64[] bool
accumulate.adopt: i64[][] u32[] i64[] i32[] u8[]
sets.list_sets: i64[][] i64[] i64[]
routing.contested: i64[][] bool[] u64[] u8[] bool[]
syncing.sync_when_asked: i64 i64 i64 i64[] i64[]
dictionary.find_piece: u8[] i64[] i32[] const:u8[]
dictionary.enter_pieces: u8[] i64[] i32[]
dictionary.number_texts: const:u8[] i64[] i64[] i64[] u8[] i64[] i32[] i64 bool i64[]
fields.split_lines: const:u8[] i64 i64 i64 i64 i64[] i64[] i64[] i64[] i64[] i64[]
dictionary.hash_texts: const:u8[] i64[] i64[] i64[]
routing.keep: u64[] u64 u64 u64 bool[]
sets.enter_nodes: i64[][] i64 i64 i64[]
routing.mix: i64 i64 u64[]
syncing.wait_for: i64 i64 i64[]

rows.settle_ties: i64[][] i64[]
rows.merge_runs: i64[][] i32[] i32[] i64[][] i32[] i32[] i64[][] i32[] i32[] bool bool i64 i64[]
    i64
rows.merge_runs: i64[][] i32[] i64[] i64[][] i32[] i64[] i64[][] i32[] i64[] bool bool i64 i64[]
    i64
rows.merge_sums: i64[][] i64[] i64 i64[][] i64[] i64 i64[][] i64[]
rows.remove_present: i64[][] i64[] i64 i64[][] i32[] bool i64
rows.locate: i64[][] i32[] bool i64 i64[][] i64 i64[]
sorting.sort_rows: i64[][] i64[][] i64 i64[][]
rows.unique_sums: i64[][] i64 i64[] bool i64[]
rows.pack_ordinals: i64[][] i64 i64[][] i64[][]
rows.pack_ordinals: strided:i64[][] i64 i64[][] i64[][]
rows.unpack_ordinals: i64[][] i64 i64[][] i64[][]
rows.split_levels: i64[] i64 i32[] i32[]
rows.repack: i64[][] i64 i64[][] i64[][] i64[][]
rows.mark_bits: i64[][] i32[]
rows.unpack: i64[][] i64 i64[][] i64[][]
rows.largest_parts: i64[][] i64[] i64 i64[]
rows.pack: i64[][] i64 i64[][] i64[][]
rows.remove_seen: i64[][] i64[] i64 i64[]
rows.unpack_levels: i64[] i64 i64 i32[] i32[]
rows.pack_levels: i64[][] i64[] i64 i64 i64 i64[] i64
rows.see: i64[][] i64[]
rows.add_marks: i64[][] i32[] i64
rows.take_marks: i64[][] i64 i32[]
"""

_SCALARS = {
    "bool": "boolean",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u32": "uint32",
    "u64": "uint64",
}

Signatures = dict[str, list[tuple[Any, ...]]]
"""For each kernel, the types of its arguments."""


def blocks() -> list[Signatures]:
    """Return the kernels that Python calls with their signatures, block by block."""
    found = []
    for text in _LINES.strip().replace("\n    ", " ").split("\n\n"):
        block: Signatures = {}
        for line in text.splitlines():
            kernel, _, arguments = line.partition(": ")
            block.setdefault(kernel, []).append(tuple(map(_parse, arguments.split())))
        found.append(block)
    return found


def declared() -> Signatures:
    """Return the signatures of all kernels that Python calls."""
    return {kernel: found for block in blocks() for kernel, found in block.items()}


def find_kernel(name: str) -> Any:
    """Return a kernel by its name in the lines above."""
    module, _, function = name.partition(".")
    return getattr(importlib.import_module(f"tidelog.kernel.{module}"), function)


def describe(kernel: str, signature: Iterable[Any]) -> str:
    """Return the line for a kernel and the types of its arguments."""
    return f"{kernel}: {' '.join(map(_describe, signature))}"


def _parse(text: str) -> Any:
    from numba import types

    *prefixes, text = text.split(":")
    scalar = getattr(types, _SCALARS[text.rstrip("[]")])
    if not text.endswith("[]"):
        return scalar
    array: Any = types.Array
    layout = "A" if "strided" in prefixes else "C"
    return array(scalar, text.count("[]"), layout, readonly="const" in prefixes)


def _describe(type_: Any) -> str:
    from numba import types

    names = {getattr(types, name): short for short, name in _SCALARS.items()}
    if not isinstance(type_, types.Array):
        return names.get(type_, str(type_))
    prefixes = ("" if type_.mutable else "const:") + ("" if type_.layout == "C" else "strided:")
    return prefixes + names.get(type_.dtype, str(type_.dtype)) + "[]" * type_.ndim
