"""What the instructions of the Tensor engine have in common: sizes, tiles of the array, PSUM banks, indirection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from nki.core.dtypes import float32, tfloat32
from nki.core.tensor import FreeIndirection, View
from nki.spec.engine import matmul_perf_mode
from nki.spec.instruction import Deprecated
from nki.spec.operand import Operand
from nki.spec.rule import Rule
from nki.target.model import Target

MATMUL = "nki/api/nki/isa nc_matmul"
"""The document of the rules of nc_matmul."""

_BIT_TRANSPOSE = "nki/guides/architecture/trainium2_arch.rst, Built-in Transpose Support"
WIDE = (float32, tfloat32)
"""Stored in 32 bits; they multiply only each other."""

Accumulate = Annotated[bool | None, Operand("flag")]


# --- what operands mean


def pairs_of(a: Any) -> int:
    """Contraction elements that one partition of an operand holds for each of its columns."""
    return 2 if "perf_mode" in a._fields and a.perf_mode is matmul_perf_mode.double_row else 1


def columns_of(a: Any) -> int:
    """Columns of stationary."""
    return int(a.stationary.free_size // pairs_of(a))


def length_of(a: Any) -> int:
    """Columns of moving."""
    return int(a.moving.free_size // pairs_of(a))


def moves_bits(a: Any, t: Target) -> bool:
    """Whether a matmul in transpose mode moves bits instead of multiplying."""
    return bool(a.is_transpose) and t.pe.transpose_exact


def inputs(a: Any) -> str:
    """Both operands, for messages."""
    return f"stationary is {a.stationary.describe()}, moving is {a.moving.describe()}"


def same_storage(dst: View, data: View) -> bool:
    """Whether bits can move from one to the other: float32 and tfloat32 are stored alike."""
    return dst.dtype == data.dtype or (dst.dtype in WIDE and data.dtype in WIDE)


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


def bank_rule(applies: Callable[[Any, Target], bool]) -> Rule:
    """Where `applies` holds, dst stays in one PSUM bank, unless the target writes several."""
    return Rule(
        "dst-bank",
        "dst lies in one PSUM bank of {t.psum.bank_bytes} bytes per partition",
        lambda a, t: not applies(a, t) or _in_one_bank(a.dst, t),
        MATMUL + ", Tile size",
        "write each bank with an instruction of its own",
        lambda a, t: f"dst is {a.dst.describe()} from byte {a.dst.free_offset * a.dst.dtype.itemsize} of its partition",
    )


def slot_rule(data: str, applies: Callable[[Any, Target], bool]) -> Rule:
    """Where `applies` holds, 1-byte results of a transpose take every other element of dst."""
    return Rule(
        "dst-step",
        "1-byte data leaves a transpose in 16-bit elements: dst starts at an even element and has an element step of 2",
        lambda a, t: getattr(a, data).dtype.itemsize > 1 or not applies(a, t) or _halfword_slots(a.dst),
        _BIT_TRANSPOSE,
        "allocate dst with a last dimension of 2, and pass its slice [..., 0]",
        lambda a, t: f"dst is {a.dst.describe()} with strides {list(a.dst.strides[1:])} from {a.dst.free_offset}",
    )


def _contraction_remedy(a: Any, t: Target) -> str:
    """A stationary of rows, as in NumPy's products, is the usual mistake."""
    if columns_of(a) == a.moving.partitions:
        return "transpose stationary if it is (M, K): it must be (K, M); else slice both to the same partitions"
    return "slice both operands to the same partitions"


def _stationary_remedy(a: Any, t: Target) -> str:
    """Exchanged operands are the usual mistake where they would fit the other way round."""
    tiled = f"tile stationary in pieces of {t.pe.max_stationary_free} columns"
    if length_of(a) < t.pe.max_stationary_free and columns_of(a) <= t.pe.max_moving_free_f32:
        return f"{tiled}; or exchange stationary and moving, if a dst of ({length_of(a)}, {columns_of(a)}) is meant"
    return tiled


