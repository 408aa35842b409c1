"""Instructions and features that the chosen target does not have."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import WIDE, Topic, X, call, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused
ROWS = np.array([[0], [3], [2], [1]], np.int32)


@refused(
    "instruction.unavailable",
    X,
    target="trn1",
    at="nisa.range_select(t, t, nl.greater_equal, nl.less, b, b)",
    cure=call(target="trn3"),
)
def range_select_on_trn1(a: Any) -> None:
    t, b = nl.load(a), nl.zeros((4, 1), nl.float32)
    nisa.range_select(t, t, nl.greater_equal, nl.less, b, b)


@refused("instruction.unavailable", X, at="nisa.exponential(t, t)", cure=call(target="trn3"))
def exponential_on_trn2(a: Any) -> None:
    t = nl.load(a)
    nisa.exponential(t, t)


@refused(
    "instruction.unavailable",
    WIDE.astype(np.float16),
    target="trn1",
    at="nisa.dma_transpose(dst=t, src=a)",
    cure=call(target="trn3"),
)
def dma_transpose_on_trn1(a: Any) -> None:
    t = nl.ndarray((16, 128), nl.float16)
    nisa.dma_transpose(dst=t, src=a)


@refused(
    "instruction.unavailable",
    WIDE,
    at="nisa.quantize_mx(q, t, s)",
    cure=call(target="trn3"),
)
def quantize_on_trn2(a: Any) -> None:
    t = nl.load(a, dtype=nl.bfloat16)
    q = nl.ndarray((128, 4), nl.float8_e4m3fn_x4)
    s = nl.ndarray((128, 4), nl.uint8)
    nisa.quantize_mx(q, t, s)


@refused(
    "instruction.unavailable",
    X,
    at="nisa.activate2(t, nl.exp, t, 1.0, 0.0, nl.multiply, nl.add)",
    cure=call(target="trn3"),
)
def activate2_on_trn2(a: Any) -> None:
    t = nl.load(a)
    nisa.activate2(t, nl.exp, t, 1.0, 0.0, nl.multiply, nl.add)


@refused(
    "activation.bias-immediate",
    X,
    target="trn1",
    at="nisa.activation(t, nl.exp, t, bias=0.5)",
    cure=edit("bias=0.5", "bias=nl.full((4, 1), 0.5, nl.float32)"),
)
def number_as_bias_on_trn1(a: Any) -> None:
    t = nl.load(a)
    nisa.activation(t, nl.exp, t, bias=0.5)


@refused(
    "activation.reciprocal-bias",
    X,
    target="trn1",
    at="nisa.activation(t, nl.reciprocal, t, bias=b)",
    cure=edit(
        "nisa.activation(t, nl.reciprocal, t, bias=b)",
        "nisa.tensor_scalar(t, t, nl.add, b)\n    nisa.activation(t, nl.reciprocal, t)",
    ),
)
def reciprocal_with_bias_on_trn1(a: Any) -> None:
    t, b = nl.load(a), nl.ones((4, 1), nl.float32)
    nisa.activation(t, nl.reciprocal, t, bias=b)


@refused(
    "tensor_tensor.operator-target",
    X,
    at="nisa.tensor_tensor(t, t, t, nl.abs_max)",
    cure=edit("nisa.tensor_tensor(t, t, t, nl.abs_max)", "nisa.tensor_tensor(t, nl.abs(t), nl.abs(t), nl.maximum)"),
)
def abs_max_on_trn2(a: Any) -> None:
    t = nl.load(a)
    nisa.tensor_tensor(t, t, t, nl.abs_max)


@refused(
    "nc_matmul.double-row-target",
    np.ones((128, 256), np.float32),
    target="trn1",
    at="nisa.nc_matmul(p, s, s, perf_mode=nisa.matmul_perf_mode.double_row)",
    cure=call(target="trn2"),
)
def double_row_on_trn1(a: Any) -> None:
    s = nl.load(a, dtype=nl.float8_e4m3).reshape((128, 2, 128))
    p = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(p, s, s, perf_mode=nisa.matmul_perf_mode.double_row)


@refused(
    "dma_copy.hwdge-target",
    X,
    target="trn1",
    at="nisa.dma_copy(t, a, dge_mode=nisa.dge_mode.hwdge)",
    cure=edit("hwdge", "unknown"),
)
def hardware_descriptors_on_trn1(a: Any) -> None:
    t = nl.ndarray((4, 8), nl.float32)
    nisa.dma_copy(t, a, dge_mode=nisa.dge_mode.hwdge)


@refused(
    "dma_copy.indirect-target",
    X,
    ROWS,
    target="trn1",
    at="nisa.dma_copy(t, a.vector_select(0, rows))",
    cure=edit(
        "nisa.dma_copy(t, a.vector_select(0, rows))",
        "for i in range(4):\n        row = nisa.register_alloc()\n"
        "        nisa.register_load(row, rows[i : i + 1, 0:1])\n        nisa.dma_copy(t[i : i + 1], a.select(0, row))",
    ),
)
def gather_on_trn1(a: Any, b: Any) -> None:
    t, rows = nl.ndarray((4, 8), nl.float32), nl.load(b)
    nisa.dma_copy(t, a.vector_select(0, rows))


@refused(
    "activation.indirect",
    WIDE,
    at="nisa.activation(t, nl.exp, t.indirect(i, 16))",
    cure=edit(
        "t.indirect(i, 16))",
        "c)",
        "i = nl",
        "i, c = nl",
        "nl.uint16)",
        "nl.uint32), nl.load(a)\n    nisa.nc_n_gather(c, t, i)",
    ),
)
def tensor_indirection_on_trn2(a: Any) -> None:
    t = nl.load(a)
    i = nl.zeros((128, 16), nl.uint16)
    nisa.activation(t, nl.exp, t.indirect(i, 16))


@refused(
    "tensor_copy.indirect",
    WIDE,
    at="nisa.tensor_copy(t, t.indirect(i, 16))",
    cure=edit("nl.uint16)", "nl.uint32)", "tensor_copy(t, t.indirect(i, 16))", "nc_n_gather(t, t, i)"),
)
def gathering_copy_on_trn2(a: Any) -> None:
    t = nl.load(a)
    i = nl.zeros((128, 16), nl.uint16)
    nisa.tensor_copy(t, t.indirect(i, 16))


@refused(
    "memset.indirect",
    WIDE,
    target="trn3",
    at="nisa.memset(t.indirect(i, 16), 0)",
    cure=edit("t.indirect(i, 16)", "t"),
)
def scattered_fill(a: Any) -> None:
    t = nl.load(a)
    i = nl.zeros((128, 16), nl.uint16)
    nisa.memset(t.indirect(i, 16), 0)


@refused(
    "operand.packed",
    WIDE,
    target="trn3",
    at="nisa.tensor_tensor(q, q, q, nl.add)",
    cure=edit("nl.float8_e4m3fn_x4)", "nl.float8_e4m3fn_x4).view(nl.int32)", "nl.add", "nl.bitwise_or"),
)
def packed_arithmetic(a: Any) -> None:
    q = nl.load(a).view(nl.float8_e4m3fn_x4)
    nisa.tensor_tensor(q, q, q, nl.add)
