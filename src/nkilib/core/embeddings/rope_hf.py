"""Rotary position embeddings of queries and keys in the layout of Hugging Face's models.

With ``rotated(x) = [-x2, x1]`` for the halves x1 and x2 of a head::

    out  = x * cos + rotated(x) * sin                   forward
    dx   = dy * cos - rotated(dy * sin)                 backward

Layouts: q and k (batch, heads, sequence, head size), which rows of cos and sin (sequence, head size) or (batch,
sequence, head size) turn; `rope_cache` has both side by side. Dtypes: bfloat16, float16 or float32. Limits: an even
head size; the sequence is of any length, at most that of the angles.

Plan: positions lie on partitions, several that follow each other on one, so that a transfer moves kilobytes of each.
GpSimd multiplies with the cosines, Vector each half of x with the sines of the other place, and the Tensor engine adds
both in PSUM by products with the identity, from where Scalar brings the sum; transfers bound the kernel. Float32, whose
products with the identity would take four times as long, is added by Vector.

Source: Su et al., RoFormer, arXiv:2104.09864; the layout is that of `apply_rotary_pos_emb` in transformers.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, scalar_copies
from nkilib.rows import RowBlock, row_blocks
from nkilib.streaming import psum, sbuf, size, spans

_TILE_BYTES = 2048
"""Of a partition in one transfer, see `nkilib.core.embeddings.rope`."""
_FLOATS = (nl.bfloat16, nl.float16, nl.float32)


@nki.jit
def rope_hf(
    q: nl.NkiTensor,
    k: nl.NkiTensor,
    q_out: nl.NkiTensor,
    k_out: nl.NkiTensor,
    cos: nl.NkiTensor | None = None,
    sin: nl.NkiTensor | None = None,
    rope_cache: nl.NkiTensor | None = None,
    backward: bool = False,
) -> tuple[nl.NkiTensor, nl.NkiTensor]:
    """Turn all heads of queries and keys by the angles of their positions; the cores of the launch divide the sequence.

    Args:
        q, k: (batch, heads, sequence, head size) in HBM, each with its own number of heads; with `backward`, gradients.
        q_out, k_out: get the results; as q and k.
        cos, sin: (sequence or more, head size), or the same for each batch; left out if `rope_cache` is there.
        rope_cache: the same two, side by side in the last dimension.
        backward: compute the gradient of q and k instead.

    Returns:
        `q_out` and `k_out`.

    Raises:
        KernelLimit: shapes that do not belong together, both kinds of angles or none, dtypes.
    """
    cos, sin = _checked(q, k, q_out, k_out, cos, sin, rope_cache)
    precise = q.dtype.itemsize > nl.bfloat16.itemsize
    eye = None if precise else nl.shared_identity_matrix(nl.tile_size.pmax, q.dtype)
    for batches in [slice(0, q.shape[0])] if len(cos.shape) == 2 else spans(q.shape[0], 1):
        plan = _Plan(q.shape[2], q.shape[3] * q.dtype.itemsize)
        for rows in plan.positions:
            angles = _load_angles(cos, sin, batches, rows, plan.heads)
            for source, target in ((q, q_out), (k, k_out)):
                source, target = (each[batches].flatten_dims(0, 1) for each in (source, target))
                for heads in spans(source.shape[0], plan.heads, shared=plan.heads_shared):
                    _turn_heads(source[heads, rows.span], target[heads, rows.span], rows, angles, backward, eye)
    return q_out, k_out


def _checked(q: Any, k: Any, q_out: Any, k_out: Any, cos: Any, sin: Any, cache: Any) -> tuple[Any, Any]:
    """Cosines and sines, after the check of all arguments."""
    sizes = limits.shape("q", q, ("batch", "heads of q", "sequence", "head size"))
    limits.shape("k", k, ("batch", "heads of k", "sequence", "head size"), sizes)
    limits.shape("q_out", q_out, q.shape)
    limits.shape("k_out", k_out, k.shape)
    limits.dtype("q", q, _FLOATS)
    limits.same_dtype(q=q, k=k, q_out=q_out, k_out=k_out)
    head = sizes["head size"]
    limits.multiple("head size", head, 2, "elements are turned in pairs")
    separate = cos is not None and sin is not None
    limits.need(
        separate != (cache is not None) and (cos is None) == (sin is None),
        "cos, sin, rope_cache",
        ", ".join("left out" if each is None else "there" for each in (cos, sin, cache)),
        rule="angles come either as cos and sin or as rope_cache",
        fix="pass cos and sin, or rope_cache",
    )
    width = head if separate else 2 * head
    for name, tensor in (("cos", cos), ("sin", sin)) if separate else (("rope_cache", cache),):
        batches = () if len(tensor.shape) == 2 else ("batch",)
        limits.shape(name, tensor, (*batches, "rows of angles", width), sizes)
        limits.dtype(name, tensor, _FLOATS)
    limits.between("sequence", sizes["sequence"], 1, sizes["rows of angles"], "each position has its angles")
    return (cos, sin) if separate else (cache[..., :head], cache[..., head:])


class _Plan(nl.NKIObject):
    """What is in SBUF together, and what the cores of the launch divide.

    A long sequence is cut in blocks that one head fills, and the cores have different blocks. A short one is one block
    whose partitions hold as many positions each as a transfer should move, several heads lie one below the other, and
    the cores have different heads.

    Attributes:
        positions: blocks of positions.
        heads: of one tile.
        heads_shared: whether the cores divide the heads.
    """

    def __init__(self, sequence: int, row_bytes: int) -> None:
        most = max(1, _TILE_BYTES // row_bytes)
        each = max(count for count in range(1, most + 1) if sequence % count == 0)
        self.heads_shared = sequence // each <= nl.tile_size.pmax
        if self.heads_shared:
            self.positions = [RowBlock(0, sequence // each, each)]
        else:
            self.positions = row_blocks(sequence, row_bytes, tile_bytes=_TILE_BYTES)
        self.heads = nl.tile_size.pmax // self.positions[0].partitions


def _load_angles(cos: Any, sin: Any, batches: slice, rows: RowBlock, heads: int) -> list[Any]:
    """Cosines, and sines of which those of the first half are negated, in tiles (partitions, rows of each, head size).

    They are repeated for the heads that lie one below the other.
    """
    tiles = []
    for angles in (cos, sin):
        source = (angles if len(angles.shape) == 2 else angles[batches.start])[rows.span]
        tiles.append(sbuf((heads * rows.partitions, rows.each, source.shape[1]), source.dtype))
        nisa.dma_copy(dst=tiles[-1], src=source.expand_dim(0).broadcast(0, heads))
    negated = tiles[1][:, :, : cos.shape[-1] // 2]
    nisa.tensor_scalar(dst=negated, data=negated, op0=nl.multiply, operand0=-1.0)
    return tiles


def _turn_heads(source: Any, target: Any, rows: RowBlock, angles: list[Any], backward: bool, eye: Any) -> None:
    """Some positions of some heads (heads, positions, head size) in HBM, turned, into the same of another tensor."""
    heads, _, head = source.shape
    x = sbuf((heads * rows.partitions, rows.each, head), source.dtype)
    nisa.dma_copy(dst=x, src=source)
    turned = sbuf(x.shape, x.dtype)
    _turn(x, [each[: x.shape[0]] for each in angles], backward, eye, into=turned)
    nisa.dma_copy(dst=target, src=turned)


def _turn(x: Any, angles: list[Any], backward: bool, eye: Any, into: Any) -> None:
    """``into = x * cos + x' * sin`` for x (partitions, rows, head size), where x' has the halves exchanged.

    The gradient turns back: there the sine is that of the place that an element comes from.
    """
    partitions, rows, head = x.shape
    cos, sin = angles
    kept, moved = sbuf(x.shape, x.dtype), sbuf(x.shape, x.dtype)
    nisa.tensor_tensor(dst=kept, data1=x, data2=cos, op=nl.multiply, engine=nisa.engine.gpsimd)
    first, second = slice(0, head // 2), slice(head // 2, head)
    for there, here in ((first, second), (second, first)):
        sines = sin[:, :, here if backward else there]
        nisa.tensor_tensor(dst=moved[:, :, there], data1=x[:, :, here], data2=sines, op=nl.multiply)
    kept, moved, into = (each.reshape((partitions, rows * head)) for each in (kept, moved, into))
    if eye is None:
        nisa.tensor_tensor(dst=into, data1=kept, data2=moved, op=nl.add)
        return
    same = eye[:partitions, :partitions]
    for part in spans(rows * head, nl.tile_size.gemm_moving_fmax):
        total = psum((partitions, size(part)))
        nisa.nc_matmul(dst=total, stationary=same, moving=kept[:, part], accumulate=False)
        nisa.nc_matmul(dst=total, stationary=same, moving=moved[:, part], accumulate=True)
        scalar_copies.copied(into[:, part], total)
