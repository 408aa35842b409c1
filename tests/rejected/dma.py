"""DMA: sizes, descriptors, transposes, and addresses that are only known at run time."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import WIDE, Topic, X, call, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused
ROWS = np.array([[0], [3], [2], [1]], np.int32)
FAR = np.array([[0], [3], [9], [1]], np.int32)


@refused("dma_copy.element-count", X, at="nisa.dma_copy(dst=t, src=a)", cure=edit("(4, 4)", "(4, 8)"))
def copy_into_a_smaller_tile(a: Any) -> None:
    t = nl.ndarray((4, 4), nl.float32)
    nisa.dma_copy(dst=t, src=a)


@refused(
    "dma_copy.hwdge-cast",
    X,
    at="nisa.dma_copy(dst=t, src=a, dge_mode=nisa.dge_mode.hwdge)",
    cure=edit("nisa.dge_mode.hwdge", "nisa.dge_mode.swdge"),
)
def cast_by_hardware_descriptors(a: Any) -> None:
    t = nl.ndarray((4, 8), nl.bfloat16)
    nisa.dma_copy(dst=t, src=a, dge_mode=nisa.dge_mode.hwdge)


@refused(
    "dma_copy.engine",
    X,
    at="nisa.dma_copy(dst=t, src=a, engine=nisa.engine.sync)",
    cure=edit("engine=", "dge_mode=nisa.dge_mode.hwdge, engine="),
)
def engine_without_hardware_descriptors(a: Any) -> None:
    t = nl.ndarray((4, 8), nl.float32)
    nisa.dma_copy(dst=t, src=a, engine=nisa.engine.sync)


@refused(
    "instruction.engine",
    X,
    at="nisa.dma_copy(dst=t, src=a, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.vector)",
    cure=edit(", engine=nisa.engine.vector", ""),
)
def engine_without_a_queue(a: Any) -> None:
    t = nl.ndarray((4, 8), nl.float32)
    nisa.dma_copy(dst=t, src=a, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.vector)


@refused("dma_copy.priority", X, at="nisa.dma_copy(dst=t, src=a, priority=1)", cure=edit(", priority=1", ""))
def priority_where_there_is_none(a: Any) -> None:
    t = nl.ndarray((4, 8), nl.float32)
    nisa.dma_copy(dst=t, src=a, priority=1)


@refused(
    "dma_copy.vector-offset-dge",
    X,
    ROWS,
    at="nisa.dma_copy(dst=t, src=a.vector_select(0, rows), dge_mode=nisa.dge_mode.hwdge)",
    cure=edit("nisa.dge_mode.hwdge", "nisa.dge_mode.swdge"),
)
def gather_by_hardware_descriptors(a: Any, b: Any) -> None:
    t, rows = nl.ndarray((4, 8), nl.float32), nl.load(b)
    nisa.dma_copy(dst=t, src=a.vector_select(0, rows), dge_mode=nisa.dge_mode.hwdge)


@refused("access.index-region", X, ROWS, at="a.vector_select(0, b)", cure=edit("(0, b)", "(0, nl.load(b))"))
def gather_with_indices_in_hbm(a: Any, b: Any) -> None:
    t = nl.ndarray((4, 8), nl.float32)
    nisa.dma_copy(dst=t, src=a.vector_select(0, b))


@refused("access.vector-select", X, ROWS, at="tile.vector_select(0, rows)", cure=edit("tile.vector", "a.vector"))
def gather_from_sbuf(a: Any, b: Any) -> None:
    tile, rows = nl.load(a), nl.load(b)
    nisa.dma_copy(dst=tile, src=tile.vector_select(0, rows))


@refused(
    "dma_copy.offset-tensor",
    X,
    ROWS.astype(np.float32),
    at="nisa.dma_copy(dst=t, src=a.vector_select(0, rows))",
    cure=edit("nl.load(b)", "nl.load(b, dtype=nl.int32)"),
)
def gather_with_float_indices(a: Any, b: Any) -> None:
    t, rows = nl.ndarray((4, 8), nl.float32), nl.load(b)
    nisa.dma_copy(dst=t, src=a.vector_select(0, rows))


@refused(
    "access.index-tensor",
    X,
    at="a.vector_select(0, [0, 3, 2, 1])",
    cure=None,
)
def gather_with_a_list(a: Any) -> None:
    t = nl.ndarray((4, 8), nl.float32)
    nisa.dma_copy(dst=t, src=a.vector_select(0, [0, 3, 2, 1]))


@refused(
    "access.dynamic-out-of-bounds",
    X,
    FAR,
    at="nisa.dma_copy(dst=t, src=a.vector_select(0, rows))",
    cure=edit("(0, rows))", "(0, rows), oob_mode=nisa.oob_mode.skip)"),
)
def gather_beyond_the_end(a: Any, b: Any) -> None:
    t, rows = nl.zeros((4, 8), nl.float32), nl.load(b)
    nisa.dma_copy(dst=t, src=a.vector_select(0, rows))


@refused(
    "access.dynamic-out-of-bounds",
    X,
    FAR[2:3],
    at="nisa.dma_copy(dst=t, src=a.select(0, row))",
    cure=call(X, ROWS[2:3]),
)
def row_beyond_the_end(a: Any, b: Any) -> None:
    t, row = nl.zeros((1, 8), nl.float32), nl.load(b)
    nisa.dma_copy(dst=t, src=a.select(0, row))


@refused(
    "dma_transpose.shape",
    WIDE.astype(np.float16),
    at="nisa.dma_transpose(dst=t, src=a)",
    cure=edit("(128, 16)", "(16, 128)"),
)
def transpose_without_swapped_sizes(a: Any) -> None:
    t = nl.ndarray((128, 16), nl.float16)
    nisa.dma_transpose(dst=t, src=a)


@refused(
    "dma_transpose.dtypes",
    WIDE.astype(np.float16),
    at="nisa.dma_transpose(dst=t, src=a)",
    cure=edit("nl.bfloat16", "nl.float16"),
)
def transpose_into_another_dtype(a: Any) -> None:
    t = nl.ndarray((16, 128), nl.bfloat16)
    nisa.dma_transpose(dst=t, src=a)


@refused(
    "dma_compute.operator",
    X,
    at="nisa.dma_compute(t, [a, a], nl.multiply)",
    cure=edit("nl.multiply", "nl.add"),
)
def product_by_dma(a: Any) -> None:
    t = nl.ndarray((4, 8), nl.float32)
    nisa.dma_compute(t, [a, a], nl.multiply)


@refused(
    "operand.kind",
    X,
    at="nisa.dma_compute(t, a, nl.add)",
    cure=edit("(t, a,", "(t, [a],"),
)
def one_source_without_a_list(a: Any) -> None:
    t = nl.ndarray((4, 8), nl.float32)
    nisa.dma_compute(t, a, nl.add)


@refused(
    "call.deprecated",
    X,
    at="nisa.dma_copy(dst=t, src=a, dst_rmw_op=nl.add)",
    cure=edit("dma_copy(dst=t, src=a, dst_rmw_op=nl.add)", "dma_compute(t, [t, a], nl.add)"),
)
def copy_that_adds(a: Any) -> None:
    t = nl.zeros((4, 8), nl.float32)
    nisa.dma_copy(dst=t, src=a, dst_rmw_op=nl.add)


@refused(
    "local_gather.partitions",
    X,
    at="nisa.local_gather(t, s, i)",
    cure=edit("s = nl.load(a)", "s = nl.zeros((16, 8), nl.float32)", "(4, 128)", "(16, 128)", "(4, 8)", "(16, 8)"),
)
def gather_on_four_partitions(a: Any) -> None:
    s = nl.load(a)
    t = nl.ndarray((4, 128), nl.float32)
    i = nl.zeros((4, 8), nl.uint16)
    nisa.local_gather(t, s, i)


@refused(
    "dma_copy.element-count",
    X,
    at="nisa.dma_copy(dst=t, src=a[0])",
    cure=edit("a[0]", "a[0].reshape((1, 8)).broadcast(0, 4)"),
)
def copy_a_row_to_all_partitions(a: Any) -> None:
    t = nl.ndarray((4, 8), nl.float32)
    nisa.dma_copy(dst=t, src=a[0])
