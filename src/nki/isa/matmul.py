"""What the systolic array of the Tensor engine does: matmul, microscaled matmul, transpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from nki.core.access import slice_dim
from nki.core.dtypes import (
    as_dtype,
    bfloat16,
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
    float8_e8m0fnu,
    float16,
    float32,
    tfloat32,
    uint8,
)
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import FreeIndirection, MemoryRegion, View
from nki.isa.quantize import SCALES, rows_per_quadrant, scale_rules, spread_groups
from nki.isa.shared import in_psum
from nki.spec.arrays import Arrays
from nki.spec.engine import engine as Engine
from nki.spec.engine import matmul_perf_mode
from nki.spec.instruction import Deprecated, instruction
from nki.spec.operand import PSUM, SBUF, Dst, Flag, Name, Operand, Src, choice, out, source
from nki.spec.rule import Rule
from nki.target.model import Target

_ISA = "nki/api/nki/isa nc_matmul"
_MX = "nki/api/nki/isa nc_matmul_mx"
_TRANSPOSE = "nki/api/nki/isa nc_transpose"
_BIT_TRANSPOSE = "nki/guides/architecture/trainium2_arch.rst, Built-in Transpose Support"
_WIDE = (float32, tfloat32)
_INDIRECT = (float16, bfloat16, float8_e4m3, float8_e5m2, float8_e4m3fn)
_MX_DTYPES = (float8_e5m2_x4, float8_e4m3fn_x4, float4_e2m1fn_x4)

_PsumDst = Annotated[NkiTensor, out(PSUM)]
_SbufSrc = Annotated[NkiTensor, source(SBUF)]
_MxSrc = Annotated[NkiTensor, source(SBUF, _MX_DTYPES)]
_Scale = Annotated[NkiTensor, source(SBUF, SCALES, dma=True)]
_Accumulate = Annotated[bool | None, Operand("flag")]
_Pair = Annotated[tuple[int, ...], Operand("ints")]
_OptionalPair = Annotated[tuple[int, ...] | None, Operand("ints")]


# --- what operands mean


def _pairs(a: Any) -> int:
    """Contraction elements that one partition of an operand holds for each of its columns."""
    return 2 if "perf_mode" in a._fields and a.perf_mode is matmul_perf_mode.double_row else 1


def _columns(a: Any) -> int:
    return int(a.stationary.free_size // _pairs(a))


def _length(a: Any) -> int:
    return int(a.moving.free_size // _pairs(a))


def _moves_bits(a: Any, t: Target) -> bool:
    return bool(a.is_transpose) and t.pe.transpose_exact


def _inputs(a: Any) -> str:
    return f"stationary is {a.stationary.describe()}, moving is {a.moving.describe()}"


def _same_storage(dst: View, data: View) -> bool:
    return dst.dtype == data.dtype or (dst.dtype in _WIDE and data.dtype in _WIDE)


def _in_one_bank(view: View, t: Target) -> bool:
    if t.pe.multi_bank_output or view.dynamic is not None:
        return True
    base = view.buffer.address[1] if view.buffer.address else 0
    spans = [(n - 1) * s for n, s in zip(view.shape[1:], view.strides[1:], strict=True)]
    low = view.free_offset + sum(min(0, span) for span in spans)
    high = view.free_offset + sum(max(0, span) for span in spans) + 1
    first, last = base + low * view.dtype.itemsize, base + high * view.dtype.itemsize - 1
    return first // t.psum.bank_bytes == last // t.psum.bank_bytes


def _halfword_slots(view: View) -> bool:
    """Whether every element of a 1-byte PSUM view has a 16-bit slot for itself."""
    steps = [s for n, s in zip(view.shape[1:], view.strides[1:], strict=True) if n > 1]
    return view.row % 2 == 0 and view.free_offset % 2 == 0 and all(step % 2 == 0 for step in steps)


# --- rules that several of the instructions share


def _bank_rule(applies: Callable[[Any, Target], bool]) -> Rule:
    return Rule(
        "dst-bank",
        "dst lies in one PSUM bank of {t.psum.bank_bytes} bytes per partition",
        lambda a, t: not applies(a, t) or _in_one_bank(a.dst, t),
        _ISA + ", Tile size",
        "write each bank with an instruction of its own",
        lambda a, t: f"dst is {a.dst.describe()} from byte {a.dst.free_offset * a.dst.dtype.itemsize} of its partition",
    )


def _slot_rule(data: str, applies: Callable[[Any, Target], bool]) -> Rule:
    return Rule(
        "dst-step",
        "1-byte data leaves a transpose in 16-bit elements: dst starts at an even element and has an element step of 2",
        lambda a, t: getattr(a, data).dtype.itemsize > 1 or not applies(a, t) or _halfword_slots(a.dst),
        _BIT_TRANSPOSE,
        "allocate dst with a last dimension of 2, and pass its slice [..., 0]",
        lambda a, t: f"dst is {a.dst.describe()} with strides {list(a.dst.strides[1:])} from {a.dst.free_offset}",
    )


def _size_rules(at: str) -> list[Rule]:
    return [
        Rule(
            "contraction",
            "stationary and moving have the same partitions, over which the product is summed",
            lambda a, t: a.stationary.partitions == a.moving.partitions,
            at,
            "slice both operands to the same partitions",
            lambda a, t: _inputs(a),
        ),
        Rule(
            "stationary-size",
            "stationary has at most {t.pe.max_stationary_free} columns",
            lambda a, t: _columns(a) <= t.pe.max_stationary_free,
            at,
            "tile stationary in pieces of {t.pe.max_stationary_free} columns",
            lambda a, t: f"stationary has {_columns(a)} columns",
        ),
        Rule(
            "moving-size",
            "moving has at most {t.pe.max_moving_free_f32} columns, or {t.pe.max_moving_free_bf16} for a 2-byte dst",
            lambda a, t: _length(a) <= t.pe.max_moving(a.dst.dtype),
            at,
            "tile moving and dst",
            lambda a, t: f"moving has {_length(a)} columns, dst is {a.dst.dtype}",
        ),
        Rule(
            "dst-shape",
            "dst has a partition for each column of stationary and an element for each column of moving",
            lambda a, t: (a.dst.partitions, a.dst.free_size) == (_columns(a), _length(a)),
            at,
            "slice dst to (columns of stationary, columns of moving)",
            lambda a, t: (
                f"dst is {a.dst.partitions} x {a.dst.free_size}, stationary has {_columns(a)} columns, "
                f"moving {_length(a)}"
            ),
        ),
    ]


def _tile_position(a: Any) -> tuple[int, ...]:
    return tuple(a.tile_position or (0, 0))


def _tile_size(a: Any, t: Target) -> tuple[int, ...]:
    return tuple(a.tile_size or (t.pe.rows, t.pe.columns))


def _tile(a: Any) -> str:
    return f"tile_position is {a.tile_position}, tile_size is {a.tile_size}"


def _given_together(a: Any, t: Target) -> bool:
    """A lone argument is accepted where it says what is the default anyway."""
    position, size = _tile_position(a), _tile_size(a, t)
    both = bool(a.tile_position) and bool(a.tile_size)
    whole = position == (0, 0) and size == (t.pe.rows, t.pe.columns)
    return len(position) == len(size) == 2 and (both or whole)


def _tile_rules(at: str, columns: Callable[[Target], tuple[int, ...]], sizes: str) -> list[Rule]:
    def sized(a: Any, t: Target) -> bool:
        size = _tile_size(a, t)
        return len(size) != 2 or (size[0] in t.pe.row_tile_sizes and size[1] in columns(t))

    def placed(a: Any, t: Target) -> bool:
        limits = (t.pe.rows, t.pe.columns)
        found = zip(_tile_position(a), _tile_size(a, t), limits, strict=False)
        return all(start in range(0, limit, max(size, 1)) for start, size, limit in found)

    def fits(a: Any, t: Target) -> bool:
        size = _tile_size(a, t)
        return len(size) != 2 or (a.stationary.partitions <= size[0] and _columns(a) <= size[1])

    return [
        Rule(
            "tile-both",
            "tile_position and tile_size are pairs (row, column) that are given together",
            _given_together,
            at + ", Tiling mode",
            "give both, or neither for the whole array",
            lambda a, t: _tile(a),
        ),
        Rule(
            "tile-size",
            sizes,
            sized,
            at + ", Tiling mode",
            "use one of these sizes",
            lambda a, t: f"tile_size is {a.tile_size}",
        ),
        Rule(
            "tile-position",
            "a tile starts at a multiple of its size inside the array of {t.pe.rows} x {t.pe.columns}",
            placed,
            at + ", Tiling mode",
            "use a multiple of tile_size",
            lambda a, t: _tile(a),
        ),
        Rule(
            "tile-fit",
            "stationary fits the tile: its partitions the rows, its columns the columns",
            fits,
            at + ", Tile size",
            "use a larger tile, or a smaller stationary",
            lambda a, t: f"stationary is {a.stationary.partitions} x {_columns(a)}, tile_size is {a.tile_size}",
        ),
    ]


def _index(view: View) -> FreeIndirection | None:
    return view.dynamic if isinstance(view.dynamic, FreeIndirection) else None


def _any_indirect(a: Any, names: tuple[str, ...] = ("dst", "stationary", "moving")) -> bool:
    return any(_index(getattr(a, name)) is not None for name in names)


def _start(view: View) -> int | None:
    return view.start_partition if view.buffer.address is not None else None


def _agree(first: int | None, second: int | None) -> bool:
    return first is None or second is None or first == second


def _indices_aligned(a: Any, t: Target) -> bool:
    """The base partitions of manually allocated operands; the allocator takes care of all others."""
    for operand, reference in ((a.dst, a.stationary), (a.stationary, a.stationary), (a.moving, a.moving)):
        index = _index(operand)
        if index is not None:
            start = _start(index.indices)
            if (start or 0) % t.quadrant or not _agree(start, _start(reference)):
                return False
    return True


def _indirect_rules(at: str) -> list[Rule]:
    return [
        Rule(
            "indirect-tiling",
            "tensor indirection works on the whole array: tile_position is (0, 0) or omitted",
            lambda a, t: not _any_indirect(a) or _tile_position(a) == (0, 0),
            at + ", Tensor indirection",
            "omit tile_position and tile_size",
            lambda a, t: _tile(a),
        ),
        Rule(
            "indirect-start",
            "an index with an explicit address starts at a multiple of {t.quadrant}, at the partition of its operand, "
            "and for dst at the partition of stationary",
            _indices_aligned,
            at + ", Tensor indirection",
            "allocate the index at that partition",
        ),
    ]


_REMOVED_MASK = Deprecated(
    "mask", "slice the operands instead", lambda value, bound: value is None, "masks no longer exist"
)


# --- nc_matmul


def _one_float_kind(a: Any, t: Target) -> bool:
    return (a.stationary.dtype in _WIDE) == (a.moving.dtype in _WIDE)


def _dst_dtype(a: Any, t: Target) -> bool:
    if _moves_bits(a, t):
        return _same_storage(a.dst, a.stationary)
    return a.dst.dtype in t.pe.psum_dtypes


def _double(a: Any) -> bool:
    return _pairs(a) == 2


def _splits_in_two(view: View) -> bool:
    return view.ndim > 2 and view.shape[1] == 2


_DOUBLE_ROW_RULES = [
    Rule(
        "double-row-target",
        "double_row exists on the target",
        lambda a, t: not _double(a) or t.pe.double_row,
        _ISA + ", Performance mode",
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
        _ISA + ", Data types",
        "cast both operands to an 8-bit float, or omit perf_mode",
        lambda a, t: _inputs(a),
    ),
    Rule(
        "double-row-shape",
        "under double_row the first free dimension of both operands is 2: the two halves of the contraction",
        lambda a, t: not _double(a) or (_splits_in_two(a.stationary) and _splits_in_two(a.moving)),
        _ISA + ", Layout",
        "shape the operands as (partitions, 2, columns); pad an odd contraction with zeros",
        lambda a, t: _inputs(a),
    ),
    Rule(
        "double-row-mode",
        "double_row excludes transpose mode and tiles of fewer columns",
        lambda a, t: not _double(a) or (not a.is_transpose and _tile_size(a, t)[-1] == t.pe.columns),
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
        _ISA + ", Data types",
        "cast the operand, for example to bfloat16",
        lambda a, t: f"{_inputs(a)}, the target is {t.name}",
    ),
    Rule(
        "mixed-float32",
        "float32 and tfloat32 multiply only each other",
        _one_float_kind,
        _ISA + ", Data types",
        "cast one operand to the kind of the other",
        lambda a, t: _inputs(a),
    ),
    Rule(
        "mixed-float8",
        "float8_e4m3 and float8_e4m3fn do not meet in one matmul",
        lambda a, t: {a.stationary.dtype, a.moving.dtype} != {float8_e4m3, float8_e4m3fn},
        _ISA + ", Data types",
        "use the same e4m3 format for both operands",
        lambda a, t: _inputs(a),
    ),
    Rule(
        "dst-dtype",
        "dst has a PSUM dtype of the target; in bit-exact transpose mode it has the dtype of stationary",
        _dst_dtype,
        _ISA + ", Data types; trainium2_arch.rst, Built-in Transpose Support",
        "allocate dst as float32, or for a transpose with the dtype of stationary",
        lambda a, t: f"dst is {a.dst.dtype}, stationary is {a.stationary.dtype}, is_transpose is {a.is_transpose}",
    ),
]

_TRANSPOSE_RULES = [
    Rule(
        "transpose-moving",
        "the moving operand of a transpose is an identity matrix as large as stationary has partitions",
        lambda a, t: not _moves_bits(a, t) or a.moving.free_size == a.stationary.partitions,
        _ISA + ", Transpose mode",
        "slice the identity matrix to [0:K, 0:K]",
        lambda a, t: _inputs(a),
    ),
    _slot_rule("stationary", _moves_bits),
    Rule(
        "transpose-accumulate",
        "accumulate=True needs a PSUM dtype that accumulates",
        lambda a, t: not (_moves_bits(a, t) and a.accumulate) or a.dst.dtype in t.pe.psum_dtypes,
        "nki/guides/architecture/trainium3_arch.rst, BF16 Matmul Results in PSUM",
        "omit accumulate",
        lambda a, t: f"dst is {a.dst.dtype}, the target is {t.name}",
    ),
]

_MATMUL_INDIRECT_RULES = [
    Rule(
        "indirect-target",
        "tensor indirection exists on the target",
        lambda a, t: not _any_indirect(a) or t.has("tensor_indirection"),
        _ISA + ", Tensor indirection",
        "gather with nisa.nc_n_gather, or one instruction per slice",
        lambda a, t: f"the target is {t.name}",
    ),
    Rule(
        "indirect-transpose",
        "the moving operand of a transpose has a plain address",
        lambda a, t: not a.is_transpose or _index(a.moving) is None,
        _ISA + ", Tensor indirection",
        "pass the identity matrix as it is",
    ),
    Rule(
        "indirect-dtype",
        "indirect stationary and moving operands hold 16-bit or 8-bit floats",
        lambda a, t: all(_index(v) is None or v.dtype in _INDIRECT for v in (a.stationary, a.moving)),
        _ISA + ", Tensor indirection",
        "cast the operand to bfloat16",
        lambda a, t: _inputs(a),
    ),
]


@instruction(
    engines=(Engine.tensor,),
    source=_ISA,
    rules=[
        *_DOUBLE_ROW_RULES,
        *_DTYPE_RULES,
        *_TRANSPOSE_RULES,
        *_MATMUL_INDIRECT_RULES,
        *_indirect_rules(_ISA),
        *_size_rules(_ISA),
        *_tile_rules(
            _ISA,
            lambda t: t.pe.column_tile_sizes,
            "the rows of a tile are one of {t.pe.row_tile_sizes}, its columns one of {t.pe.column_tile_sizes}",
        ),
        _bank_rule(lambda a, t: True),
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
        _REMOVED_MASK,
    ],
)
def nc_matmul(
    dst: _PsumDst,
    stationary: _SbufSrc,
    moving: _SbufSrc,
    is_stationary_onezero: Flag = False,
    is_moving_onezero: Flag = False,
    is_transpose: Flag = False,
    accumulate: _Accumulate = None,
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
        accumulate: True adds to dst, which a matmul must have written; False overwrites; None overwrites each location
            at its first write and adds from then on.
        tile_position, tile_size: (row, column) start and size of the part of the array to use, so that small matmuls
            run side by side.
    """


