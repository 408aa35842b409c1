"""Rotary position embeddings of heads whose dimension lies on partitions.

Each pair of elements of a head is turned by an angle that depends on its position::

    out[even] = x[even] * cos - x[odd] * sin
    out[odd]  = x[odd] * cos + x[even] * sin

even and odd are the first and the second half of the head, or with ``contiguous_layout=False`` every other element.

Layouts: x (head size, batch, heads, sequence); cos and sin (head size / 2, batch, sequence). Dtypes: bfloat16, float16
or float32; products round to that of x, their sum is float32. Limits: an even head size of at most 128; sequences,
batches and heads of any number.

Plan: Vector and GpSimd multiply a tile with the cosines and the sines, and the Tensor engine sends the second product
to the partition of the other element, by a matrix of 1 and -1 that also knows the layout. Of 2-byte elements it adds
the products in PSUM as well, and Scalar brings the sum back, so that transfers bound the kernel; of float32, which it
multiplies at a quarter of the rate, Vector adds.

Source: Su et al., RoFormer, arXiv:2104.09864.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, scalar_copies
from nkilib.streaming import ceil_div, load, psum, result, sbuf, size, spans, store

_TILE_BYTES = 2048
"""Of a partition in one transfer: more takes longer until the first tile is there, less has more transfers to start."""
_FLOATS = (nl.bfloat16, nl.float16, nl.float32)


@nki.jit
def RoPE(
    x_in: nl.NkiTensor,
    cos: nl.NkiTensor,
    sin: nl.NkiTensor,
    lnc_shard: bool = False,
    contiguous_layout: bool = True,
    relayout_in_sbuf: bool = False,
) -> nl.NkiTensor:
    """Turn all heads by the angles of their positions.

    Args:
        x_in: (head size, batch, heads, sequence) in HBM.
        cos, sin: (head size / 2, batch, sequence) in HBM.
        lnc_shard: the cores of the launch divide the sequence; otherwise each does all of it.
        contiguous_layout: pairs are elements of the first and the second half of a head; otherwise neighbours.
        relayout_in_sbuf: of no effect, which is told: neighbours are turned where they are, so no layout is converted.

    Returns:
        A tensor like `x_in`.

    Raises:
        KernelLimit: shapes that do not belong together, an odd or larger head size, dtypes.
    """
    why = "as neighbours are turned where they are"
    limits.without_effect("RoPE", why, relayout_in_sbuf=relayout_in_sbuf or None)
    head, batch, heads, sequence = _checked(x_in, cos, sin)
    groups = _groups(head, heads)
    matrices = _Matrices(head, groups, contiguous_layout, x_in.dtype)
    out = result(x_in.shape, x_in.dtype)
    source, target = (each.reshape((head, batch, groups, heads // groups, sequence)) for each in (x_in, out))
    for batches, part, some in _tiles(batch, heads // groups, sequence, x_in.dtype, lnc_shard):
        angles = [_load_angles(each[:, batches, part], groups, contiguous_layout) for each in (cos, sin)]
        for each in some:
            tile = _load_heads(source[:, batches, :, each, part])
            turned = sbuf(tile.shape, x_in.dtype)
            _turn(tile, angles, matrices, into=turned)
            for group in range(groups):
                store(target[:, batches, group, each, part], turned[group * head : (group + 1) * head])
    return out


def _gradient(residuals: Any, gradient: Any, **options: bool) -> tuple[Any, Any, Any]:
    """Of x the rotation back, by the kernel; of the angles a sum over heads, which models seldom ask for."""
    x, cos, sin = residuals
    half = x.shape[0] // 2
    parts = (
        (slice(0, half), slice(half, None)) if options["contiguous_layout"] else (slice(0, None, 2), slice(1, None, 2))
    )
    (x_even, x_odd), (even, odd) = ((each[parts[0]], each[parts[1]]) for each in (x, gradient))
    of_cos, of_sin = even * x_even + odd * x_odd, odd * x_even - even * x_odd
    return RoPE(gradient, cos, -sin, **options), of_cos.sum(2), of_sin.sum(2)


RoPE.defvjp(None, _gradient)


def RoPE_sbuf(
    x_in_sb: nl.NkiTensor,
    cos_sb: nl.NkiTensor,
    sin_sb: nl.NkiTensor,
    x_out_sb: nl.NkiTensor,
    convert_from_interleaved: bool = False,
) -> nl.NkiTensor:
    """Turn heads that are in SBUF already, for kernels that go on with them.

    Args:
        x_in_sb: (head size, batch, heads, sequence).
        cos_sb, sin_sb: (head size / 2, batch, sequence).
        x_out_sb: gets the result; as `x_in_sb`, which it may be.
        convert_from_interleaved: pairs are neighbours, in what comes and in what goes; otherwise elements of the two
            halves.

    Returns:
        `x_out_sb`.

    Raises:
        KernelLimit: as `RoPE`, and another shape or dtype of `x_out_sb`.
    """
    head, batch, heads, sequence = _checked(x_in_sb, cos_sb, sin_sb)
    limits.shape("x_out_sb", x_out_sb, (head, batch, heads, sequence))
    limits.same_dtype(x_in_sb=x_in_sb, x_out_sb=x_out_sb)
    contiguous = not convert_from_interleaved
    matrices = _Matrices(head, 1, contiguous, x_in_sb.dtype)
    spread = load(nl.shared_constant(_spread(head, contiguous).astype(cos_sb.dtype.numpy)))
    angles = [_spread_angles(each, spread) for each in (cos_sb, sin_sb)]
    _turn(x_in_sb, angles, matrices, into=x_out_sb)
    return x_out_sb


def _checked(x: Any, cos: Any, sin: Any) -> tuple[int, int, int, int]:
    """Sizes of x, after the check of all arguments."""
    sizes = limits.shape("x_in", x, ("head size", "batch", "heads", "sequence"))
    head, batch, heads, sequence = sizes.values()
    limits.between("head size", head, 2, nl.tile_size.pmax, "its elements lie on partitions")
    limits.multiple("head size", head, 2, "elements are turned in pairs")
    for name, tensor in (("cos", cos), ("sin", sin)):
        limits.shape(name, tensor, (head // 2, "batch", "sequence"), sizes)
        limits.dtype(name, tensor, _FLOATS)
    limits.dtype("x_in", x, _FLOATS)
    limits.same_dtype(cos=cos, sin=sin)
    return head, batch, heads, sequence


# --------------------------------------------------------------------------------------------------------------- tiles


def _groups(head: int, heads: int) -> int:
    """How many groups of heads lie beside each other on the partitions, so that small heads fill them too."""
    groups = int(nl.tile_size.pmax) // head
    return groups if heads % groups == 0 else 1


def _tiles(batch: int, heads: int, sequence: int, dtype: Any, shared: bool) -> list[tuple[slice, slice, list[slice]]]:
    """Batches and positions, whose angles are loaded once, and the heads of each of their tiles.

    A tile holds whole heads of whole batches if these are short enough, else whole heads, else a part of a head.
    """
    elements = _TILE_BYTES // dtype.itemsize
    cores = nl.num_programs(0) if shared else 1
    batches = max(1, elements // (heads * sequence))
    positions = min(elements, ceil_div(sequence, cores))
    some = spans(heads, max(1, elements // positions))
    parts = spans(sequence, positions, shared=shared)
    return [(each, part, some) for each in spans(batch, batches) for part in parts]


def _load_heads(source: Any) -> Any:
    """(head size, batch, groups, heads, sequence) of HBM in a tile (groups * head size, batch, heads, sequence)."""
    head, batch, groups, heads, sequence = source.shape
    tile = sbuf((groups * head, batch, heads, sequence), source.dtype)
    for group in range(groups):
        nisa.dma_copy(dst=tile[group * head : (group + 1) * head], src=source[:, :, group])
    return tile


def _load_angles(source: Any, groups: int, contiguous: bool) -> Any:
    """Cosines or sines on the partition of each element of each group: every one is loaded for both of its pair."""
    half, batch, sequence = source.shape
    pairs = source.expand_dim(0).broadcast(0, 2) if contiguous else source.expand_dim(1).broadcast(1, 2)
    tile = sbuf((2 * half * groups, batch, sequence), source.dtype)
    nisa.dma_copy(dst=tile, src=pairs.expand_dim(0).broadcast(0, groups))
    return tile


def _spread_angles(angles: Any, spread: Any) -> Any:
    """The same of angles that are in SBUF, by a product with a matrix that has a 1 for each element."""
    half, batch, sequence = angles.shape
    tile = sbuf((2 * half, batch * sequence), angles.dtype)
    flat = angles.reshape((half, batch * sequence))
    for part in spans(batch * sequence, nl.tile_size.gemm_moving_fmax):
        both = psum((2 * half, size(part)))
        nisa.nc_matmul(dst=both, stationary=spread, moving=flat[:, part])
        nisa.tensor_copy(dst=tile[:, part], src=both)
    return tile.reshape((2 * half, batch, sequence))


# ------------------------------------------------------------------------------------------------------------ rotation


class _Matrices(nl.NKIObject):
    """What the Tensor engine multiplies with: `stay` keeps elements where they are, `turn` sends them to their pair."""

    def __init__(self, head: int, groups: int, contiguous: bool, dtype: Any) -> None:
        turn = np.kron(np.eye(groups), _pairs(head, contiguous))
        both = load(nl.shared_constant(np.hstack([np.eye(groups * head), turn]).astype(dtype.numpy)))
        self.stay, self.turn = both[:, : groups * head], both[:, groups * head :]


def _pairs(head: int, contiguous: bool) -> np.ndarray:
    """A matrix by which ``matrix.T @ x`` has the even elements in the places of the odd ones, and those negated."""
    matrix = np.zeros((head, head))
    even, odd = _places(head, contiguous)
    matrix[even, odd], matrix[odd, even] = 1, -1
    return matrix


def _spread(head: int, contiguous: bool) -> np.ndarray:
    """A matrix (head size / 2, head size) with a 1 where an element has an angle."""
    matrix = np.zeros((head // 2, head))
    for places in _places(head, contiguous):
        matrix[np.arange(head // 2), places] = 1
    return matrix


def _places(head: int, contiguous: bool) -> tuple[np.ndarray, np.ndarray]:
    """Where the even and the odd elements of all pairs are."""
    pair = np.arange(head // 2)
    return (pair, pair + head // 2) if contiguous else (2 * pair, 2 * pair + 1)


def _turn(x: Any, angles: list[Any], matrices: _Matrices, into: Any) -> None:
    """``into = x * cos + turn.T @ (x * sin)``, for x (partitions, batch, heads, sequence) whose heads share angles."""
    partitions, batch, heads, sequence = x.shape
    kept, moved = sbuf(x.shape, x.dtype), sbuf(x.shape, x.dtype)
    cos, sin = (each.expand_dim(2).broadcast(2, heads) for each in angles)
    nisa.tensor_tensor(dst=kept, data1=x, data2=cos, op=nl.multiply)
    nisa.tensor_tensor(dst=moved, data1=x, data2=sin, op=nl.multiply, engine=nisa.engine.gpsimd)
    kept, moved, into = (each.reshape((partitions, batch * heads * sequence)) for each in (kept, moved, into))
    for part in spans(batch * heads * sequence, nl.tile_size.gemm_moving_fmax):
        total = psum((partitions, size(part)))
        nisa.nc_matmul(dst=total, stationary=matrices.turn, moving=moved[:, part], accumulate=False)
        if x.dtype.itemsize > nl.bfloat16.itemsize:
            nisa.tensor_tensor(dst=into[:, part], data1=kept[:, part], data2=total, op=nl.add)
        else:
            nisa.nc_matmul(dst=total, stationary=matrices.stay, moving=kept[:, part], accumulate=True)
            scalar_copies.copied(into[:, part], total)
