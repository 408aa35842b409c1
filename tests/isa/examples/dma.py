"""Examples of dma_copy, dma_transpose and dma_compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki.core import dtypes
from nki.isa import alu, dma_compute, dma_transpose
from nki.isa.register import register_alloc
from tests.isa.registry import Breaks, Legal
from tests.isa.tiles import dma_load as load
from tests.isa.tiles import store

V3 = ("trn2", "trn3")
BF16 = ml_dtypes.bfloat16


def normal(*shapes: tuple[int, ...], dtype: Any = np.float32) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        r = np.random.default_rng(5)
        return tuple((r.standard_normal(shape) * 40).astype(dtype) for shape in shapes)

    return make


def table_and_rows(
    shape: tuple[int, ...], rows: Any, dtype: Any = np.float32, index_dtype: Any = np.int32
) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        values = np.random.default_rng(6).standard_normal(shape) * 40
        return values.astype(dtype), np.asarray(rows, index_dtype)

    return make


def gathered(data: Any, index: Any) -> Any:
    """The rows of `data` that an SBUF tensor (n, 1) names."""
    width = int(np.prod(data.shape[1:]))
    return data.ap(pattern=[[width, index.shape[0]], [1, width]], vector_offset=index, indirect_dim=0)


# --- dma_copy


def copy_reshaped(a: Any) -> Any:
    tile = nl.ndarray((16, 6, 4), a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    out = nl.ndarray((384,), a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def copy_cast(dtype: Any) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        return store(load(a, dtype))

    return kernel


def copy_strided(a: Any) -> Any:
    tile = nl.ndarray((8, 24), a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0.0)
    nisa.dma_copy(dst=tile[:, 1:24:2], src=a.permute((1, 0)))
    return store(tile)


def strided_reference(a: Any) -> Any:
    out = np.zeros((8, 24), a.dtype)
    for i in range(12):
        for j in range(8):
            out[j, 1 + 2 * i] = a[i, j]
    return out


def copy_gather(data: Any, rows: Any) -> Any:
    tile = nl.ndarray((rows.shape[0], data.shape[1]), data.dtype, buffer=nl.sbuf)
    index = load(rows)
    nisa.dma_copy(dst=tile, src=gathered(data, index), dge_mode=nisa.dge_mode.swdge)
    return store(tile)


def copy_scatter(data: Any, rows: Any) -> Any:
    out = nl.ndarray((9, data.shape[1]), data.dtype, buffer=nl.shared_hbm)
    zero = nl.ndarray((9, data.shape[1]), data.dtype, buffer=nl.sbuf)
    nisa.memset(dst=zero, value=0.0)
    nisa.dma_copy(dst=out, src=zero)
    index = load(rows)
    nisa.dma_copy(dst=out.vector_select(0, index), src=load(data))
    return out


def scatter_reference(data: Any, rows: Any) -> Any:
    out = np.zeros((9, data.shape[1]), data.dtype)
    for p, row in enumerate(rows[:, 0]):
        out[row] = data[p]
    return out


def copy_scalar(data: Any, start: Any) -> Any:
    by_tensor = nl.ndarray((2, data.shape[1]), data.dtype, buffer=nl.sbuf)
    width, index = data.shape[1], load(start)
    nisa.dma_copy(dst=by_tensor, src=data.ap(pattern=[[width, 2], [1, width]], scalar_offset=index))
    by_register = nl.ndarray((4, data.shape[0]), data.dtype, buffer=nl.sbuf)
    pattern = [[1, 4], [width, data.shape[0]]]
    nisa.dma_copy(dst=by_register, src=data.ap(pattern=pattern, scalar_offset=register_alloc(5), indirect_dim=1))
    return store(by_tensor), store(by_register)


def copy_modes(a: Any) -> Any:
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.scalar, name="first")
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile, dge_mode=nisa.dge_mode.none, oob_mode=nisa.oob_mode.skip)
    return out


def copy_priority(a: Any) -> Any:
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, a, 3)
    return store(tile)


def copy_fewer(a: Any) -> Any:
    tile = load(a)
    nisa.dma_copy(dst=tile[:, 0:4], src=a)
    return store(tile)


def copy_packed(a: Any) -> Any:
    tile = nl.ndarray(a.shape, dtypes.float8_e4m3fn_x4, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    return store(load(a))


def copy_with(**options: Any) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, options.get("dtype", a.dtype), buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a, **{k: v for k, v in options.items() if k != "dtype"})
        return store(tile)

    return kernel


def copy_gather_hwdge(data: Any, rows: Any) -> Any:
    tile = nl.ndarray((rows.shape[0], data.shape[1]), data.dtype, buffer=nl.sbuf)
    index = load(rows)
    nisa.dma_copy(dst=tile, src=gathered(data, index), dge_mode=nisa.dge_mode.hwdge)
    return store(tile)


def copy_from_indirect(a: Any, index: Any) -> Any:
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    offsets = load(index)
    nisa.dma_copy(dst=tile, src=load(a).indirect(offsets, a.shape[1]))
    return store(tile)


# --- dma_transpose


def transposed(dst_shape: tuple[int, ...], **options: Any) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(dst_shape, a.dtype, buffer=nl.sbuf)
        dma_transpose(dst=tile, src=a, **options)
        return store(tile)

    return kernel


def transpose_to_hbm(mode: Any) -> Callable[[Any], Any]:
    def kernel(a: Any) -> Any:
        out = nl.ndarray((a.shape[1], a.shape[0]), a.dtype, buffer=nl.shared_hbm)
        dma_transpose(dst=out, src=a, dge_mode=mode)
        return out

    return kernel


def transpose_mixed(a: Any) -> Any:
    tile = nl.ndarray((8, 16), BF16, buffer=nl.sbuf)
    dma_transpose(dst=tile, src=a)
    return store(tile)


def psum_scalar() -> Any:
    start = nl.ndarray((1, 1), dtypes.int32, buffer=nl.psum)
    nisa.memset(dst=start, value=3)
    return start


def transpose_sbuf(a: Any) -> Any:
    tile = nl.ndarray((a.shape[1], a.shape[0]), a.dtype, buffer=nl.sbuf)
    dma_transpose(tile, load(a))
    return store(tile)


def transpose_gathered(data: Any, index: Any) -> Any:
    rows, width = index.shape[0] * index.shape[1], data.shape[1]
    tile = nl.ndarray((width, rows), data.dtype, buffer=nl.sbuf)
    rows_tile = load(index)
    source = data.ap(pattern=[[width, rows], [1, width]], vector_offset=rows_tile)
    dma_transpose(dst=tile, src=source, axes=(1, 0), dge_mode=nisa.dge_mode.swdge)
    return store(tile)


def transpose_gathered_reference(data: Any, index: Any) -> Any:
    chosen = [int(index[p, c]) for c in range(index.shape[1]) for p in range(index.shape[0])]
    return np.stack([data[row] for row in chosen], axis=1)


def transpose_gathered_4d(data: Any, index: Any) -> Any:
    _, middle, _, width = data.shape
    tile = nl.ndarray((width, middle, 1, index.shape[0]), data.dtype, buffer=nl.sbuf)
    rows = load(index)
    dma_transpose(dst=tile, src=data.vector_select(0, rows))
    return store(tile)


def transpose_source(make: Callable[[Any, Any], Any], **options: Any) -> Callable[[Any, Any], Any]:
    """A kernel that transposes whatever `make` makes of the table and the index."""

    def kernel(data: Any, index: Any) -> Any:
        view = make(data, index)
        order = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[view.ndim]
        tile = nl.ndarray(tuple(view.shape[axis] for axis in order), data.dtype, buffer=nl.sbuf)
        dma_transpose(dst=tile, src=view, **options)
        return store(tile)

    return kernel


def transpose_scattered(data: Any, index: Any) -> Any:
    out = nl.ndarray((8, 16), data.dtype, buffer=nl.shared_hbm)
    dma_transpose(dst=out.vector_select(0, load(index)), src=load(data))
    return out


def transpose_oob(a: Any) -> Any:
    tile = nl.ndarray((a.shape[1], a.shape[0]), a.dtype, buffer=nl.sbuf)
    dma_transpose(dst=tile, src=a, oob_mode=nisa.oob_mode.skip)
    return store(tile)


def tall(rows: int, columns: int = 1, dtype: Any = np.uint32, width: int = 32) -> Callable[[], tuple[Any, ...]]:
    index = np.random.default_rng(7).integers(0, 40, (rows, columns))
    return table_and_rows((40, width), index, BF16, dtype)


# --- dma_compute


def add_three(a: Any, b: Any, c: Any) -> Any:
    out = nl.ndarray(a.shape, BF16, buffer=nl.shared_hbm)
    dma_compute(out, (a, load(b), c.reshape((a.shape[1], a.shape[0]))), alu.ADD)
    return out


def add_three_reference(a: Any, b: Any, c: Any) -> Any:
    total = np.float32(a) + np.float32(b)
    return (total + np.float32(c.reshape(a.shape))).astype(BF16)


def update(dst_rows: bool) -> Callable[..., Any]:
    def scatter(table: Any, rows: Any, data: Any) -> Any:
        index = load(rows)
        view = gathered(table, index)
        dma_compute(dst=view, srcs=[load(data), view], reduce_op=alu.ADD)
        return table

    def gather(table: Any, rows: Any, data: Any) -> Any:
        tile, index = load(data), load(rows)
        dma_compute(dst=tile, srcs=[gathered(table, index), tile[:, :]], reduce_op=alu.ADD, unique_indices=True)
        return store(tile)

    return scatter if dst_rows else gather


def update_arguments() -> tuple[Any, ...]:
    r = np.random.default_rng(8)
    rows = np.array([[4], [1], [6]], np.int32)
    return r.standard_normal((7, 10)).astype(np.float32), rows, r.standard_normal((3, 10)).astype(np.float32)


def scatter_add_reference(table: Any, rows: Any, data: Any) -> Any:
    out = table.copy()
    for p in range(3):
        out[rows[p, 0]] += data[p]
    return out


def gather_add_reference(table: Any, rows: Any, data: Any) -> Any:
    return np.stack([data[p] + table[rows[p, 0]] for p in range(3)])


def compute_with(
    build: Callable[[Any, Any, Any], tuple[Any, list[Any]]], reduce_op: Any = alu.ADD, **options: Any
) -> Callable[..., Any]:
    def kernel(table: Any, rows: Any, data: Any) -> Any:
        dst, sources = build(table, rows, data)
        dma_compute(dst, sources, reduce_op, **options)
        return store(load(data))

    return kernel


def tile_like(array: Any, dtype: Any = None) -> Any:
    return nl.ndarray(array.shape, dtype or array.dtype, buffer=nl.sbuf)


def update_from_hbm(table: Any, rows: Any, data: Any) -> tuple[Any, list[Any]]:
    view = gathered(table, load(rows))
    return view, [view, data]


def update_scatter(table: Any, rows: Any, data: Any) -> tuple[Any, list[Any]]:
    view = gathered(table, load(rows))
    return view, [view, load(data)]


def update_two_columns(table: Any, rows: Any, data: Any) -> tuple[Any, list[Any]]:
    index = nl.ndarray((3, 2), dtypes.int32, buffer=nl.sbuf)
    nisa.memset(dst=index, value=1)
    view = table.ap(pattern=[[10, 3], [1, 10]], vector_offset=index)
    return view, [view, load(data)]


def update_float_index(table: Any, rows: Any, data: Any) -> tuple[Any, list[Any]]:
    view = table.ap(pattern=[[10, 3], [1, 10]], vector_offset=load(rows, np.float32))
    return view, [view, load(data)]


def update_scalar(table: Any, rows: Any, data: Any) -> tuple[Any, list[Any]]:
    view = table.ap(pattern=[[10, 3], [1, 10]], scalar_offset=load(rows[0:1, :]))
    return tile_like(data), [view, data]


def update_indirection(table: Any, rows: Any, data: Any) -> tuple[Any, list[Any]]:
    index = nl.ndarray((3, 10), dtypes.uint16, buffer=nl.sbuf)
    nisa.memset(dst=index, value=1)
    return tile_like(data), [load(data).indirect(index, 10), data]


EXAMPLES = [
    Legal("dma_copy", copy_reshaped, normal((12, 32)), lambda a: a.ravel()),
    Legal("dma_copy", copy_cast(BF16), normal((12, 32)), lambda a: a.astype(BF16)),
    Legal("dma_copy", copy_cast(np.int32), normal((12, 32)), lambda a: np.rint(a).astype(np.int32)),
    Legal("dma_copy", copy_cast(np.float32), normal((12, 32), dtype=np.int16), lambda a: a.astype(np.float32)),
    Legal("dma_copy", copy_strided, normal((12, 8)), strided_reference),
    Legal("dma_copy", copy_gather, table_and_rows((7, 5), [[6], [0], [3], [3]]), lambda d, r: d[r[:, 0]], V3),
    Legal("dma_copy", copy_scatter, table_and_rows((4, 5), [[8], [0], [3], [4]]), scatter_reference, V3),
    Legal(
        "dma_copy",
        copy_scalar,
        table_and_rows((7, 12), [[4]]),
        lambda d, s: (d[4:6], np.stack([d[:, 5 + j] for j in range(4)])),
    ),
    Legal("dma_copy", copy_modes, normal((12, 32)), lambda a: a, V3),
    Legal("dma_copy", copy_priority, normal((12, 32)), lambda a: a, ("trn3",)),
    Breaks("dma_copy.element-count", copy_fewer, normal((8, 8))),
    Breaks("dma_copy.packed-cast", copy_packed, normal((8, 8))),
    Breaks("dma_copy.hwdge-target", copy_with(dge_mode=nisa.dge_mode.hwdge), normal((8, 8)), "trn1"),
    Breaks("dma_copy.hwdge-cast", copy_with(dge_mode=nisa.dge_mode.hwdge, dtype=BF16), normal((8, 8))),
    Breaks("dma_copy.vector-offset-dge", copy_gather_hwdge, table_and_rows((7, 5), [[6], [0]])),
    Breaks("dma_copy.indirect-target", copy_gather, table_and_rows((7, 5), [[6], [0]]), "trn1"),
    Breaks("dma_copy.row-index", copy_gather, table_and_rows((7, 5), [[6, 1], [0, 1]])),
    Breaks("dma_copy.offset-tensor", copy_gather, table_and_rows((7, 5), [[6], [0]], index_dtype=np.float32)),
    Breaks("dma_copy.tensor-indirection", copy_from_indirect, table_and_rows((8, 8), [[1]] * 8, index_dtype=np.uint16)),
    Breaks("dma_copy.engine", copy_with(engine=nisa.engine.sync), normal((8, 8))),
    Breaks("dma_copy.priority", copy_with(priority=0), normal((8, 8))),
    Breaks("dma_copy.priority", copy_with(priority=4), normal((8, 8)), "trn3"),
    # dma_transpose
    Legal("dma_transpose", transpose_to_hbm(nisa.dge_mode.none), normal((16, 129), dtype=BF16), lambda a: a.T, V3),
    Legal("dma_transpose", transposed((24, 80)), normal((80, 24)), lambda a: a.T, V3),
    Legal("dma_transpose", transposed((6, 5, 80)), normal((80, 5, 6), dtype=BF16), lambda a: a.transpose(2, 1, 0), V3),
    Legal(
        "dma_transpose",
        transposed((6, 5, 4, 80), axes=(3, 1, 2, 0)),
        normal((80, 5, 4, 6)),
        lambda a: np.einsum("abcd->dbca", a),
        V3,
    ),
    Legal("dma_transpose", transpose_sbuf, normal((48, 33), dtype=np.int32), lambda a: a.T, V3),
    Legal(
        "dma_transpose",
        transposed((128, 16), dge_mode=nisa.dge_mode.hwdge),
        normal((16, 128), dtype=BF16),
        lambda a: a.T,
        V3,
    ),
    Legal("dma_transpose", transpose_gathered, tall(32), transpose_gathered_reference, V3),
    Legal("dma_transpose", transpose_gathered, tall(128, 2), transpose_gathered_reference, V3),
    Legal(
        "dma_transpose",
        transpose_gathered_4d,
        table_and_rows((9, 3, 1, 20), [[i % 9] for i in range(16)], BF16, np.uint32),
        lambda d, i: np.einsum("abcd->dbca", d[i[:, 0]]),
        V3,
    ),
    Breaks("dma_transpose.rank", transposed((2, 3, 2, 2, 2)), normal((2, 3, 2, 2, 2))),
    Breaks("dma_transpose.axes", transposed((6, 5, 80), axes=(2, 0, 1)), normal((80, 5, 6))),
    Breaks("dma_transpose.shape", transposed((6, 80)), normal((80, 1, 1, 6))),
    Breaks("dma_transpose.dtypes", transpose_mixed, normal((16, 8))),
    Breaks("dma_transpose.element-size", transposed((8, 16)), normal((16, 8), dtype=np.int8)),
    Breaks("dma_transpose.element-size", transposed((8, 16), dge_mode=nisa.dge_mode.hwdge), normal((16, 8))),
    Breaks("dma_transpose.dge-mode", transposed((8, 16), dge_mode=nisa.dge_mode.swdge), normal((16, 8))),
    Breaks(
        "dma_transpose.dge-mode",
        transpose_source(lambda d, i: d.vector_select(0, load(i)), dge_mode=nisa.dge_mode.hwdge),
        tall(16),
    ),
    Breaks("dma_transpose.columns", transpose_to_hbm(nisa.dge_mode.hwdge), normal((16, 129), dtype=BF16)),
    Breaks("dma_transpose.rows", transposed((8, 17), dge_mode=nisa.dge_mode.hwdge), normal((17, 8), dtype=BF16)),
    Breaks("dma_transpose.rows", transposed((8, 3, 4), dge_mode=nisa.dge_mode.hwdge), normal((4, 3, 8), dtype=BF16)),
    Breaks("dma_transpose.rows", transpose_source(lambda d, i: d.vector_select(0, load(i)[0:15, :])), tall(16)),
    Breaks(
        "dma_transpose.indirect-rank",
        transpose_source(lambda d, i: d.reshape((40, 2, 2, 8)).vector_select(0, load(i))),
        tall(16),
    ),
    Breaks("dma_transpose.index", transpose_source(lambda d, i: d.vector_select(0, load(i))), tall(16, dtype=np.int32)),
    Breaks("dma_transpose.index", transpose_gathered, tall(64, 2)),
    Breaks("dma_transpose.dst-direct", transpose_scattered, table_and_rows((16, 4), [[1], [2], [3], [4]], BF16)),
    Breaks("dma_transpose.oob-mode", transpose_oob, normal((16, 8))),
    Breaks("dma_transpose.priority", transposed((8, 16), priority=1), normal((16, 8))),
    Breaks(
        "dma_transpose.offset-tensor",
        transpose_source(lambda d, i: d.ap([[32, 2], [1, 32]], scalar_offset=psum_scalar())),
        tall(16),
    ),
    Breaks(
        "dma_transpose.tensor-indirection",
        transpose_source(lambda d, i: load(d).indirect(load(i), 16)),
        table_and_rows((16, 16), [[1]] * 16, BF16, np.uint16),
    ),
    # dma_compute
    Legal("dma_compute", add_three, normal((8, 6), (8, 6), (48,), dtype=np.float16), add_three_reference),
    Legal("dma_compute", update(True), update_arguments, scatter_add_reference, V3),
    Legal("dma_compute", update(False), update_arguments, gather_add_reference, V3),
    Breaks("dma_compute.source-count", compute_with(lambda t, r, d: (tile_like(d), [d] * 17)), update_arguments),
    Breaks("dma_compute.element-count", compute_with(lambda t, r, d: (tile_like(d), [d, t])), update_arguments),
    Breaks(
        "dma_compute.packed",
        compute_with(lambda t, r, d: (tile_like(d, dtypes.float8_e4m3fn_x4), [d])),
        update_arguments,
    ),
    Breaks(
        "dma_compute.operator",
        compute_with(lambda t, r, d: (tile_like(d), [d]), alu.MULTIPLY),
        update_arguments,
    ),
    Breaks(
        "dma_compute.scales",
        compute_with(lambda t, r, d: (tile_like(d), [d, d]), scales=[1.0, 0.5]),
        update_arguments,
    ),
    Breaks("dma_compute.update", compute_with(update_from_hbm), update_arguments),
    Breaks(
        "dma_compute.update",
        compute_with(lambda t, r, d: (tile_like(d), [gathered(t, load(r)), d])),
        update_arguments,
    ),
    Breaks("dma_compute.unique-indices", compute_with(update_scatter, unique_indices=False), update_arguments),
    Breaks("dma_compute.static-address", compute_with(update_scalar), update_arguments),
    Breaks(
        "dma_compute.oob-mode",
        compute_with(lambda t, r, d: (tile_like(d), [d]), oob_mode=nisa.oob_mode.skip),
        update_arguments,
    ),
    Breaks("dma_compute.indirect-target", compute_with(update_scatter), update_arguments, "trn1"),
    Breaks("dma_compute.row-index", compute_with(update_two_columns), update_arguments),
    Breaks("dma_compute.offset-tensor", compute_with(update_float_index), update_arguments),
    Breaks("dma_compute.tensor-indirection", compute_with(update_indirection), update_arguments),
]
