"""Instructions that move data: DMA, and copies to or from a position that is known at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import nki.isa as nisa
from nki.beta1.errors import Beta1TypeError, refused
from nki.beta1.isa.elementwise import copied
from nki.beta1.isa.shared import engine_of
from nki.beta1.language.arguments import hints_only, kind_of, operation
from nki.beta1.tensors.dynamic import is_dynamic
from nki.beta1.tensors.mask import Box, Region, region_of
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.operands import common_region, not_a_tensor, on_chip, part_of, tile
from nki.beta1.tracing.results import placed, undefined
from nki.beta1.tracing.session import current
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.isa import alu
from nki.language.combine import cast
from nki.language.memory import ndarray, new_tile
from nki.spec.engine import dge_mode as DgeMode
from nki.spec.engine import engine as Engine
from nki.spec.engine import oob_mode as OobMode

_PERMUTATIONS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def dma_copy(
    *,
    dst: Any,
    src: Any,
    mask: Any = None,
    dst_rmw_op: Any = None,
    oob_mode: OobMode = OobMode.error,
    dge_mode: DgeMode = DgeMode.unknown,
    **kwargs: Any,
) -> None:
    """``dst = src`` by DMA, both in HBM or SBUF; rows may be chosen by a tile of indices, ``tensor[idx[i_p, 0], i_f]``.

    Args:
        mask: in the axes of `dst`.
        dst_rmw_op: np.add to add to what is in `dst`.
        oob_mode: whether indices outside raise, or are skipped.
    """
    name = "dma_copy"
    hints_only(f"nisa.{name}", kwargs)
    target, source = _tensor(dst, "dst"), _tensor(src, "src")
    if target.buffer is MemoryRegion.psum:
        raise refused(
            "unsupported_memory",
            f"expected operand 'dst' of '{name}' to be in address space 'hbm|sbuf', "
            f"but got {target.describe()} instead",
            "copy to a tile of SBUF, and from there with nisa.tensor_copy",
        )
    own = target.mask if mask is None else mask if target.mask is None else target.mask & mask
    region = region_of(own, target.shape)
    if region.empty:
        return
    whole = not region.rest and region.box == region_of(None, target.shape).box
    for box in region.boxes():
        place = target.elements() if whole else target.elements(box)
        value = _source(source, None if whole else part_of(box, source, target.shape))
        if dst_rmw_op is None:
            nisa.dma_copy(dst=place, src=value, oob_mode=oob_mode, dge_mode=dge_mode)
        else:
            _added(place, value, dst_rmw_op, oob_mode)


def _tiled_offloaded_fma(*srcs: Any, dst: Any, scales: Sequence[float]) -> None:
    """``dst = srcs[0] + srcs[1] + ...`` by DMA, under the old compiler's own name, which published kernels use.

    Args:
        srcs, dst: in HBM or SBUF, of one number of elements.
        scales: 1.0 for each source.
    """
    values = [_source(_tensor(src, "srcs"), None) for src in srcs]
    nisa.dma_compute(dst=_tensor(dst, "dst").elements(), srcs=values, reduce_op=alu.ADD, scales=list(scales))


def _tiled_offloaded_memcpy(*, dst: Any, src: Any) -> None:
    """A copy by DMA, under the old compiler's own name, which published kernels use.

    Args:
        dst, src: in HBM or SBUF, of one number of elements.
    """
    dma_copy(dst=dst, src=src)


def _added(place: NkiTensor, value: NkiTensor, op: Any, oob_mode: OobMode) -> None:
    if operation(op, "dst_rmw_op") != alu.ADD or oob_mode is not OobMode.error:
        raise refused(
            "argument",
            f"'dma_copy' with dst_rmw_op={getattr(op, '__name__', op)} and oob_mode={oob_mode.name}",
            "pass dst_rmw_op=np.add, and no oob_mode",
            rule="np.add is the only operation at the destination, and indices are inside",
        )
    nisa.dma_compute(dst=place, srcs=[place, value], reduce_op=alu.ADD)


def _tensor(value: Any, role: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    raise not_a_tensor(value, role, "dma_copy", "a tensor in HBM or SBUF")


def _source(source: Tensor, box: Box | None) -> NkiTensor:
    return tile(source, "src", "dma_copy", box, sbuf=True) if source.on_chip else source.elements(box)


def dma_transpose(
    src: Any,
    *,
    axes: Sequence[int] | None = None,
    mask: Any = None,
    dtype: Any = None,
    dge_mode: DgeMode = DgeMode.unknown,
    **kwargs: Any,
) -> Tensor:
    """A transpose by DMA of a tensor in HBM or SBUF: a new SBUF tile.

    The permutation belongs to the rank: (1, 0), (2, 1, 0) or (3, 1, 2, 0).

    Args:
        axes: the permutation, as a check.
        mask: in the axes of `src`.
        dtype: of the result, by a cast of its own; that of `src` by default.
    """
    name = "dma_transpose"
    hints_only(f"nisa.{name}", kwargs)
    source = _tensor(src, "src")
    order = _permutation(source, axes)
    region = common_region(name, [source], mask)[1] if source.on_chip else region_of(mask, source.shape)
    shape = tuple(source.shape[axis] for axis in order)
    if region.empty:
        return undefined(name, [source], shape)
    if region.rest:
        raise refused(
            "unsupported_expression_in_mask",
            f"the mask of '{name}' joins two axes of {source.describe()}",
            "transpose without it, and mask what reads the result",
        )
    kind, value = kind_of(dtype, source.dtype), _source(source, region.box)

    def compute() -> NkiTensor:
        made = new_tile(tuple(value.shape[axis] for axis in order), value.dtype)
        _transposed(made, value, order, dge_mode)
        return cast(made, kind)

    return placed(name, compute, shape, Region(tuple(region.box[a] for a in order)), explicit=dtype is not None)


def _permutation(source: Tensor, axes: Sequence[int] | None) -> tuple[int, ...]:
    if is_dynamic(source.access):
        raise refused(
            "indirect_indices_are_not_supported_with_nki_api",
            f"'dma_transpose' of {source.describe()} by indices of run time",
            "load the rows first: nl.load(tensor[idx[i_p, 0], i_f]), and transpose the tile",
        )
    order = _PERMUTATIONS.get(source.ndim)
    if order is None or (axes is not None and tuple(axes) != order):
        raise refused(
            "argument",
            f"'dma_transpose' of {source.describe()} with axes={axes}",
            "use (1, 0), (2, 1, 0) or (3, 1, 2, 0)",
            rule="the permutation belongs to the number of dimensions",
        )
    return order


def _transposed(made: NkiTensor, value: NkiTensor, order: tuple[int, ...], dge_mode: DgeMode) -> None:
    target = current("dma_transpose").tracer.target
    if nisa.dma_transpose.exists_on(target) and value.dtype.itemsize in target.dma.transpose_dtype_bytes:
        nisa.dma_transpose(dst=made, src=value, axes=order, dge_mode=dge_mode)
        return
    if value.buffer.on_chip:  # whose partitions no access pattern exchanges
        moved = ndarray(value.shape, value.dtype, MemoryRegion.private_hbm)
        nisa.dma_copy(dst=moved, src=value)
        value = moved
    nisa.dma_copy(dst=made, src=value.permute(order), dge_mode=dge_mode)


def tensor_copy_dynamic_src(
    src: Any, *, mask: Any = None, dtype: Any = None, engine: Engine = Engine.unknown, **kwargs: Any
) -> Tensor:
    """A copy of a part of a tile whose position on one free dimension is a number in SBUF.

    Args:
        src: such as ``tile[i_p, offset[0, 0] + i_f]``.
    """
    name = "tensor_copy_dynamic_src"
    hints_only(f"nisa.{name}", kwargs)
    source, where = on_chip(src, "src", name), engine_of(engine, name)
    kind = kind_of(dtype, source.dtype)
    shape, region = common_region(name, [source], mask)
    if region.empty:
        return undefined(name, [source], shape)
    value = source.elements(region.box, moved=True)

    def compute() -> NkiTensor:
        made = new_tile(value.shape, kind)
        copied(made, value, where)
        return made

    return placed(name, compute, shape, region, explicit=dtype is not None)


def tensor_copy_dynamic_dst(
    *, dst: Any, src: Any, mask: Any = None, dtype: Any = None, engine: Engine = Engine.unknown, **kwargs: Any
) -> None:
    """Copy a tile to a part of another one whose position on one free dimension is a number in SBUF.

    Args:
        dst: such as ``tile[i_p, offset[0, 0] + i_f]``.
        dtype: what the values round to first.
    """
    name = "tensor_copy_dynamic_dst"
    hints_only(f"nisa.{name}", kwargs)
    target, source, where = on_chip(dst, "dst", name), on_chip(src, "src", name), engine_of(engine, name)
    for box in region_of(mask, target.shape).boxes():
        if any(low >= high for low, high in box):
            return
        value = tile(source, "src", name, part_of(box, source, target.shape))
        value = cast(value, kind_of(dtype, value.dtype))
        copied(target.elements(box, moved=True), value, where)


def builtin_custom_op(*args: Any, **kwargs: Any) -> None:
    """Refused: a custom operator is a library of machine code for GpSimd.

    Raises:
        Beta1TypeError: always ("beta1.argument").
    """
    raise refused(
        "argument",
        "'builtin_custom_op' calls a library of machine code, which does not run here",
        "write the operator with instructions, or compute it in the framework",
        kind=Beta1TypeError,
    )
