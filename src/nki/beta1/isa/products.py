"""Instructions that change partitions: products and transposes of the Tensor engine, and shuffles."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki.beta1.errors import refused
from nki.beta1.isa.shared import copied_to_sbuf, engine_of, into, tiles
from nki.beta1.language.arguments import flag, hints_only, kind_of
from nki.beta1.tensors.mask import Box, Mask, Region, fits, met, region_of
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.assignment import existing_part
from nki.beta1.tracing.operands import common_region, on_chip, tile
from nki.beta1.tracing.recipes import computed
from nki.beta1.tracing.results import placed, undefined
from nki.beta1.tracing.session import current
from nki.core.dtypes import bfloat16, float32
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.language.combine import cast, in_sbuf
from nki.language.memory import ndarray, new_tile
from nki.spec.engine import engine as Engine
from nki.spec.engine import matmul_perf_mode

_PERF_MODES: dict[Any, matmul_perf_mode] = {
    None: matmul_perf_mode.none,
    "none": matmul_perf_mode.none,
    "double_row": matmul_perf_mode.double_row,
    "double_row_gen3": matmul_perf_mode.double_row,
    **{mode: mode for mode in matmul_perf_mode},
}


def nc_matmul(
    stationary: Any,
    moving: Any,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: Sequence[int] = (),
    tile_size: Sequence[int] = (),
    mask: Any = None,
    perf_mode: Any = None,
    **kwargs: Any,
) -> Tensor:
    """``stationary.T @ moving``: a float32 tile in PSUM, ``(M, ...)`` for ``(K, M)`` and ``(K, ...)``.

    ``psum[...] += nc_matmul(...)`` adds to what is there, in the Tensor engine.

    Args:
        is_transpose: `moving` is an identity matrix, and `stationary` is moved; the result has its dtype where the
            target moves bits.
        tile_position, tile_size: the part of the array to use.
        mask: in the axes of `moving`; the first is the contraction. ``operand[mask]`` masks one operand alone. A
            comparison that fits only `stationary`, or that masks it already, is one of its axes. What is masked out
            of the contraction adds nothing.
        perf_mode: "double_row_gen3" for operands ``(K, 2, ...)`` of 8-bit floats.
    """
    name = "nc_matmul"
    hints_only(f"nisa.{name}", kwargs)
    one, two = tiles(name, stationary=stationary, moving=moving)
    mode = _perf_mode(perf_mode)
    first = 2 if mode is matmul_perf_mode.double_row else 1
    left, right = _boxes(name, one, two, mask)
    shape = (prod(one.shape[first:]), *two.shape[first:])
    part = (left[1] if one.ndim == 2 else (0, shape[0]), *right[first:])
    if any(low >= high for low, high in (*left, *right)):
        return undefined(name, [one], shape)
    a, b = tile(one, "stationary", name, left, sbuf=True), tile(two, "moving", name, right, sbuf=True)
    a, b = _as_floats(a, b), _as_floats(b, a)
    moved = is_transpose and current(name).tracer.target.pe.transpose_exact

    onezero = flag(is_stationary_onezero, "is_stationary_onezero"), flag(is_moving_onezero, "is_moving_onezero")
    at, size = tuple(int(each) for each in tile_position), tuple(int(each) for each in tile_size)
    sizes, transposing = tuple(high - low for low, high in part), flag(is_transpose, "is_transpose")

    def compute(stationary: NkiTensor, moving: NkiTensor) -> NkiTensor:
        made = ndarray(sizes, stationary.dtype if moved else float32, MemoryRegion.psum)
        nisa.nc_matmul(
            dst=made,
            stationary=stationary,
            moving=moving,
            is_stationary_onezero=onezero[0],
            is_moving_onezero=onezero[1],
            is_transpose=transposing,
            tile_position=at,
            tile_size=size,
            perf_mode=mode,
        )
        return made

    return computed(name, compute, [a, b], shape, Region(part))


def _as_floats(operand: NkiTensor, other: NkiTensor) -> NkiTensor:
    """An operand of 8-bit integers, such as nl.shared_identity_matrix makes, as floats that hold them exactly."""
    if not (operand.dtype.is_integer and operand.dtype.itemsize == 1):
        return operand
    return cast(operand, float32 if other.dtype == float32 else bfloat16)


def _perf_mode(value: Any) -> matmul_perf_mode:
    found = _PERF_MODES.get(value)
    if found is None:
        raise refused("argument", f"perf_mode of 'nc_matmul' is {value!r}", "omit it, or write 'double_row_gen3'")
    return found


def _boxes(name: str, one: Tensor, two: Tensor, mask: Any) -> tuple[Box, Box]:
    """What of both operands takes part: their first axes, which are summed over, are cut alike."""
    first, second = _divided(mask, one, two)
    own, other = existing_part(one), existing_part(two)
    more, both = region_of(first, one.shape), region_of(second, two.shape)
    for operand, region in ((one, own), (one, more), (two, other), (two, both)):
        if region.rest and not region.empty:
            raise refused(
                "unsupported_expression_in_mask",
                f"a mask of '{name}' joins two axes of {operand.describe()}",
                "select its elements first: nisa.affine_select(pred, tile, 0.0)",
                rule="the masks of a product leave rectangular parts of its operands",
            )
    left, right = met(own.box, more.box), met(other.box, both.box)
    contracted = met(left[:1], right[:1])
    return (*contracted, *left[1:]), (*contracted, *right[1:])


def _divided(mask: Any, one: Tensor, two: Tensor) -> tuple[Mask | None, Any]:
    """What a mask says of `one`, and what of `two`."""
    if not isinstance(mask, Mask):
        return None, mask
    known = one.mask.comparisons if one.mask is not None else ()
    own = [each for each in mask.comparisons if each in known or (fits(each, one.shape) and not fits(each, two.shape))]
    return Mask(tuple(own)), Mask(tuple(each for each in mask.comparisons if each not in own))


def nc_transpose(
    data: Any, *, mask: Any = None, dtype: Any = None, engine: Engine = Engine.unknown, **kwargs: Any
) -> Tensor:
    """The transpose of a tile, whose free dimensions are one: ``(F, P)`` for ``(P, F)``.

    The Tensor engine writes it to PSUM; the Vector engine, which takes 32 x 32 and less, to SBUF. What is larger goes
    to the Tensor engine, whichever one is asked for.

    Args:
        mask: in the axes of `data`.
        dtype: of the result, by a cast of its own; that of `data` by default.
    """
    name = "nc_transpose"
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, data=data)
    kind, where = kind_of(dtype, source.dtype), engine_of(engine, name)
    if where not in (Engine.unknown, Engine.tensor, Engine.vector):
        raise refused(
            "argument", f"engine of '{name}' is {where.name}", "pass nisa.tensor_engine or nisa.vector_engine"
        )
    _, region = common_region(name, [source], mask)
    shape = (prod(source.shape[1:]), source.shape[0])
    if region.empty:
        return undefined(name, [source], shape)
    _check_free(source, region)
    whole = all((low, high) == (0, size) for (low, high), size in zip(region.box[1:], source.shape[1:], strict=True))
    if source.ndim > 2 and (region.rest or not whole):
        raise refused(
            "unsupported_expression_in_mask",
            f"the mask of '{name}' cuts one of several free axes of {source.describe()}",
            "reshape the tile to two dimensions, and mask those",
        )
    value = _flat(tile(source, "data", name, region.box))
    free = (0, shape[0]) if source.ndim > 2 else region.box[1]
    turned = Region((free, region.box[0]), region.transposed(source.shape).rest)

    def compute() -> NkiTensor:
        return cast(_transposed(value, where), kind)

    return placed(name, compute, shape, turned, explicit=dtype is not None)


def _check_free(source: Tensor, region: Region) -> None:
    """Raise Beta1Error if the transpose would have more partitions than the target."""
    most, free = current("nc_transpose").tracer.target.partitions, prod(region.shape[1:])
    if free > most:
        raise refused(
            "size_of_dimension_exceed_arch_limit",
            f"{free} elements per partition of 'data{list(source.shape)}' of 'nc_transpose' exceed the architecture "
            f"limitation of {most}",
            f"transpose parts of {most} columns: nisa.nc_transpose(data[:, i * {most} : (i + 1) * {most}])",
        )


def _transposed(value: NkiTensor, engine: Engine) -> NkiTensor:
    most = current("nc_transpose").tracer.target.limits.vector_transpose
    if engine in (Engine.vector, Engine.unknown) and max(value.shape) <= most:
        made = new_tile(value.shape[::-1], value.dtype)
        nisa.nc_transpose(dst=made, data=value, engine=Engine.vector)
        return made
    return nl.transpose(in_sbuf(value))


def _flat(value: NkiTensor) -> NkiTensor:
    if value.ndim == 2:
        return value
    whole = value if value.is_contiguous() else copied_to_sbuf(value)
    return whole.reshape((value.shape[0], value.view_record.free_size))


def nc_stream_shuffle(
    src: Any, dst: Any, shuffle_mask: Sequence[int], *, dtype: Any = None, mask: Any = None, **kwargs: Any
) -> None:
    """Rows of each quadrant of 32 partitions, in another order: row i of `dst` is row ``shuffle_mask[i]`` of `src`.

    Args:
        shuffle_mask: 32 ints; 255 leaves a row of `dst` as it is.
        dtype: what the values round to first.
        mask: in the axes of `dst`, which stays elsewhere.
    """
    name = "nc_stream_shuffle"
    hints_only(f"nisa.{name}", kwargs)
    target, source = on_chip(dst, "dst", name), on_chip(src, "src", name)
    order = [int(each) for each in shuffle_mask]
    value = tile(source, "src", name)
    value = cast(value, kind_of(dtype, value.dtype))
    region = region_of(mask, target.shape)
    if region.empty:
        return
    if region.box == region_of(None, target.shape).box and not region.rest and value.dtype == target.dtype:
        nisa.nc_stream_shuffle(dst=target.elements(), src=value, shuffle_mask=order)
        return
    made = new_tile(target.shape, target.dtype)
    nisa.tensor_copy(dst=made, src=target.elements())
    nisa.nc_stream_shuffle(dst=made, src=cast(value, target.dtype), shuffle_mask=order)

    def copy(part: NkiTensor, x: NkiTensor) -> None:
        nisa.tensor_copy(dst=part, src=x)

    into(name, target, mask, copy, {"x": Tensor.of(made)})
