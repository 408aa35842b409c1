"""The matmul of the Tensor engine."""

from __future__ import annotations

from typing import Annotated, Any

from nki.core.dtypes import bfloat16, float8_e4m3, float8_e4m3fn, float8_e5m2, float16, tfloat32
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import View
from nki.isa.matmul_rules import (
    MATMUL,
    REMOVED_MASK,
    WIDE,
    Accumulate,
    any_indirect,
    bank_rule,
    index_of,
    indirect_rules,
    inputs,
    moves_bits,
    pairs_of,
    same_storage,
    size_rules,
    slot_rule,
    tile_rules,
    tile_size_of,
)
from nki.isa.transpose import move_bits
from nki.spec import cost_tensor
from nki.spec.arrays import Arrays
from nki.spec.engine import engine as Engine
from nki.spec.engine import matmul_perf_mode
from nki.spec.instruction import Deprecated, instruction
from nki.spec.operand import PSUM, SBUF, Flag, Name, Operand, choice, out, source
from nki.spec.rule import Rule
from nki.target.model import Target

_INDIRECT = (float16, bfloat16, float8_e4m3, float8_e5m2, float8_e4m3fn)
_PsumDst = Annotated[NkiTensor, out(PSUM)]
_SbufSrc = Annotated[NkiTensor, source(SBUF)]
_Pair = Annotated[tuple[int, ...], Operand("ints")]


def _one_float_kind(a: Any, t: Target) -> bool:
    return (a.stationary.dtype in WIDE) == (a.moving.dtype in WIDE)


def _dst_dtype(a: Any, t: Target) -> bool:
    if moves_bits(a, t):
        return same_storage(a.dst, a.stationary)
    return a.dst.dtype in t.pe.psum_dtypes


def _double(a: Any) -> bool:
    return pairs_of(a) == 2


def _splits_in_two(view: View) -> bool:
    return view.ndim > 2 and view.shape[1] == 2


_DOUBLE_ROW_RULES = [
    Rule(
        "double-row-target",
        "double_row exists on the target",
        lambda a, t: not _double(a) or t.pe.double_row,
        MATMUL + ", Performance mode",
        "omit perf_mode",
        lambda a, t: f"perf_mode is double_row, the target is {t.name}",
    ),
    Rule(
        "double-row-dtype",
        "double_row multiplies 8-bit floats",
        lambda a, t: (
            not (_double(a) and t.pe.double_row)
            or all(v.dtype in t.pe.double_row_dtypes for v in (a.stationary, a.moving))
        ),
        MATMUL + ", Data types",
        "cast both operands to an 8-bit float, or omit perf_mode",
        lambda a, t: inputs(a),
    ),
    Rule(
        "double-row-shape",
        "under double_row the first free dimension of both operands is 2: the two halves of the contraction",
        lambda a, t: not _double(a) or (_splits_in_two(a.stationary) and _splits_in_two(a.moving)),
        MATMUL + ", Layout",
        "shape the operands as (partitions, 2, columns); pad an odd contraction with zeros",
        lambda a, t: inputs(a),
    ),
    Rule(
        "double-row-mode",
        "double_row excludes transpose mode and tiles of fewer columns",
        lambda a, t: not _double(a) or (not a.is_transpose and tile_size_of(a, t)[-1] == t.pe.columns),
        "nki/guides/architecture/trainium2_arch.rst, Double FP8 Matmul Performance",
        "omit perf_mode",
        lambda a, t: f"is_transpose is {a.is_transpose}, tile_size is {a.tile_size}",
    ),
]

