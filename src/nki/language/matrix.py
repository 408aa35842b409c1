"""The Tensor engine as functions: matmul and transpose, with results in PSUM."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
from nki.core.dtypes import float32, tfloat32
from nki.core.errors import TensorError
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.language.arguments import flag, public, result_dtype, tile
from nki.language.combine import cast, copied, in_sbuf
from nki.language.memory import ndarray
from nki.spec.sink import current_sink


@public
def matmul(x: Any, y: Any, transpose_x: bool = False) -> NkiTensor:
    """``x @ y``, or ``x.T @ y`` with `transpose_x`: a new float32 tile in PSUM.

    Args:
        x: ``(K, M)`` with `transpose_x`; else ``(M, K)``, which the Tensor engine transposes first.
        y: ``(K, N)``, or with several free dimensions, which the result has, too. K and M are at most 128, N at most
            512 (nl.tile_size).
        transpose_x: whether the contraction already runs over the partitions of `x`.
    """
    stationary, moving = product_operands(x, y, transpose_x)
    result = ndarray((stationary.shape[1], *moving.shape[1:]), float32, MemoryRegion.psum)
    nisa.nc_matmul(dst=result, stationary=stationary, moving=in_sbuf(moving))
    return result


def product_operands(x: Any, y: Any, transpose_x: bool) -> tuple[NkiTensor, NkiTensor]:
    """The stationary operand of the instruction that `matmul` is, in SBUF, and the moving one; arguments as there."""
    left, right = _matrix(x, "x", "matmul"), tile(y, "y", "matmul")
    contracted = left.shape[0 if flag(transpose_x, "transpose_x", "matmul") else 1]
    if contracted != right.shape[0]:
        raise TensorError(
            "language.contraction",
            f"nl.matmul: x is {left.view_record.describe()}, y is {right.view_record.describe()}, "
            f"transpose_x is {transpose_x}",
            rule="x.shape[1] (x.shape[0] with transpose_x) equals y.shape[0]",
            facts={"x": contracted, "y": right.shape[0]},
            fix=f"pass transpose_x={not transpose_x}" if right.shape[0] in left.shape else "check the operands",
        )
    wide = (float32, tfloat32)
    if (left.dtype in wide) != (right.dtype in wide):
        left, right = cast(left, float32), cast(right, float32)
    stationary = in_sbuf(left) if transpose_x else copied(_transposed(left))
    return stationary, right


@public
def transpose(x: Any, dtype: Any = None) -> NkiTensor:
    """The transpose of a tile ``(P, F)``, both at most 128: a new tile ``(F, P)`` in PSUM.

    Args:
        x: 2-D tile in SBUF, or in PSUM, which is copied first. Bits move, but on NeuronCore-v2 floats are multiplied by
            an identity matrix, so that a NaN or an infinity spoils what it meets there.
        dtype: of the result; that of `x` by default.
    """
    source = _matrix(x, "x", "transpose")
    most = current_sink("nl.transpose").target.partitions
    if source.shape[1] > most:
        raise TensorError(
            "tensor.partitions",
            f"nl.transpose: x is {source.view_record.describe()}, and its transpose spans {source.shape[1]} partitions",
            rule=f"psum has {most} partitions",
            source="nki/guides/architecture/trainium_inferentia2_arch.rst",
            fix=f"transpose {most} columns at a time: nl.transpose(x[:, i:i + {most}])",
        )
    return _transposed(cast(source, result_dtype(dtype, source.dtype)))


def _transposed(x: NkiTensor) -> NkiTensor:
    target = current_sink("nl.transpose").target
    source = in_sbuf(x)
    if not target.pe.transpose_exact and x.dtype not in target.pe.input_dtypes:
        return _transposed_by_blocks(source, target.limits.vector_transpose)
    result = _transpose_slots(x, target.pe.transpose_exact)
    nisa.nc_transpose(dst=result, data=source)
    return result


def _transpose_slots(x: NkiTensor, exact: bool) -> NkiTensor:
    """PSUM for the transpose; single bytes leave the Tensor engine in slots of two (nki/api/nki/isa nc_matmul)."""
    shape = (x.shape[1], x.shape[0])
    if exact and x.dtype.itemsize == 1:
        return ndarray((*shape, 2), x.dtype, MemoryRegion.psum)[..., 0]
    return ndarray(shape, x.dtype, MemoryRegion.psum)


def _transposed_by_blocks(x: NkiTensor, size: int) -> NkiTensor:
    """Bit for bit on the Vector engine, which transposes small blocks only."""
    result = ndarray((x.shape[1], x.shape[0]), x.dtype, MemoryRegion.psum)
    for row in range(0, x.shape[0], size):
        for column in range(0, x.shape[1], size):
            block = x[row : min(row + size, x.shape[0]), column : min(column + size, x.shape[1])]
            place = result[column : column + block.shape[1], row : row + block.shape[0]]
            nisa.nc_transpose(dst=place, data=block, engine=nisa.engine.vector)
    return result


def _matrix(x: Any, name: str, function: str) -> NkiTensor:
    found = tile(x, name, function)
    if found.ndim == 2:
        return found
    raise TensorError(
        "language.rank",
        f"nl.{function}: {name} is {found.view_record.describe()}",
        rule="a matrix has two dimensions",
        fix=f"flatten the free dimensions: {name}.reshape(({found.shape[0]}, -1))",
    )
