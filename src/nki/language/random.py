"""Random numbers: rand and random_seed, on the Vector engine's generator."""

from __future__ import annotations

from typing import Any

import ml_dtypes

import nki.isa as nisa
from nki.core.dtypes import DType, float32, tfloat32, uint32
from nki.core.errors import DtypeError
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.isa import alu
from nki.language.arguments import public, tile
from nki.language.memory import ndarray, new_tile
from nki.spec.allocation import checked_dtype, checked_region, checked_shape
from nki.spec.sink import current_sink

_TFLOAT32_BITS = 11


@public
def rand(shape: Any, dtype: Any, buffer: MemoryRegion = MemoryRegion.sbuf, name: str = "") -> NkiTensor:
    """A new tensor of numbers that are uniform in [0, 1), never 1 in any dtype; arguments as for `ndarray`.

    By nisa.rand2 where the target has it, else from the bits of nisa.rng. Both are the Vector engine's, which
    `random_seed` seeds. HBM tensors have at most as many rows as there are partitions.

    Args:
        dtype: a float.
    """
    kind = checked_dtype(dtype)
    if not kind.is_float:
        raise DtypeError(
            "language.rand",
            f"nl.rand: dtype is {kind}",
            rule="the numbers lie between 0 and 1",
            fix="use a float, or nisa.rng for random integers",
        )
    result = ndarray(shape, kind, buffer, name)
    if result.buffer.on_chip:
        _fill(result)
        return result
    sizes = checked_shape(shape, checked_region(buffer))
    staging = new_tile(sizes if len(sizes) > 1 else (*sizes, 1), kind)
    _fill(staging)
    nisa.dma_copy(dst=result, src=staging)
    return result


@public
def random_seed(seed: Any) -> None:
    """Start the sequence of `rand`, `dropout` and nisa.rng on the Vector engine anew.

    Args:
        seed: ``(1, 1)`` tile of a 32-bit dtype in SBUF or PSUM, for example ``nl.full((1, 1), 42, nl.int32)``.
    """
    nisa.set_rng_seed(src_seeds=tile(seed, "seed", "random_seed"))


def _fill(tensor: NkiTensor) -> None:
    """Multiples of 2**-bits below 1, with as many bits as the dtype holds: rounding never makes them 1."""
    bits = _precision(tensor.dtype)
    if current_sink("nl.rand").target.has("rand2"):
        uniform = new_tile(tensor.shape, float32)
        nisa.rand2(dst=uniform, min=0.0, max=1.0)
        nisa.tensor_scalar(dst=tensor, data=uniform, op0=alu.MINIMUM, operand0=1.0 - 2.0**-bits)
        return
    words = new_tile(tensor.shape, uint32)
    nisa.rng(dst=words)
    nisa.tensor_scalar(dst=words, data=words, op0=alu.RIGHT_SHIFT, operand0=uint32.bits - bits)
    nisa.tensor_scalar(dst=tensor, data=words, op0=alu.MULTIPLY, operand0=2.0**-bits)


def _precision(dtype: DType) -> int:
    return _TFLOAT32_BITS if dtype == tfloat32 else int(ml_dtypes.finfo(dtype.numpy).nmant) + 1