_DTYPE_RULES = [
    Rule(
        "input-dtype",
        "stationary and moving hold floats that the Tensor engine of the target multiplies",
        lambda a, t: all(v.dtype in t.pe.input_dtypes for v in (a.stationary, a.moving)),
        MATMUL + ", Data types",
        "cast the operand, for example to bfloat16",
        lambda a, t: f"{inputs(a)}, the target is {t.name}",
    ),
    Rule(
        "mixed-float32",
        "float32 and tfloat32 multiply only each other",
        _one_float_kind,
        MATMUL + ", Data types",
        "cast one operand to the kind of the other",
        lambda a, t: inputs(a),
    ),
    Rule(
        "mixed-float8",
        "float8_e4m3 and float8_e4m3fn do not meet in one matmul",
        lambda a, t: {a.stationary.dtype, a.moving.dtype} != {float8_e4m3, float8_e4m3fn},
        MATMUL + ", Data types",
        "use the same e4m3 format for both operands",
        lambda a, t: inputs(a),
    ),
    Rule(
        "dst-dtype",
        "dst has a PSUM dtype of the target; in bit-exact transpose mode it has the dtype of stationary",
        _dst_dtype,
        MATMUL + ", Data types; trainium2_arch.rst, Built-in Transpose Support",
        "allocate dst as float32, or for a transpose with the dtype of stationary",
        lambda a, t: f"dst is {a.dst.dtype}, stationary is {a.stationary.dtype}, is_transpose is {a.is_transpose}",
    ),
]

_TRANSPOSE_RULES = [
    Rule(
        "transpose-moving",
        "the moving operand of a transpose is an identity matrix as large as stationary has partitions",
        lambda a, t: not moves_bits(a, t) or a.moving.free_size == a.stationary.partitions,
        MATMUL + ", Transpose mode",
        "slice the identity matrix to [0:K, 0:K]",
        lambda a, t: inputs(a),
    ),
    slot_rule("stationary", moves_bits),
    Rule(
        "transpose-accumulate",
        "accumulate=True needs a PSUM dtype that accumulates",
        lambda a, t: not (moves_bits(a, t) and a.accumulate) or a.dst.dtype in t.pe.psum_dtypes,
        "nki/guides/architecture/trainium3_arch.rst, BF16 Matmul Results in PSUM",
        "omit accumulate",
        lambda a, t: f"dst is {a.dst.dtype}, the target is {t.name}",
    ),
]

_MATMUL_INDIRECT_RULES = [
    Rule(
        "indirect-target",
        "tensor indirection exists on the target",
        lambda a, t: not any_indirect(a) or t.has("tensor_indirection"),
        MATMUL + ", Tensor indirection",
        "gather with nisa.nc_n_gather, or one instruction per slice",
        lambda a, t: f"the target is {t.name}",
    ),
    Rule(
        "indirect-transpose",
        "the moving operand of a transpose has a plain address",
        lambda a, t: not a.is_transpose or index_of(a.moving) is None,
        MATMUL + ", Tensor indirection",
        "pass the identity matrix as it is",
    ),
    Rule(
        "indirect-dtype",
        "indirect stationary and moving operands hold 16-bit or 8-bit floats",
        lambda a, t: all(index_of(v) is None or v.dtype in _INDIRECT for v in (a.stationary, a.moving)),
        MATMUL + ", Tensor indirection",
        "cast the operand to bfloat16",
        lambda a, t: inputs(a),
    ),
]


