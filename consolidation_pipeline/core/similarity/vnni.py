"""Register tile of byte products: x86's VNNI instruction as a function for code that numba compiles.

VPDPBUSD multiplies unsigned by signed bytes, four at a time, and adds the products to 32-bit integers without rounding
or saturation: 64 multiplications per instruction with AVX-512, 32 with AVX-VNNI.
"""

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

# Features that numba compiles for: NUMBA_CPU_FEATURES if it is set, else those of this processor.
_FEATURES = frozenset(cpu_target.target_context.codegen().magic_tuple()[2].split(","))
_WIDE = {"+avx512vnni", "+avx512bw", "+avx512vl"} <= _FEATURES

# Reason why this processor cannot compute a tile, or None. It is checked before anything is compiled: LLVM ends the
# process at an instruction that it cannot emit.
PROBLEM = None if _WIDE or "+avxvnni" in _FEATURES else "the processor has neither AVX-512 VNNI nor AVX-VNNI"

# 32-bit integers per vector register. A tile has ROWS x COLS sums, as many as fit into the 32 or 16 registers.
LANES = 16 if _WIDE else 8
ROWS = 12 if _WIDE else 6
COLS = 2 * LANES

# One bit per column of a tile.
MASK = np.uint32 if _WIDE else np.uint16

_I32 = ir.IntType(32)
_SUMS = ir.VectorType(_I32, LANES)
_BYTES = ir.VectorType(ir.IntType(8), 4 * LANES) if llvm.llvm_version_info[0] >= 22 else _SUMS
_BITS = ir.IntType(LANES)


def _address(builder: Any, base: Any, offset: int, kind: Any) -> Any:
    return builder.inttoptr(builder.add(base, ir.Constant(base.type, offset)), kind.as_pointer())


def _load(builder: Any, base: Any, offset: int, kind: Any) -> Any:
    return builder.load(_address(builder, base, offset, kind), align=1)


def _broadcast(builder: Any, number: Any) -> Any:
    undefined = ir.Constant(_SUMS, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


def _start_sums(builder: Any, above_levels: Any, beside_levels: Any) -> list[Any]:
    beside = [_load(builder, beside_levels, 4 * LANES * c, _SUMS) for c in range(2)]
    sums = [cgutils.alloca_once(builder, _SUMS) for _ in range(2 * ROWS)]
    for r in range(ROWS):
        above = _broadcast(builder, _load(builder, above_levels, 4 * r, _I32))
        for c in range(2):
            builder.store(builder.add(above, beside[c]), sums[2 * r + c])
    return sums


def _accumulate(builder: Any, sums: list[Any], above: Any, beside: Any) -> None:
    kind = ir.FunctionType(_SUMS, [_SUMS, _BYTES, _BYTES])
    dot = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.avx512.vpdpbusd.{32 * LANES}")
    right = [builder.bitcast(_load(builder, beside, 4 * LANES * c, _SUMS), _BYTES) for c in range(2)]
    for r in range(ROWS):
        left = builder.bitcast(_broadcast(builder, _load(builder, above, 4 * r, _I32)), _BYTES)
        for c in range(2):
            total = builder.call(dot, [builder.load(sums[2 * r + c]), right[c], left])
            builder.store(total, sums[2 * r + c])


def _store_masks(builder: Any, sums: list[Any], masks: Any) -> Any:
    totals, none = [builder.load(one) for one in sums], ir.Constant(_SUMS, None)
    signs = totals[0]
    for total in totals[1:]:  # the sign of the conjunction is set if all signs are
        signs = builder.and_(signs, total)
    reached = builder.bitcast(builder.icmp_signed(">=", signs, none), _BITS)
    found = builder.icmp_unsigned("!=", reached, ir.Constant(_BITS, 0))
    with builder.if_then(found, likely=False):
        for position, total in enumerate(totals):
            mask = builder.bitcast(builder.icmp_signed(">=", total, none), _BITS)
            builder.store(mask, _address(builder, masks, position * LANES // 8, _BITS), align=1)
    return builder.zext(found, _I32)


@intrinsic  # type: ignore[untyped-decorator]
def tile_reaches(
    _context: Any, _above: Any, _beside: Any, _above_levels: Any, _beside_levels: Any, _steps: Any, _masks: Any
) -> tuple[Any, Any]:
    """Return 1 if a sum of the tile is >= 0, else 0. If 1, set bit c of ``masks[r]`` for each such sum (r, c).

    The sum (r, c) is ``above_levels[r] + beside_levels[c]`` plus the product of the bytes of row r and column c.

    Args:
        _above: Address of int8 (steps, ROWS, 4).
        _beside: Address of uint8 (steps, COLS, 4).
        _above_levels: Address of int32 (ROWS,).
        _beside_levels: Address of int32 (COLS,).
        _steps: A quarter of the bytes of one row.
        _masks: Address of ROWS masks of COLS bits; unchanged if 0 is returned.
    """

    def codegen(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        above, beside, above_levels, beside_levels, steps, masks = arguments
        sums = _start_sums(builder, above_levels, beside_levels)
        with cgutils.for_range(builder, steps) as loop:
            left = builder.add(above, builder.mul(loop.index, ir.Constant(above.type, 4 * ROWS)))
            right = builder.add(beside, builder.mul(loop.index, ir.Constant(beside.type, 4 * COLS)))
            _accumulate(builder, sums, left, right)
        return _store_masks(builder, sums, masks)

    return types.int32(*[types.intp] * 6), codegen