def size_rules(at: str) -> list[Rule]:
    """How the shapes of stationary, moving and dst fit together and into the array."""
    return [
        Rule(
            "contraction",
            "stationary and moving have the same partitions, over which the product is summed",
            lambda a, t: a.stationary.partitions == a.moving.partitions,
            at,
            "slice both operands to the same partitions",
            lambda a, t: inputs(a),
            remedy=_contraction_remedy,
        ),
        Rule(
            "stationary-size",
            "stationary has at most {t.pe.max_stationary_free} columns",
            lambda a, t: columns_of(a) <= t.pe.max_stationary_free,
            at,
            "tile stationary in pieces of {t.pe.max_stationary_free} columns",
            lambda a, t: f"stationary has {columns_of(a)} columns",
            remedy=_stationary_remedy,
        ),
        Rule(
            "moving-size",
            "moving has at most {t.pe.max_moving_free_f32} columns for a 4-byte dst, "
            "{t.pe.max_moving_free_bf16} for a 2-byte one",
            lambda a, t: length_of(a) <= t.pe.max_moving(a.dst.dtype),
            at,
            "tile moving and dst",
            lambda a, t: f"moving has {length_of(a)} columns, dst is {a.dst.dtype}",
            remedy=lambda a, t: f"tile moving and dst in pieces of {t.pe.max_moving(a.dst.dtype)} columns",
        ),
        Rule(
            "dst-shape",
            "dst has a partition for each column of stationary and an element for each column of moving",
            lambda a, t: (a.dst.partitions, a.dst.free_size) == (columns_of(a), length_of(a)),
            at,
            "slice dst to (columns of stationary, columns of moving)",
            lambda a, t: (
                f"dst is {a.dst.partitions} x {a.dst.free_size}, stationary has {columns_of(a)} columns, "
                f"moving {length_of(a)}"
            ),
        ),
    ]


def _tile_position(a: Any) -> tuple[int, ...]:
    return tuple(a.tile_position or (0, 0))


def tile_size_of(a: Any, t: Target) -> tuple[int, ...]:
    """Rows and columns of the part of the array in use."""
    return tuple(a.tile_size or (t.pe.rows, t.pe.columns))


def _tile(a: Any) -> str:
    return f"tile_position is {a.tile_position or 'missing'}, tile_size is {a.tile_size or 'missing'}"


def _given_together(a: Any, t: Target) -> bool:
    """A lone argument is accepted where it says what is the default anyway."""
    position, size = _tile_position(a), tile_size_of(a, t)
    both = bool(a.tile_position) and bool(a.tile_size)
    whole = position == (0, 0) and size == (t.pe.rows, t.pe.columns)
    return len(position) == len(size) == 2 and (both or whole)


def tile_rules(at: str, columns: Callable[[Target], tuple[int, ...]], sizes: str) -> list[Rule]:
    """Tiling mode, with the column counts that a target allows and a sentence about the sizes."""

    def sized(a: Any, t: Target) -> bool:
        size = tile_size_of(a, t)
        return len(size) != 2 or (size[0] in t.pe.row_tile_sizes and size[1] in columns(t))

    def placed(a: Any, t: Target) -> bool:
        limits = (t.pe.rows, t.pe.columns)
        found = zip(_tile_position(a), tile_size_of(a, t), limits, strict=False)
        return all(start in range(0, limit, max(size, 1)) for start, size, limit in found)

    def fits(a: Any, t: Target) -> bool:
        size = tile_size_of(a, t)
        return len(size) != 2 or (a.stationary.partitions <= size[0] and columns_of(a) <= size[1])

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
            lambda a, t: (
                f"stationary is {a.stationary.partitions} x {columns_of(a)}, tile_size is {tile_size_of(a, t)}"
            ),
        ),
    ]


def index_of(view: View) -> FreeIndirection | None:
    """The indirection of a view, if it has one."""
    return view.dynamic if isinstance(view.dynamic, FreeIndirection) else None


def any_indirect(a: Any, names: tuple[str, ...] = ("dst", "stationary", "moving")) -> bool:
    """Whether one of the operands is gathered or scattered."""
    return any(index_of(getattr(a, name)) is not None for name in names)


def _start(view: View) -> int | None:
    return view.start_partition if view.buffer.address is not None else None


def _agree(first: int | None, second: int | None) -> bool:
    return first is None or second is None or first == second


def _indices_aligned(a: Any, t: Target) -> bool:
    """The base partitions of manually allocated operands; the allocator takes care of all others."""
    for operand, reference in ((a.dst, a.stationary), (a.stationary, a.stationary), (a.moving, a.moving)):
        index = index_of(operand)
        if index is not None:
            start = _start(index.indices)
            if (start or 0) % t.quadrant or not _agree(start, _start(reference)):
                return False
    return True


def indirect_rules(at: str) -> list[Rule]:
    """Where an index may lie, and that the whole array is in use."""
    return [
        Rule(
            "indirect-tiling",
            "tensor indirection works on the whole array: tile_position is (0, 0) or omitted",
            lambda a, t: not any_indirect(a) or _tile_position(a) == (0, 0),
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


REMOVED_MASK = Deprecated(
    "mask", "slice the operands instead", lambda value, bound: value is None, "masks no longer exist"
)
