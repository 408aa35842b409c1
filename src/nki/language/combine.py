"""Operators with two operands on tiles: which instruction computes them, and in which dtype."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
from nki.core.dtypes import DType, float32, int16, int32, uint32
from nki.core.errors import ArgumentError, DtypeError
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.isa import alu
from nki.language.arguments import Number, operand, result_dtype
from nki.language.broadcasting import common_shape, fit, spread
from nki.language.memory import filled_tile, new_tile
from nki.language.python_numbers import in_python
from nki.spec.operator import Operator

_VECTOR_ONLY = (alu.ABS_MAX, alu.ABS_MIN)
_NOT_INTEGER = (*_VECTOR_ONLY, alu.POWER)


def combine(operator: Operator, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """``x <operator> y`` in a new SBUF tile, with broadcasting; one of the two may be a number.

    Without `dtype` the result has the dtype of the tiles (`promoted` if they differ), whatever a number is. Arithmetic
    is float32, except that 32-bit integers combine exactly, and bitvec operators take integers as they are.
    """
    a, b = operand(x, "x", operator.name), operand(y, "y", operator.name)
    tiles = [t for t in (a, b) if isinstance(t, NkiTensor)]
    if not tiles:
        raise two_numbers(operator.name, x, y)
    kind = result_dtype(dtype, promoted(tiles[0].dtype, tiles[-1].dtype))
    if operator.is_bitvec:
        return cast(_bits(operator, a, b), kind)
    wide = _exact_dtype(operator, a, b)
    if wide is not None:
        return cast(_integers(operator, a, b, wide), kind)
    return _floats(operator, a, b, kind)


def two_numbers(function: str, x: Any, y: Any) -> ArgumentError:
    """The error for a function of two operands of which none is a tile."""
    return ArgumentError(
        "language.two-numbers",
        f"nl.{function}({x!r}, {y!r})",
        rule="at least one operand is a tile",
        fix=f"write {in_python(function, (x, y)) or 'the number that Python computes'}",
    )


def promoted(a: DType, b: DType) -> DType:
    """The dtype of a result of two tiles: equal ones stay, floats win over integers, wider over narrower.

    Of two different formats of one width, floats give float32, integers the next wider signed one (at most int32).
    """
    if a == b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_integer != b.is_integer and not a.is_float:
        return a if a.is_integer else b
    if a.itemsize != b.itemsize:
        return a if a.itemsize > b.itemsize else b
    if a.is_float:
        return float32
    return int16 if a.itemsize == 1 else int32


def cast(x: NkiTensor, dtype: DType) -> NkiTensor:
    """`x` itself if it has that dtype, else a new SBUF tile."""
    return x if x.dtype == dtype else copied(x, dtype)


def copied(x: NkiTensor, dtype: DType | None = None) -> NkiTensor:
    """A new SBUF tile with the values of `x`; the bits if the dtype stays."""
    result = new_tile(x.shape, dtype or x.dtype)
    nisa.tensor_copy(dst=result, src=x)
    return result


def in_sbuf(x: NkiTensor) -> NkiTensor:
    """`x`, or a copy of it if it is in PSUM."""
    return x if x.buffer is MemoryRegion.sbuf else copied(x)


def is_column(x: NkiTensor) -> bool:
    """True for a float32 tile with one element per partition, which instructions take as an operand for whole rows."""
    return x.dtype == float32 and x.view_record.free_size == 1


# --- float32


def _floats(operator: Operator, a: NkiTensor | Number, b: NkiTensor | Number, dtype: DType) -> NkiTensor:
    if operator == alu.POWER:
        return _power(a, b, dtype)
    if not isinstance(b, NkiTensor):
        assert isinstance(a, NkiTensor), "one operand is a tile"
        return _with_scalar(operator, a, b, False, dtype)
    if not isinstance(a, NkiTensor):
        return _with_scalar(operator, b, a, True, dtype)
    shape = common_shape(operator.name, (a, b))
    if is_column(b) and not is_column(a) and a.shape == shape:
        return _with_scalar(operator, a, _column(b, shape[0]), False, dtype)
    if is_column(a) and not is_column(b) and b.shape == shape:
        return _with_scalar(operator, b, _column(a, shape[0]), True, dtype)
    return _tensors(operator, fit(a, shape), fit(b, shape), dtype)


def _with_scalar(operator: Operator, x: NkiTensor, scalar: Any, reverse: bool, dtype: DType) -> NkiTensor:
    result = new_tile(x.shape, dtype)
    nisa.tensor_scalar(dst=result, data=x, op0=operator, operand0=scalar, reverse0=reverse)
    return result


def _column(x: NkiTensor, partitions: int) -> NkiTensor:
    return x if x.shape[0] == partitions else spread(x, partitions)


def _tensors(operator: Operator, a: NkiTensor, b: NkiTensor, dtype: DType) -> NkiTensor:
    if a.buffer is MemoryRegion.psum and b.buffer is MemoryRegion.psum:
        a = copied(a)
    result = new_tile(a.shape, dtype)
    # With engine unknown, integers of 32 bits would go to GpSimd, which lacks these two.
    engine = nisa.engine.vector if operator in _VECTOR_ONLY else nisa.engine.unknown
    nisa.tensor_tensor(dst=result, data1=a, data2=b, op=operator, engine=engine)
    return result


def _power(a: NkiTensor | Number, b: NkiTensor | Number, dtype: DType) -> NkiTensor:
    """``a ** b`` on GpSimd, which reads no PSUM and takes two tiles (release-notes/components/nki.rst, NKI 0.4.0)."""
    base, exponent = _as_tile(a, b, float32), _as_tile(b, a, float32)
    shape = common_shape("power", (base, exponent))
    return _tensors(alu.POWER, fit(in_sbuf(base), shape), fit(in_sbuf(exponent), shape), dtype)


def _as_tile(value: NkiTensor | Number, other: NkiTensor | Number, dtype: DType) -> NkiTensor:
    if isinstance(value, NkiTensor):
        return value
    assert isinstance(other, NkiTensor), "one operand is a tile"
    return filled_tile((other.shape[0], 1), dtype, int(value) if dtype.is_integer else value)


# --- integers


def _exact_dtype(operator: Operator, a: NkiTensor | Number, b: NkiTensor | Number) -> DType | None:
    """The 32-bit integer in which the operands combine without loss, or None if float32 has to do."""
    wide = next((t.dtype for t in (a, b) if isinstance(t, NkiTensor) and t.dtype in (int32, uint32)), None)
    if wide is None or operator in _NOT_INTEGER or operator.alu == "logical":
        return None
    return wide if all(_converts(value, wide) for value in (a, b)) else None


def _converts(value: NkiTensor | Number, wide: DType) -> bool:
    if isinstance(value, NkiTensor):
        kind = value.dtype
        return kind in (int32, uint32) or (kind.itemsize < 4 and kind.is_integer and kind.min >= wide.min)
    return float(value).is_integer() and wide.min <= value <= wide.max


def _integers(operator: Operator, a: NkiTensor | Number, b: NkiTensor | Number, wide: DType) -> NkiTensor:
    """GpSimd is exact if inputs and result are 32-bit integers in SBUF (nki/api/nki/isa tensor_tensor)."""
    left, right = (in_sbuf(_widened(_as_tile(v, w, wide), wide)) for v, w in ((a, b), (b, a)))
    shape = common_shape(operator.name, (left, right))
    return _tensors(operator, fit(left, shape), fit(right, shape), wide)


def _widened(x: NkiTensor, wide: DType) -> NkiTensor:
    return x if x.dtype.itemsize == wide.itemsize else copied(x, wide)


def _bits(operator: Operator, a: NkiTensor | Number, b: NkiTensor | Number) -> NkiTensor:
    if isinstance(a, NkiTensor) and isinstance(b, NkiTensor):
        shape = common_shape(operator.name, (a, b))
        for value, name in ((a, "x"), (b, "y")):
            _integer_tile(operator, value, name)
        return _tensors(operator, fit(a, shape), fit(b, shape), a.dtype)
    reverse = not isinstance(a, NkiTensor)
    x, scalar = (b, a) if reverse else (a, b)
    assert isinstance(x, NkiTensor) and not isinstance(scalar, NkiTensor), "one operand is a tile"
    _integer_tile(operator, x, "y" if reverse else "x")
    return _with_scalar(operator, x, _pattern(operator, scalar, x.dtype), reverse, x.dtype)


def _integer_tile(operator: Operator, x: NkiTensor, name: str) -> None:
    if not x.dtype.is_integer:
        raise DtypeError(
            "language.bitvec",
            f"nl.{operator}: {name} is {x.view_record.describe()}",
            rule="bitwise operators take integers",
            source="nki/api/nki.api.shared.rst",
            fix=f"use {name}.view(nl.uint{x.dtype.bits}) for its bits, nl.copy({name}, dtype=nl.int32) for its values",
        )


def _pattern(operator: Operator, scalar: Number, dtype: DType) -> int:
    if float(scalar).is_integer() and dtype.min <= scalar <= dtype.max:
        return int(scalar)
    raise ArgumentError(
        "language.bitvec",
        f"nl.{operator}: {scalar!r} is not a value of {dtype}",
        rule="bitwise operators take integers of one size",
        fix=f"use an int from {int(dtype.min)} to {int(dtype.max)}",
    )