@nc_matmul.body
def _(a: Any, x: Arrays) -> None:
    if _moves_bits(a, x.target):
        _transpose_by_matmul(a, x)
        return
    stationary = _factor(x, a.stationary, a.is_stationary_onezero, _pairs(a))
    moving = _factor(x, a.moving, a.is_moving_onezero, _pairs(a))
    x.accumulate(a.dst, x.matmul(stationary, moving), a.accumulate)


def _factor(x: Arrays, view: View, onezero: bool, pairs: int) -> Any:
    """float32 ``(K * pairs, columns)`` of an operand as the array sees it."""
    values = x.load(view)
    if view.dtype is tfloat32:
        values = x.round(values, tfloat32)
    if onezero and view.dtype in _WIDE:
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
        _move_bits(x, a.dst, a.stationary)


def _move_bits(x: Arrays, dst: View, data: View) -> None:
    """Transpose storage values; 1-byte ones get a zero byte above."""
    x.store_raw(dst, x.transpose(x.load_raw(data)))
    if dst.dtype.itemsize == 1:
        upper = dst._replace(offset=dst.offset + 1, dtype=dst.dtype if dst.dtype.is_float else uint8)
        x.store(upper, x.constant(0.0))


# --- nc_matmul_mx


def _same_index(data: str, scale: str) -> Rule:
    return Rule(
        f"indirect-{data}",
        f"{data} and {scale} use the same index, or none",
        lambda a, t: _index(getattr(a, data)) == _index(getattr(a, scale)),
        _MX + ", Tensor indirection",
        "call .indirect(index) on both with the same index",
    )


