"""Instructions that compute each element of its own: tensor_tensor, tensor_scalar and their kin, copies, reciprocal."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
from nki.beta1.errors import refused
from nki.beta1.isa.shared import alike, apart, columns, engine_of, tiles, vector
from nki.beta1.language.arguments import flag, hints_only, kind_of, operation, promoted
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.elementwise import elementwise
from nki.beta1.tracing.session import current
from nki.core.dtypes import DType, float32
from nki.core.nki_tensor import NkiTensor
from nki.isa import alu
from nki.isa.functions import COPY
from nki.language.broadcasting import common_shape, fit
from nki.language.combine import cast, in_sbuf
from nki.language.memory import new_tile
from nki.spec.engine import engine as Engine
from nki.spec.operator import Operator

_ON_GPSIMD = (alu.POWER, alu.RSQRT)
_LOGICAL_NOT = "logical_not"


def tensor_tensor(
    data1: Any,
    data2: Any,
    op: Any,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Engine = Engine.unknown,
    **kwargs: Any,
) -> Tensor:
    """``data1 op data2``, in float32; integers of 32 bits on GpSimd as they are, and bitvec operators on bits.

    Args:
        data1, data2: tiles with the same partitions; free sizes of 1 repeat.
        dtype: of the result; what the two promote to by default.
    """
    name = "tensor_tensor"
    hints_only(f"nisa.{name}", kwargs)
    own, where = operation(op, "op"), engine_of(engine, name)
    one, two = tiles(name, data1=data1, data2=data2)
    operands = [one, alike(one, two)]
    kind = kind_of(dtype, promoted(*operands))

    def compute(a: NkiTensor, b: NkiTensor) -> NkiTensor:
        return _combined(own, a, b, kind, where)

    return elementwise(name, operands, mask, compute, explicit=dtype is not None)


def _combined(own: Operator, a: NkiTensor, b: NkiTensor, kind: DType, where: Engine) -> NkiTensor:
    shape, inner = a.shape, kind
    if shape != b.shape:
        shape = common_shape(own.name, (a, b))
        a, b = fit(a, shape), fit(b, shape)
    if own.is_bitvec:
        inner = promoted(a, b)
        a, b = cast(a, inner), cast(b, inner)
    if own in _ON_GPSIMD or where is Engine.gpsimd or _exact(own, a, b):
        a, b = in_sbuf(a), in_sbuf(b)
    made = new_tile(shape, inner)
    nisa.tensor_tensor(dst=made, data1=apart(a, b), data2=b, op=own, engine=where)
    return cast(made, kind)


def _exact(own: Operator, a: NkiTensor, b: NkiTensor) -> bool:
    """Whether GpSimd combines two integers of 32 bits."""
    return own.alu == "arithmetic" and all(each.dtype.is_integer and each.dtype.itemsize == 4 for each in (a, b))


def tensor_scalar(
    data: Any,
    op0: Any,
    operand0: Any = None,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Any = None,
    engine: Engine = Engine.unknown,
    **kwargs: Any,
) -> Tensor:
    """``(data op0 operand0) op1 operand1``, with the operands swapped where reversed.

    Args:
        operand0, operand1: numbers, or one element for each partition.
        dtype: of the result; that of `data` by default.
    """
    name = "tensor_scalar"
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, data=data)
    one, two = columns(name, source, operand0=operand0, operand1=operand1)
    if op1 is None and reverse1:
        raise refused("argument", "'tensor_scalar' got reverse1 without op1", "pass op1, or leave out reverse1")
    first, one, reverse0 = step(op0, one, reverse0, "op0")
    second, two, reverse1 = step(op1, two, reverse1, "op1") if op1 is not None else (None, two, reverse1)
    kind, where = kind_of(dtype, source.dtype), engine_of(engine, name)

    def compute(x: NkiTensor, a: Any, b: Any) -> NkiTensor:
        bits = first.is_bitvec
        a, b = (vector(each, x.dtype if bits else float32) for each in (a, b))
        if where is Engine.gpsimd or first in _ON_GPSIMD or second in _ON_GPSIMD:
            x = in_sbuf(x)
            a, b = (in_sbuf(each) if isinstance(each, NkiTensor) else each for each in (a, b))
        made = new_tile(x.shape, x.dtype if bits else kind)
        nisa.tensor_scalar(
            dst=made,
            data=x,
            op0=first,
            operand0=a,
            reverse0=reverse0,
            op1=second,
            operand1=b,
            reverse1=reverse1,
            engine=where,
        )
        return cast(made, kind)

    return elementwise(name, [source, one, two], mask, compute, explicit=dtype is not None)


def step(op: Any, operand: Any, reverse: bool, role: str) -> tuple[Operator, Any, bool]:
    """An operator with its second operand; ``logical_not`` compares with 0, and what has one operand has no second."""
    if getattr(op, "__name__", "") == _LOGICAL_NOT:
        return alu.EQUAL, 0.0, False
    own = operation(op, role)
    return (own, operand, flag(reverse, f"reverse of {role}")) if own.arity == 2 else (own, operand, False)


def scalar_tensor_tensor(
    *,
    data: Any,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    dtype: Any = None,
    mask: Any = None,
    **kwargs: Any,
) -> Tensor:
    """``(data op0 operand0) op1 operand1`` with a number or a column, and then a tile.

    Args:
        operand0: a number, or one element for each partition.
        operand1: a tile of the shape of `data`.
        dtype: of the result; that of `data` by default.
    """
    name = "scalar_tensor_tensor"
    hints_only(f"nisa.{name}", kwargs)
    source, second_tile = tiles(name, data=data, operand1=operand1)
    other = alike(source, second_tile)
    (one,) = columns(name, source, operand0=operand0)
    first, second, kind = operation(op0, "op0"), operation(op1, "op1"), kind_of(dtype, source.dtype)

    def compute(x: NkiTensor, a: Any, y: NkiTensor) -> NkiTensor:
        made = new_tile(x.shape, kind)
        nisa.scalar_tensor_tensor(
            dst=made,
            data=apart(x, y),
            op0=first,
            operand0=vector(a),
            op1=second,
            operand1=fit(y, x.shape),
            reverse0=flag(reverse0, "reverse0"),
            reverse1=flag(reverse1, "reverse1"),
        )
        return made

    return elementwise(name, [source, one, other], mask, compute, explicit=dtype is not None)


def tensor_copy(
    src: Any, *, mask: Any = None, dtype: Any = None, engine: Engine = Engine.unknown, **kwargs: Any
) -> Tensor:
    """A copy of a tile, bit for bit if the dtype stays: in SBUF, or in the tile that it is assigned to."""
    name = "tensor_copy"
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, src=src)
    kind, where = kind_of(dtype, source.dtype), engine_of(engine, name)

    def compute(x: NkiTensor) -> NkiTensor:
        made = new_tile(x.shape, kind)
        copied(made, x, where)
        return made

    return elementwise(name, [source], mask, compute, explicit=dtype is not None)


def copied(dst: NkiTensor, src: NkiTensor, engine: Engine) -> None:
    """A copy by the engine that was asked for; Scalar of the first generation copies by its activation unit."""
    if engine is Engine.scalar and not current("nisa.tensor_copy").tracer.target.has("scalar_tensor_copy"):
        nisa.activation(dst=dst, op=COPY, data=src)
        return
    nisa.tensor_copy(dst=dst, src=in_sbuf(src) if engine is Engine.gpsimd else src, engine=engine)


def reciprocal(data: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
    """``1 / data`` on Vector."""
    name = "reciprocal"
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, data=data)
    kind = kind_of(dtype, source.dtype)

    def compute(x: NkiTensor) -> NkiTensor:
        made = new_tile(x.shape, kind)
        nisa.reciprocal(dst=made, data=x)
        return made

    return elementwise(name, [source], mask, compute, explicit=dtype is not None)


def dropout(data: Any, prob: Any, *, mask: Any = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """`data` with elements replaced by 0 with probability `prob`; nothing is scaled.

    Args:
        prob: a number, or one element for each partition.
    """
    name = "dropout"
    hints_only(f"nisa.{name}", kwargs)
    (source,) = tiles(name, data=data)
    (one,) = columns(name, source, prob=prob)
    kind = kind_of(dtype, source.dtype)

    def compute(x: NkiTensor, p: Any) -> NkiTensor:
        made = new_tile(x.shape, x.dtype)
        nisa.dropout(dst=made, data=x, prob=vector(p))
        return cast(made, kind)

    return elementwise(name, [source, one], mask, compute, explicit=dtype is not None)
