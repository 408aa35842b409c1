"""Instructions that choose by position or by a predicate, and those that make constants."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import nki.isa as nisa
from nki.beta1.errors import Beta1TypeError, refused
from nki.beta1.isa.activations import reduced_column
from nki.beta1.isa.enumerations import fp32
from nki.beta1.isa.shared import apart, columns, engine_of, into, tiles, vector
from nki.beta1.language.arguments import flag, hints_only, kind_of, operation
from nki.beta1.language.memory import sizes_of
from nki.beta1.tensors.index import Index
from nki.beta1.tensors.mask import Comparison, Mask, region_of
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.elementwise import elementwise
from nki.beta1.tracing.operands import common_region, plain
from nki.beta1.tracing.predicate import COMPARED
from nki.beta1.tracing.results import placed
from nki.core.dtypes import DType, bool_, float32, uint8, uint16, uint32
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu
from nki.language.arguments import is_number
from nki.language.combine import cast, in_sbuf
from nki.language.memory import new_tile
from nki.spec.engine import engine as Engine
from nki.spec.engine import reduce_cmd as ReduceCommand

_UNSIGNED = {1: uint8, 2: uint16, 4: uint32}


def affine_select(
    pred: Any, on_true_tile: Any, on_false_value: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any
) -> Tensor:
    """`on_true_tile` where a comparison of index expressions holds, elsewhere a number; on GpSimd.

    Args:
        pred: one comparison of affine expressions of nl.arange, nl.mgrid, loop variables and program ids.
    """
    name = "affine_select"
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, on_true_tile=on_true_tile)
    value, kind = float(plain(on_false_value)), kind_of(dtype, source.dtype)
    each = _comparison(pred)
    low = [first for first, _ in common_region(name, [source], mask)[1].box]

    def compute(x: NkiTensor) -> NkiTensor:
        made = new_tile(x.shape, kind)
        if isinstance(each, bool):
            nisa.tensor_copy(dst=made, src=x) if each else nisa.memset(dst=made, value=_number(value, kind))
            return made
        steps = (0,) * (source.ndim - len(each.steps)) + each.steps[-source.ndim :]
        nisa.affine_select(
            dst=made,
            pattern=[[step, size] for step, size in zip(steps[1:], x.shape[1:], strict=True)],
            channel_multiplier=steps[0],
            on_true_tile=in_sbuf(x),
            on_false_value=value,
            cmp_op=COMPARED[each.relation],
            offset=each.const + sum(step * first for step, first in zip(steps, low, strict=True)),
        )
        return made

    if isinstance(each, Comparison):
        Mask((each,)).region(source.shape)  # whose axes it has
    return elementwise(name, [source], mask, compute, explicit=dtype is not None)


def _comparison(pred: Any) -> Comparison | bool:
    if isinstance(pred, bool | np.bool_):
        return bool(pred)
    if isinstance(pred, Mask) and len(pred.comparisons) == 1:
        return pred.comparisons[0]
    raise refused(
        "unsupported_expression_in_mask",
        f"pred of 'affine_select' is {'several comparisons' if isinstance(pred, Mask) else type(pred).__name__}",
        "write one comparison, such as i_p >= i_f; select again for a second one",
        rule="the predicate is one comparison of affine expressions",
        kind=Beta1TypeError,
    )


def range_select(
    *,
    on_true_tile: Any,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Any,
    bound1: Any,
    reduce_cmd: ReduceCommand = ReduceCommand.idle,
    reduce_res: Any = None,
    reduce_op: Any = np.amax,
    range_start: int = 0,
    on_false_value: float = fp32.min,
    mask: Any = None,
    dtype: Any = None,
    **kwargs: Any,
) -> Tensor:
    """`on_true_tile` where the position compares with both bounds, else the smallest float32; its maximum beside.

    Args:
        bound0, bound1: one float32 for each partition.
        reduce_res: a column that gets the maximum; without `reduce_cmd` it starts anew.
        range_start: the position of the first element.
    """
    name = "range_select"
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, on_true_tile=on_true_tile)
    low, high = columns(name, source, bound0=bound0, bound1=bound1)
    one, two, reducer = operation(comp_op0, "comp_op0"), operation(comp_op1, "comp_op1"), operation(reduce_op, "op")
    kind, result = kind_of(dtype, source.dtype), reduced_column(name, [source, low, high], reduce_res, mask)
    command = reduce_cmd
    if command is ReduceCommand.idle and reduce_res is not None:
        command = ReduceCommand.reset_reduce
    first = common_region(name, [source, low, high], mask)[1].box[-1][0]

    def compute(x: NkiTensor, a: Any, b: Any) -> NkiTensor:
        made = new_tile(x.shape, kind)
        nisa.range_select(
            dst=made,
            on_true_tile=x,
            comp_op0=one,
            comp_op1=two,
            bound0=vector(a),
            bound1=vector(b),
            reduce_cmd=command,
            reduce_res=result,
            reduce_op=reducer,
            range_start=int(range_start) + first,
            on_false_value=plain(on_false_value),
        )
        return made

    return elementwise(name, [source, low, high], mask, compute, explicit=dtype is not None)


def select_reduce(
    *,
    dst: Any,
    predicate: Any,
    on_true: Any,
    on_false: Any,
    reduce_res: Any = None,
    reduce_cmd: ReduceCommand = ReduceCommand.idle,
    reduce_op: Any = np.amax,
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
    **kwargs: Any,
) -> None:
    """`on_true` where the predicate is not 0, else `on_false`, written to `dst`; its maximum beside.

    Args:
        on_false: a number, or one element for each partition.
        reduce_res: a column that gets the maximum.
        reverse_pred: whether 0 chooses `on_true`.
    """
    name = "select_reduce"
    hints_only(f"nisa.{name}", kwargs)
    target, chosen, source = tiles(name, dst=dst, predicate=predicate, on_true=on_true)
    (other,) = columns(name, target, on_false=on_false)
    reducer, result = operation(reduce_op, "reduce_op"), reduced_column(name, [target], reduce_res, mask)

    def issue(made: NkiTensor, which: NkiTensor, x: NkiTensor, y: Any) -> None:
        nisa.select_reduce(
            dst=made,
            predicate=apart(which, x),
            on_true=x,
            on_false=vector(y),
            reduce_res=result,
            reduce_cmd=reduce_cmd,
            reduce_op=reducer,
            reverse_pred=flag(reverse_pred, "reverse_pred"),
        )

    kind = None if dtype is None else kind_of(dtype, target.dtype)
    into(name, target, mask, issue, {"which": chosen, "x": source}, dtype=kind, rows={"y": other})


def tensor_copy_predicated(
    *,
    src: Any,
    dst: Any,
    predicate: Any,
    reverse_pred: bool = False,
    mask: Any = None,
    dtype: Any = None,
    **kwargs: Any,
) -> None:
    """``dst = src`` where the predicate is not 0; elsewhere `dst` stays.

    Args:
        src: a tile, or a number.
        predicate: as large as `dst`, or for whole rows of its last axes.
        reverse_pred: whether 0 chooses `src`.
        dtype: what `src` rounds to first.
    """
    name = "tensor_copy_predicated"
    hints_only(f"nisa.{name}", kwargs)
    target, chosen = tiles(name, dst=dst, predicate=predicate)
    if prod(chosen.shape) < prod(target.shape) and chosen.ndim <= target.ndim:
        chosen = chosen.expand_dims(range(chosen.ndim, target.ndim)).broadcast_to(target.shape)
    value = plain(src) if is_number(src) else tiles(name, dst=dst, src=src)[1]

    def issue(made: NkiTensor, which: NkiTensor, x: Any) -> None:
        bits = truth(which)
        if isinstance(x, NkiTensor):
            x = cast(x if dtype is None else cast(x, kind_of(dtype, x.dtype)), made.dtype)
            bits = apart(bits, x)
        nisa.tensor_copy_predicated(dst=made, src=x, predicate=bits, reverse_pred=flag(reverse_pred, "reverse_pred"))

    into(name, target, mask, issue, {"which": chosen, "x": value}, keeps=True)


def truth(predicate: NkiTensor) -> NkiTensor:
    """A predicate as instructions take it: integers as unsigned ones, floats compared with 0."""
    kind = predicate.dtype
    if kind.is_integer or kind == bool_:
        wanted = _UNSIGNED[kind.itemsize]
        return predicate if kind == wanted else predicate.view(wanted)
    made = new_tile(predicate.shape, uint8)
    nisa.tensor_scalar(dst=made, data=predicate, op0=alu.NOT_EQUAL, operand0=0.0)
    return made


def iota(expr: Any, dtype: Any, *, mask: Any = None, **kwargs: Any) -> Tensor:
    """The values of an index expression as a tile, on GpSimd; a number gives ``(1, 1)``."""
    name = "iota"
    hints_only(f"nisa.{name}", kwargs)
    index, kind = _index(expr), kind_of(dtype, float32)
    region = region_of(mask, index.shape)
    low = [first for first, _ in region.box]

    def compute() -> NkiTensor:
        sizes = region.shape if not region.empty else index.shape
        made = new_tile(sizes, kind)
        if not region.empty:
            nisa.iota(
                dst=made,
                pattern=[[step, size] for step, size in zip(index.steps[1:], sizes[1:], strict=True)],
                offset=index.const + sum(step * first for step, first in zip(index.steps, low, strict=True)),
                channel_multiplier=index.steps[0],
            )
        return made

    return placed(name, compute, index.shape, region)


def _index(expr: Any) -> Index:
    if is_number(expr) and not isinstance(expr, float):
        return Index(int(expr), (1, 1), (0, 0))
    if isinstance(expr, Index) and expr.ndim > 1:
        return expr
    if isinstance(expr, Index) and expr.ndim == 0:
        return Index(expr.const, (1, 1), (0, 0))
    if isinstance(expr, Index):
        raise refused(
            "1d_arange_not_supported",
            f"'iota' of an index tensor of shape {list(expr.shape)}",
            "say which axis it is: nl.arange(n)[None, :] for the free axis, nl.arange(n)[:, None] for the partitions",
            rule="a tile has two dimensions at least",
        )
    raise refused(
        "argument",
        f"expr of 'iota' is {type(expr).__name__}",
        "pass an affine expression of nl.arange, nl.mgrid, loop variables and program ids",
        kind=Beta1TypeError,
    )


def memset(
    shape: Any, value: Any, dtype: Any, *, mask: Any = None, engine: Engine = Engine.unknown, **kwargs: Any
) -> Tensor:
    """A new tile of one value; the first size is the partitions."""
    name = "memset"
    hints_only(f"nisa.{name}", kwargs)
    kind, where = kind_of(dtype, float32), engine_of(engine, name)
    sizes, _ = sizes_of(shape)
    sizes = sizes if len(sizes) > 1 else (*sizes, 1)
    region = region_of(mask, sizes)

    def compute() -> NkiTensor:
        made = new_tile(sizes if region.empty else region.shape, kind)
        if not region.empty:
            nisa.memset(dst=made, value=_number(plain(value), kind), engine=where)
        return made

    return placed(name, compute, sizes, region)


def _number(value: Any, kind: DType) -> Any:
    return int(value) if kind.is_integer or kind == bool_ else value