@instruction(
    engines=(Engine.tensor,),
    feature="nc_matmul_mx",
    source=_MX,
    rules=[
        Rule(
            "partitions",
            "stationary and moving have a multiple of {t.quadrant} partitions",
            lambda a, t: a.stationary.partitions % t.quadrant == 0,
            _MX + ", Tile size",
            "pad the contraction to a multiple of {t.quadrant} partitions",
            lambda a, t: _inputs(a),
        ),
        Rule(
            "stationary-even",
            "stationary has an even number of columns",
            lambda a, t: a.stationary.free_size % 2 == 0,
            _MX + ", Tile size",
            "pad stationary with a column",
            lambda a, t: _inputs(a),
        ),
        *_size_rules(_MX + ", Tile size"),
        *_tile_rules(
            _MX,
            lambda t: (t.pe.columns,),
            "a tile has one of {t.pe.row_tile_sizes} rows and all {t.pe.columns} columns",
        ),
        _same_index("stationary", "stationary_scale"),
        _same_index("moving", "moving_scale"),
        *_indirect_rules(_MX),
        *scale_rules("stationary_scale", "stationary"),
        *scale_rules("moving_scale", "moving"),
    ],
)
def nc_matmul_mx(
    dst: Annotated[NkiTensor, out(PSUM, (float32, bfloat16))],
    stationary: _MxSrc,
    moving: _MxSrc,
    stationary_scale: _Scale,
    moving_scale: _Scale,
    tile_position: _OptionalPair = None,
    tile_size: _OptionalPair = None,
    accumulate: _Accumulate = None,
    name: Name = None,
) -> None:
    """Matmul of microscaled (MX) operands: sums over the partitions and the 4 values of each packed element.

    ``dst[m, n] = sum over p and q of stationary[p, m, q] * 2**(ss - 127) * moving[p, n, q] * 2**(ms - 127)``, where
    8 partitions x 4 values share the scale bytes ss and ms; 255 means NaN. All of it is float32. FP8 and FP4 operands
    mix.

    Args:
        dst: PSUM ``(M, N)``, float32 or bfloat16 (rounded at each accumulation).
        stationary, moving: SBUF ``(P, M)`` and ``(P, N)`` of x4 dtypes; P a multiple of 32, M even.
        stationary_scale, moving_scale: float8_e8m0fnu or uint8, laid out as nisa.quantize_mx does; a view may start at
            row 0, 4, 8 or 12 of a quadrant.
        tile_position, tile_size: as in nisa.nc_matmul, with all columns.
        accumulate: as in nisa.nc_matmul.
    """