@instruction(
    engines=(Engine.tensor,),
    source=MATMUL,
    rules=[
        *_DOUBLE_ROW_RULES,
        *_DTYPE_RULES,
        *_TRANSPOSE_RULES,
        *_MATMUL_INDIRECT_RULES,
        *indirect_rules(MATMUL),
        *size_rules(MATMUL),
        *tile_rules(
            MATMUL,
            lambda t: t.pe.column_tile_sizes,
            "the rows of a tile are one of {t.pe.row_tile_sizes}, its columns one of {t.pe.column_tile_sizes}",
        ),
        bank_rule(lambda a, t: True),
    ],
    deprecated=[
        Deprecated(
            "psumAccumulateFlag", "remove it, it never had an effect", lambda value, bound: True, "it had no effect"
        ),
        Deprecated(
            "is_moving_zero",
            "write is_moving_onezero",
            lambda value, bound: isinstance(value, bool),
            "it is a flag that only speeds up",
        ),
        REMOVED_MASK,
    ],
    steps=cost_tensor.MATMUL,
)
def nc_matmul(
    dst: _PsumDst,
    stationary: _SbufSrc,
    moving: _SbufSrc,
    is_stationary_onezero: Flag = False,
    is_moving_onezero: Flag = False,
    is_transpose: Flag = False,
    accumulate: Accumulate = None,
    tile_position: _Pair = (),
    tile_size: _Pair = (),
    perf_mode: Annotated[matmul_perf_mode, choice(matmul_perf_mode)] = matmul_perf_mode.none,
    name: Name = None,
) -> None:
    """``dst = stationary.T @ moving`` on the Tensor engine, summed over the partitions, optionally onto PSUM.

    Free dimensions are flattened: stationary ``(K, M)``, moving ``(K, N)``, dst ``(M, N)`` with K and M up to 128.
    Products and sums are float32; a bfloat16 dst, where the target has it, is rounded at each accumulation. tfloat32
    operands are rounded to tfloat32.

    With ``is_transpose`` and an identity matrix as `moving`, NeuronCore-v3 and later move the bits of `stationary`: dst
    has its dtype, NaN and infinities stay in place, and 1-byte elements arrive in 16-bit slots, the upper byte zero
    (dst steps by 2). Like nisa.nc_transpose, a move overwrites dst, unless ``accumulate=True``. NeuronCore-v2
    multiplies instead.

    Tiles: the text describes tiles of fewer columns and the parameter list excludes them; kernels for the hardware use
    them, so the column sizes are those of the rows.

    Args:
        dst: PSUM ``(M, N)``; one bank unless the target writes several.
        stationary, moving: SBUF. With `perf_mode` double_row ``(K, 2, M)`` and ``(K, 2, N)`` in 8-bit floats, summed
            over the 2 as well.
        is_stationary_onezero, is_moving_onezero: promise that a float32 operand holds only 0 and 1, for speed.
        is_transpose: `moving` is an identity matrix, and `stationary` is moved, see above.
        accumulate: True adds to dst, which a matmul must have written; False overwrites; None overwrites each location
            at its first write and adds from then on.
        tile_position, tile_size: (row, column) start and size of the part of the array to use, so that small matmuls
            run side by side.
        perf_mode: nisa.matmul_perf_mode.double_row for two rows of 8-bit floats at once, where the target has it.
    """


@nc_matmul.body
def _(a: Any, x: Arrays) -> None:
    if moves_bits(a, x.target):
        _transpose_by_matmul(a, x)
        return
    stationary = _factor(x, a.stationary, a.is_stationary_onezero, pairs_of(a))
    moving = _factor(x, a.moving, a.is_moving_onezero, pairs_of(a))
    x.accumulate(a.dst, x.matmul(stationary, moving), a.accumulate)


def _factor(x: Arrays, view: View, onezero: bool, pairs: int) -> Any:
    """float32 ``(K * pairs, columns)`` of an operand as the array sees it."""
    values = x.load(view)
    if view.dtype is tfloat32:
        values = x.round(values, tfloat32)
    if onezero and view.dtype in WIDE:
        zero, one = (x.compare("equal", values, x.constant(number)) for number in (0.0, 1.0))
        x.check(
            x.maximum(zero, one),
            "nc_matmul.onezero-values",
            f"{view.buffer.name} was promised to hold only 0 and 1, and holds other values",
            "omit is_stationary_onezero or is_moving_onezero",
        )
    return x.reshape(values, (view.partitions * pairs, view.free_size // pairs))


def _transpose_by_matmul(a: Any, x: Arrays) -> None:
    x.check(
        x.compare("equal", x.load(a.moving), x.identity(a.moving.partitions)),
        "nc_matmul.transpose-identity",
        f"the moving operand {a.moving.buffer.name} of a transpose is not the identity matrix; the result is undefined",
        "pass an identity matrix, or omit is_transpose",
    )
    if a.accumulate:
        x.accumulate(a.dst, x.transpose(x.load(a.stationary)), True)
    else:
        move_bits(x, a.dst, a.stationary)
