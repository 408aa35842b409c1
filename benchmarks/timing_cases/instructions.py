"""Small kernels around the single instructions that published profiles show, and the streams of micro-benchmarks."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl


def sbuf(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A tile of its own in SBUF."""
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def psum(shape: tuple[int, ...]) -> Any:
    """A float32 tile of its own in PSUM."""
    return nl.ndarray(shape, nl.float32, buffer=nl.psum)


def hbm(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A result in device memory."""
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def loaded(source: Any) -> Any:
    """A tile with all of a tensor."""
    tile = sbuf(source.shape, source.dtype)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def stored(tile: Any) -> Any:
    """A result with all of a tile."""
    out = hbm(tile.shape, tile.dtype)
    nisa.dma_copy(dst=out, src=tile)
    return out


def load_exp_store(a: Any) -> Any:
    """Static load on Sync, exponential, store with descriptors of GpSimd."""
    x, y, out = sbuf(a.shape, a.dtype), sbuf(a.shape, a.dtype), hbm(a.shape, a.dtype)
    nisa.dma_copy(dst=x, src=a, dge_mode=nisa.dge_mode.none)
    nisa.activation(dst=y, op=nl.exp, data=x)
    nisa.dma_copy(dst=out, src=y, dge_mode=nisa.dge_mode.swdge)
    return out


def square_sum(a: Any) -> Any:
    """Squares and their sum on Scalar."""
    x, total = loaded(a), sbuf((a.shape[0], 1))
    nisa.activation_reduce(dst=sbuf(a.shape, a.dtype), op=nl.square, data=x, reduce_op=nl.add, reduce_res=total)
    return stored(total)


def inverse_root(a: Any) -> Any:
    """An activation of one element, after another one has loaded the table."""
    x, y, z = loaded(a), sbuf(a.shape), sbuf(a.shape)
    nisa.activation(dst=y, op=nl.rsqrt, data=x)
    nisa.activation(dst=z, op=nl.rsqrt, data=y)
    return stored(z)


def scaled_copies(a: Any) -> Any:
    """Dependent activations of one element without a table."""
    x = loaded(a)
    for _ in range(16):
        y = sbuf(a.shape)
        nisa.activation(dst=y, op=nl.copy, data=x, scale=0.5)
        x = y
    return stored(x)


def scaled_rows(a: Any, gamma: Any) -> Any:
    """Chunks multiplied by a row that the Tensor engine broadcasts over the partitions."""
    rows, width = a.shape
    x, factor, ones = loaded(a), loaded(gamma), sbuf((1, 128), nl.bfloat16)
    nisa.memset(dst=ones, value=1.0)
    y = sbuf(a.shape, nl.bfloat16)
    wide = [psum((128, 512)) for _ in range(width // 512)]
    for chunk, broadcast in enumerate(wide):
        part = slice(chunk * 512, (chunk + 1) * 512)
        nisa.nc_matmul(dst=broadcast, stationary=ones, moving=factor[:, part])
    for chunk, broadcast in enumerate(wide):
        part = slice(chunk * 512, (chunk + 1) * 512)
        nisa.scalar_tensor_tensor(
            dst=y[:, part], data=x[:, part], op0=nl.multiply, operand0=0.5, op1=nl.multiply, operand1=broadcast[:rows]
        )
    return stored(y)


def largest(a: Any) -> Any:
    """A reduction along the row on Vector."""
    x, most = loaded(a), sbuf((a.shape[0], 1))
    nisa.tensor_reduce(dst=most, op=nl.maximum, data=x, axis=(1,))
    return stored(most)


def quantized(a: Any) -> Any:
    """A tile multiplied and cast to 8-bit floats on Vector."""
    x, y = loaded(a), sbuf(a.shape, nl.float8_e4m3)
    nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=0.5, engine=nisa.engine.vector)
    return stored(y)


def copies_and_sums(a: Any, b: Any) -> Any:
    """One matmul, its result copied and added to on Vector, and a copy within SBUF."""
    x, y, product = loaded(a), loaded(b), psum((128, 512))
    nisa.nc_matmul(dst=product, stationary=x, moving=y)
    copy, total, again = sbuf((128, 512)), sbuf((128, 512)), sbuf((128, 512))
    nisa.tensor_copy(dst=copy, src=product, engine=nisa.engine.vector)
    nisa.tensor_tensor(dst=total, data1=copy, data2=product, op=nl.add)
    nisa.tensor_copy(dst=again, src=total, engine=nisa.engine.vector)
    return stored(again)


def product(a: Any, b: Any, times: int) -> Any:
    """The same product accumulated several times."""
    x, y, total = loaded(a), loaded(b), psum((a.shape[1], b.shape[1]))
    for turn in range(times):
        nisa.nc_matmul(dst=total, stationary=x, moving=y, accumulate=turn > 0)
    z = sbuf((a.shape[1], b.shape[1]), nl.float32)
    nisa.tensor_copy(dst=z, src=total, engine=nisa.engine.vector)
    return stored(z)


# --- streams of independent instructions


def exponentials(a: Any, times: int) -> Any:
    """Independent exponentials on Scalar."""
    x, out = loaded(a), hbm((times, *a.shape))
    for turn in range(times):
        y = sbuf(a.shape)
        nisa.activation(dst=y, op=nl.exp, data=x, scale=turn + 1.0)
        nisa.dma_copy(dst=out[turn], src=y)
    return out


def additions(a: Any, times: int) -> Any:
    """Independent additions of a number on Vector."""
    x, out = loaded(a), hbm((times, *a.shape))
    for turn in range(times):
        y = sbuf(a.shape)
        nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=turn + 1.0, engine=nisa.engine.vector)
        nisa.dma_copy(dst=out[turn], src=y)
    return out


def sums(a: Any, times: int) -> Any:
    """Independent sums of two tiles on Vector."""
    x, out = loaded(a), hbm((times, *a.shape))
    for turn in range(times):
        y = sbuf(a.shape)
        nisa.tensor_tensor(dst=y, data1=x, data2=x, op=nl.add)
        nisa.dma_copy(dst=out[turn], src=y)
    return out


def fused(a: Any) -> Any:
    """Scale, bias and function in one activation."""
    x, y = loaded(a), sbuf(a.shape)
    nisa.activation(dst=y, op=nl.copy, data=x, scale=2.0)
    return stored(y)


def separate(a: Any) -> Any:
    """Scale, bias and function in three instructions of Scalar."""
    x = loaded(a)
    for _ in range(3):
        y = sbuf(a.shape)
        nisa.activation(dst=y, op=nl.copy, data=x, scale=2.0)
        x = y
    return stored(x)


def halves(a: Any) -> Any:
    """Two reductions of 64 partitions each."""
    x, y = loaded(a), sbuf((128, 1))
    for half in (slice(0, 64), slice(64, 128)):
        nisa.tensor_reduce(dst=y[half], op=nl.maximum, data=x[half], axis=(1,))
    return stored(y)
