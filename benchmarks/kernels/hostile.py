"""Named programs for hostile schedules: small, on one core and two, with and without loops on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from benchmarks.kernels import cores, loops, products, rows

import nki
import nki.language as nl
from nki.compiler import AddressRotation, CompileConfig

F32, BF16 = np.float32, nl.bfloat16
AHEAD, TIGHT = CompileConfig(prefetch_auto=True), CompileConfig(address_rotation=AddressRotation.DISABLE)


class Named(NamedTuple):
    """A program by its name.

    Attributes:
        kernel: undecorated.
        shapes: of the arrays, all of one dtype.
        more: arguments after the arrays.
        lnc: number of cores; None without a grid.
        config: settings of the compiler.
    """

    name: str
    kernel: Callable[..., Any]
    shapes: Sequence[tuple[int, ...]]
    dtype: Any = F32
    more: tuple[Any, ...] = ()
    lnc: int | None = None
    config: CompileConfig | None = None

    def made(self) -> Any:
        """The kernel to call."""
        kernel = nki.jit(self.kernel, compile_config=self.config) if self.config else nki.jit(self.kernel)
        return kernel if self.lnc is None else kernel[self.lnc]

    def arguments(self) -> list[Any]:
        """Random numbers that are the same in every process, and what follows them."""
        random = np.random.default_rng(crc32(self.name.encode()))
        return [*(random.standard_normal(shape).astype(self.dtype) for shape in self.shapes), *self.more]


def _indices(count: int, table: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, table, (count, 1)).astype(np.int32)


_STACK, _WEIGHTS = (8, 128, 256), (128, 128)

PROGRAMS: tuple[Named, ...] = (
    Named("chain", rows.chain, [(256, 2048), (256, 2048)]),
    Named("chain bf16", rows.chain, [(384, 1024), (384, 1024)], BF16),
    Named("chain tight", rows.chain, [(256, 2048), (256, 2048)], config=TIGHT),
    Named("softmax", rows.softmax, [(512, 512)]),
    Named("softmax wide", rows.softmax, [(256, 8192)]),
    Named("softmax tight", rows.softmax, [(640, 256)], config=TIGHT),
    Named("rmsnorm", rows.rmsnorm, [(512, 512), (128, 512)]),
    Named("rmsnorm bf16", rows.rmsnorm, [(512, 512), (128, 512)], BF16),
    Named("layernorm", rows.layernorm, [(384, 512), (128, 512), (128, 512)]),
    Named("rope", rows.rope, [(256, 512), (256, 32), (256, 32)]),
    Named("cumsum", rows.cumsum, [(256, 2048)]),
    Named("top16", rows.largest, [(256, 512)], more=(2,)),
    Named("gather", rows.gather, [(512, 256)], more=(_indices(384, 512), 0.5)),
    Named("matmul", products.matmul, [(256, 256), (256, 1024)]),
    Named("matmul bf16", products.matmul, [(384, 256), (384, 1024)], BF16),
    Named("matmul tight", products.matmul, [(256, 256), (256, 1024)], BF16, config=TIGHT),
    Named("transposed", products.transposed, [(256, 256), (256, 512)], BF16),
    Named("mlp", products.mlp, [(128, 512), (128, 256), (128, 2), (256, 128)], BF16),
    Named("buffered", cores.buffered, [(384, 1024)]),
    Named("doubled", cores.doubled, [(640, 256)]),
    Named("spilled", cores.spilled, [(512, 512)]),
    Named("ordered", cores.ordered, [(512, 512)]),
    Named("loop scaled", loops.scaled, [_STACK]),
    Named("loop scaled ahead", loops.scaled, [_STACK], config=AHEAD),
    Named("loop scaled bf16 ahead", loops.scaled, [(11, 128, 256)], BF16, config=AHEAD),
    Named("loop added", loops.added, [_STACK, _STACK]),
    Named("loop added ahead", loops.added, [_STACK, _STACK], config=AHEAD),
    Named("loop softmax", loops.normalized, [_STACK]),
    Named("loop softmax ahead", loops.normalized, [(7, 128, 256)], config=AHEAD),
    Named("loop matmul", loops.multiplied, [_WEIGHTS, _STACK]),
    Named("loop matmul ahead", loops.multiplied, [_WEIGHTS, _STACK], BF16, config=AHEAD),
    Named("loop layer", loops.layer, [_WEIGHTS, _STACK, _WEIGHTS]),
    Named("loop layer ahead", loops.layer, [_WEIGHTS, _STACK, _WEIGHTS], BF16, config=AHEAD),
    Named("loop mixed", loops.mixed, [_STACK, (128, 4096)]),
    Named("loop mixed ahead", loops.mixed, [_STACK, (128, 4096)], config=AHEAD),
    Named("loop nested", cores.nested, [(4, 128, 128)]),
    Named("loop nested ahead", cores.nested, [(4, 128, 128)], config=AHEAD),
    Named("loop counted", cores.counted, [(5, 128, 128)], more=(4,)),
    Named("two cores halves", products.halves, [(256, 512), (256, 512)], lnc=2),
    Named("two cores halves bf16", products.halves, [(128, 512), (128, 1024)], BF16, lnc=2),
    Named("two cores halves tight", products.halves, [(256, 512), (256, 512)], lnc=2, config=TIGHT),
    Named("two cores exchanged", cores.exchanged, [(640, 512)], lnc=2),
    Named("two cores exchanged tight", cores.exchanged, [(384, 256)], lnc=2, config=TIGHT),
    Named("two cores loop gathered", cores.gathered, [(2, 6, 128, 256)], lnc=2),
    Named("two cores loop gathered ahead", cores.gathered, [(2, 6, 128, 256)], lnc=2, config=AHEAD),
    Named("two cores loop passed", cores.passed, [(2, 7, 128, 128)], lnc=2),
    Named("two cores loop passed ahead", cores.passed, [(2, 7, 128, 128)], lnc=2, config=AHEAD),
)
"""All of them have transfers, which hostile schedules keep in flight."""