@nc_matmul_mx.body
def _(a: Any, x: Arrays) -> None:
    stationary = _mx_blocks(x, a.stationary, a.stationary_scale)
    moving = _mx_blocks(x, a.moving, a.moving_scale)
    product = x.matmul(stationary[0], moving[0])
    for left, right in zip(stationary[1:], moving[1:], strict=True):
        product = x.add(product, x.matmul(left, right))
    x.accumulate(a.dst, product, a.accumulate)


def _mx_blocks(x: Arrays, data: View, scale: View) -> list[Any]:
    """Dequantized values of each quadrant, ``(4 * 32, columns)``: lane by lane, the partitions of the quadrant."""
    size, pack = x.target.quadrant, x.target.pe.mx_pack
    lanes = x.unpack_x4(x.load_raw(data), data.dtype)
    blocks = []
    for first in range(0, data.partitions, size):
        scales = spread_groups(x, _scale_rows(x, scale, first))
        values = x.multiply(x.rows(lanes, first, size), scales)
        by_lane = x.transpose(x.reshape(values, (size * data.free_size, pack)))
        blocks.append(x.reshape(by_lane, (pack * size, data.free_size)))
    return blocks


def _scale_rows(x: Arrays, scale: View, first: int) -> Any:
    """Scales of the quadrant from row `first`; only these rows are read, for others may be unwritten."""
    view, count = scale._replace(dtype=float8_e8m0fnu), rows_per_quadrant(x.target)
    if _index(view) is not None:
        return x.rows(x.load(view), first, count)
    return x.load(slice_dim(view, 0, first, first + count))


