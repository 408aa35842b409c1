"""Kernels with shapes: what the benchmarks of the compiler measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from benchmarks.kernels import loops, products, rows
from examples.flash_attention import flash_attention

import nki.language as nl

F32, BF16 = np.float32, nl.bfloat16
Array = tuple[tuple[int, ...], Any]


class Case(NamedTuple):
    """A kernel with arguments.

    Attributes:
        name: of the kernel.
        kernel: the undecorated function.
        arrays: shape and dtype of each.
        more: arguments after the arrays.
        target: that it is compiled for.
        cores: that it runs on; None if it has no grid.
    """

    name: str
    kernel: Callable[..., Any]
    arrays: tuple[Array, ...]
    more: tuple[Any, ...] = ()
    target: str = "trn2"
    cores: int | None = None

    @property
    def label(self) -> str:
        """Name, shape and dtype of the first array, and the target."""
        shape, dtype = self.arrays[0]
        kind = "bf16" if dtype is BF16 else np.dtype(dtype).name.replace("float", "f").replace("int", "i")
        return f"{self.name} {'x'.join(map(str, shape))} {kind} {self.target}"

    def arguments(self) -> list[Any]:
        """Arrays of zeros, and what follows them."""
        return [*(np.zeros(shape, dtype) for shape, dtype in self.arrays), *self.more]


def _unary(name: str, kernel: Callable[..., Any], shapes: Sequence[tuple[int, int]], dtype: Any = F32) -> list[Case]:
    return [Case(name, kernel, ((shape, dtype),)) for shape in shapes]


def _products(
    name: str, kernel: Callable[..., Any], shapes: Sequence[tuple[int, int, int]], dtype: Any, turn: bool = False
) -> list[Case]:
    """``(K, M, N)`` each; with `turn` the first operand is (M, K)."""
    return [Case(name, kernel, (((m, k) if turn else (k, m), dtype), ((k, n), dtype))) for k, m, n in shapes]


def _mlp(model: int, hidden: int, tokens: int, target: str = "trn2") -> Case:
    shapes = (model, tokens), (model, hidden), (128, hidden // 128), (hidden, model)
    dtypes = BF16, BF16, F32, BF16
    return Case("mlp", products.mlp, tuple(zip(shapes, dtypes, strict=True)), target=target)


def _attention(sequence: int, causal: bool, target: str = "trn2") -> Case:
    shapes = (128, sequence), (128, sequence), (sequence, 128)
    name = "attention" if causal else "attention-full"
    return Case(name, flash_attention.func, tuple((shape, BF16) for shape in shapes), (causal,), target)


def _norm(height: int, width: int, dtype: Any = F32) -> Case:
    return Case("rmsnorm", rows.rmsnorm, (((height, width), dtype), ((128, width), dtype)))


def _layernorm(height: int, width: int) -> Case:
    return Case("layernorm", rows.layernorm, (((height, width), F32), ((128, width), F32), ((128, width), F32)))


def _rope(positions: int, heads: int) -> Case:
    return Case("rope", rows.rope, (((positions, heads * 128), F32), ((positions, 64), F32), ((positions, 64), F32)))


def _gather(table: int, width: int, count: int, dtype: Any = F32) -> Case:
    return Case("gather", rows.gather, (((table, width), dtype), ((count, 1), np.int32)), (0.5,))


def _pair(name: str, kernel: Callable[..., Any], shape: tuple[int, ...], dtype: Any = F32) -> Case:
    return Case(name, kernel, ((shape, dtype), (shape, dtype)))


STRAIGHT: tuple[Case, ...] = (
    *(_pair("chain", rows.chain, shape, dtype) for shape, dtype in (
        ((256, 4096), F32), ((512, 8192), BF16), ((2048, 4096), F32))),
    *_unary("softmax", rows.softmax, [(2560, 512), (2560, 2048), (8192, 1024)]),
    _norm(2560, 1024), _norm(4096, 2048, BF16),
    _layernorm(1536, 1024), _layernorm(2048, 2048),
    _rope(256, 8), _rope(1024, 16),
    *_unary("cumsum", rows.cumsum, [(384, 8192), (1024, 8192)]),
    *(Case("top8", rows.largest, ((shape, F32),), (count,)) for shape, count in (
        ((512, 1024), 8), ((2048, 2048), 4))),
    _gather(4096, 512, 4096), _gather(8192, 2048, 8192, BF16),
    *_products("matmul", products.matmul, [(512, 512, 2048), (1024, 1024, 1024), (2048, 1024, 2048)], BF16),
    *_products("matmul", products.matmul, [(512, 512, 2048), (1024, 1024, 1024)], F32),
    *_products("transposed", products.transposed, [(512, 1024, 512), (1024, 1024, 1024)], BF16, True),
    _mlp(256, 1024, 1024), _mlp(512, 2048, 2048),
    _attention(1024, True), _attention(2048, True), _attention(2048, False),
    _mlp(256, 1024, 1024, "trn1")._replace(name="mlp"),
    _attention(1024, True, "trn1"), _attention(1024, True, "trn3"),
    _unary("softmax", rows.softmax, [(2560, 1024)])[0]._replace(target="trn1"),
    _products("matmul", products.matmul, [(1024, 1024, 1024)], BF16)[0]._replace(target="trn3"),
    *(case._replace(cores=2) for case in _products(
        "two-cores", products.halves, [(512, 2048, 1024), (1024, 2048, 1024)], BF16)),
)  # fmt: skip
"""Without loops on the device, but for the last ones, 100 to 5,000 instructions each."""

LOOPS: tuple[Case, ...] = (
    Case("loop-scale", loops.scaled, (((64, 128, 1024), F32),)),
    _pair("loop-add", loops.added, (64, 128, 512)),
    Case("loop-softmax", loops.normalized, (((64, 128, 1024), F32),)),
    Case("loop-matmul", loops.multiplied, (((128, 128), BF16), ((64, 128, 512), BF16))),
    Case("loop-layer", loops.layer, (((128, 128), BF16), ((64, 128, 512), BF16), ((128, 128), BF16))),
)
"""Loops on the device."""

MIXED: tuple[Case, ...] = (
    Case("loop-mixed", loops.mixed, (((16, 128, 1024), F32), ((128, 32768), F32))),
    Case("loop-mixed", loops.mixed, (((16, 128, 512), BF16), ((128, 65536), BF16))),
)
"""A loop and instructions beside it."""

SEARCHED: tuple[Case, ...] = (
    _rope(2048, 16), _norm(32768, 1024), _mlp(1024, 4096, 2048),
    *(Case("capped", rows.capped, (((2560, width), F32),), (30.0,)) for width in (512, 1024)),
)  # fmt: skip
"""For the search for an order, beside those above: programs that are so large (1,200 to 2,800 instructions) that one
other order is tried, and those in which every tile needs two activation tables."""