# --- nc_transpose


def _transpose_engine(a: Any, t: Target) -> Engine:
    """As the buffers demand: only the Tensor engine is unable to read PSUM or to write SBUF."""
    if a.engine is not Engine.unknown:
        return Engine(a.engine)
    return Engine.tensor if in_psum(a.dst) and a.data.region is MemoryRegion.sbuf else Engine.vector


def _by_tensor(a: Any, t: Target) -> bool:
    return _transpose_engine(a, t) is Engine.tensor


def _by_bits(a: Any, t: Target) -> bool:
    return _by_tensor(a, t) and t.pe.transpose_exact


def _by_product(a: Any, t: Target) -> bool:
    return _by_tensor(a, t) and not t.pe.transpose_exact


@instruction(
    moves_bits=True,
    engines=(Engine.tensor, Engine.vector),
    choose=_transpose_engine,
    source=_TRANSPOSE,
    rules=[
        Rule(
            "engine-memory",
            "the Tensor engine transposes from SBUF to PSUM",
            lambda a, t: not _by_tensor(a, t) or (in_psum(a.dst) and a.data.region is MemoryRegion.sbuf),
            _TRANSPOSE + ", Memory types",
            "use engine=nisa.engine.vector, or a dst in PSUM and data in SBUF",
            lambda a, t: f"dst is in {a.dst.region}, data is in {a.data.region}",
        ),
        Rule(
            "dtype",
            "dst has the dtype of data; float32 too where the Tensor engine multiplies",
            lambda a, t: _same_storage(a.dst, a.data) or (_by_product(a, t) and a.dst.dtype == float32),
            _TRANSPOSE + ", Data types",
            "allocate dst with the dtype of data",
            lambda a, t: f"dst is {a.dst.dtype}, data is {a.data.dtype}",
        ),
        Rule(
            "input-dtype",
            "without bit-exact transposes the Tensor engine multiplies by an identity matrix and takes floats only",
            lambda a, t: not _by_product(a, t) or a.data.dtype in t.pe.input_dtypes,
            _TRANSPOSE + "; nc_matmul, Data types",
            "use engine=nisa.engine.vector, or cast the data",
            lambda a, t: f"data is {a.data.dtype}, the target is {t.name}",
        ),
        Rule(
            "size",
            "the Tensor engine transposes up to {t.limits.tensor_transpose} x {t.limits.tensor_transpose}, "
            "the Vector engine up to {t.limits.vector_transpose} x {t.limits.vector_transpose}",
            lambda a, t: (
                max(a.data.partitions, a.data.free_size)
                <= (t.limits.tensor_transpose if _by_tensor(a, t) else t.limits.vector_transpose)
            ),
            _TRANSPOSE + ", Tile size",
            "tile data, or use the Tensor engine with a dst in PSUM",
            lambda a, t: f"data is {a.data.partitions} x {a.data.free_size} on {_transpose_engine(a, t).name}",
        ),
        Rule(
            "shape",
            "dst has a partition for each element of data's partitions, and an element for each partition of data",
            lambda a, t: (a.dst.partitions, a.dst.free_size) == (a.data.free_size, a.data.partitions),
            _TRANSPOSE + ", Layout",
            "swap both sizes",
            lambda a, t: (
                f"dst is {a.dst.partitions} x {a.dst.free_size}, data is {a.data.partitions} x {a.data.free_size}"
            ),
        ),
        _slot_rule("data", _by_bits),
        _bank_rule(_by_tensor),
    ],
    deprecated=[
        Deprecated(
            "dtype",
            "give dst the dtype that the result should have",
            lambda value, bound: as_dtype(value) == bound["dst"].dtype,
            "it differs from the dtype of dst",
        ),
        _REMOVED_MASK,
    ],
)
def nc_transpose(
    dst: Dst, data: Src, engine: Annotated[Engine, choice(Engine)] = Engine.unknown, name: Name = None
) -> None:
    """``dst = data.T``: partitions become elements, and the flattened free dimensions become partitions.

    Bits are moved, whatever the dtype. On NeuronCore-v2 the Tensor engine multiplies floats by an identity matrix
    instead: NaN or an infinity spoils its row of dst, and dst may be float32. From NeuronCore-v3 on, 1-byte elements
    leave the Tensor engine in 16-bit slots, the upper byte zero: dst steps by 2 elements.

    Args:
        dst: same dtype; PSUM for the Tensor engine, SBUF or PSUM for the Vector engine.
        data: SBUF for the Tensor engine (up to 128 x 128), SBUF or PSUM for the Vector engine (up to 32 x 32).
        engine: tensor or vector; by default Tensor from SBUF to PSUM, else Vector.
    """


@nc_transpose.body
def _(a: Any, x: Arrays) -> None:
    if x.engine is Engine.vector:
        x.store_raw(a.dst, x.transpose(x.load_raw(a.data)))
    elif x.target.pe.transpose_exact:
        _move_bits(x, a.dst, a.data)
    else:
        x.accumulate(a.dst, x.matmul(x.load(a.data), x.identity(a.data.partitions)), False)
