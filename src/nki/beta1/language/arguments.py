"""What all functions of the first NKI take: dtypes of results, operators, and keywords that change no value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nki.beta1.errors import Beta1TypeError, refused
from nki.core import dtypes
from nki.core.dtypes import DType
from nki.core.errors import ArgumentError
from nki.isa import alu
from nki.isa import functions as unit
from nki.spec.allocation import checked_dtype
from nki.spec.operator import Operator, operator_of

_HINTS = frozenset({"name", "lazy_initialization", "max_free_vec_size", "precise_schedule", "directives"})
"""Keywords of public kernels that no document describes: names, and hints to the scheduler."""

_UFUNCS: dict[Any, Operator] = {
    np.add: alu.ADD,
    np.subtract: alu.SUBTRACT,
    np.multiply: alu.MULTIPLY,
    np.maximum: alu.MAXIMUM,
    np.max: alu.MAXIMUM,
    np.amax: alu.MAXIMUM,
    np.minimum: alu.MINIMUM,
    np.min: alu.MINIMUM,
    np.amin: alu.MINIMUM,
    np.power: alu.POWER,
    np.equal: alu.EQUAL,
    np.not_equal: alu.NOT_EQUAL,
    np.greater: alu.GREATER,
    np.greater_equal: alu.GREATER_EQUAL,
    np.less: alu.LESS,
    np.less_equal: alu.LESS_EQUAL,
    np.logical_and: alu.LOGICAL_AND,
    np.logical_or: alu.LOGICAL_OR,
    np.logical_xor: alu.LOGICAL_XOR,
    np.bitwise_and: alu.BITWISE_AND,
    np.bitwise_or: alu.BITWISE_OR,
    np.bitwise_xor: alu.BITWISE_XOR,
    np.left_shift: alu.LEFT_SHIFT,
    np.right_shift: alu.RIGHT_SHIFT,
    np.invert: alu.INVERT,
    np.abs: alu.ABS,
    np.square: alu.SQUARE,
    np.reciprocal: alu.RECIPROCAL,
    np.sum: alu.ADD,
    np.prod: alu.MULTIPLY,
    np.copy: unit.COPY,
    np.exp: unit.EXP,
    np.log: unit.LOG,
    np.sqrt: unit.SQRT,
    np.tanh: unit.TANH,
    np.sin: unit.SIN,
    np.arctan: unit.ARCTAN,
    np.sign: unit.SIGN,
}

_REDUCING = {"max": alu.MAXIMUM, "min": alu.MINIMUM, "sum": alu.ADD, "prod": alu.MULTIPLY, "copy": unit.COPY}
"""Functions of nki.language that instructions take for an operator, though they compute something else when called."""


def operation(value: Any, role: str) -> Operator:
    """The operator that an argument names: a function of nki.language, or one of NumPy."""
    if isinstance(value, Operator):
        return value
    try:
        found = _UFUNCS.get(value)
    except TypeError:
        found = None
    module = getattr(value, "__module__", None) or ""
    if found is None and module.startswith("nki.beta1.language"):
        found = _REDUCING.get(value.__name__)
    if found is None and module.startswith("numpy"):
        found = next((own for ufunc, own in _UFUNCS.items() if ufunc.__name__ == value.__name__), None)
    if found is not None:
        return found
    try:
        return operator_of(value, role)
    except ArgumentError:
        raise refused(
            "argument",
            f"{role} is {getattr(value, '__name__', value)!r}, which is no operator",
            "pass a function such as nl.add, np.add or np.exp, without calling it",
            kind=Beta1TypeError,
        ) from None


def flag(value: Any, role: str) -> bool:
    """A choice of True and False. Raises Beta1Error."""
    if isinstance(value, bool | np.bool_ | int) and value in (0, 1):
        return bool(value)
    raise refused("argument", f"{role} is {value!r}", "pass True or False", kind=Beta1TypeError)


def hints_only(function: str, kwargs: Mapping[str, Any]) -> None:
    """Raise for a keyword that is neither an argument nor one of the hints that change no value."""
    for name in kwargs:
        if name not in _HINTS:
            raise refused(
                "argument",
                f"{function} got an unexpected keyword argument {name!r}",
                f"omit {name}",
                kind=Beta1TypeError,
            )


def kind_of(dtype: Any, default: DType) -> DType:
    """The dtype that was asked for, else `default`; every spelling of NumPy counts."""
    if dtype is None:
        return default
    if dtype is bool or dtype is np.bool_:
        return dtypes.uint8
    return checked_dtype(dtype)


def promoted(a: Any, b: Any) -> DType:
    """The dtype of a result of two operands, of which one may be a number (nki/api/nki.api.shared.rst, type promotion).

    A float wins over an integer; of two floats the wider one, of two integers the wider one; two kinds of one width
    give one that holds both. Numbers of Python count as uint8 (bool), int32 and float32.
    """
    one, two = _kind(a), _kind(b)
    if one == two:
        return one
    if one.is_float != two.is_float:
        return one if one.is_float else two
    if one.is_float:
        return _FLOATS.get(frozenset((one, two))) or (one if one.itemsize > two.itemsize else two)
    return _INTEGERS.get(frozenset((one, two))) or (one if one.itemsize > two.itemsize else two)


_FLOATS = {
    frozenset((dtypes.float16, dtypes.bfloat16)): dtypes.float32,
    frozenset((dtypes.float8_e4m3, dtypes.float8_e5m2)): dtypes.bfloat16,
    frozenset((dtypes.float32, dtypes.tfloat32)): dtypes.float32,
}
_INTEGERS = {
    frozenset((dtypes.int8, dtypes.uint8)): dtypes.int16,
    frozenset((dtypes.int8, dtypes.uint16)): dtypes.int32,
    frozenset((dtypes.int16, dtypes.uint16)): dtypes.int32,
    frozenset((dtypes.int32, dtypes.uint32)): dtypes.float32,
    frozenset((dtypes.int16, dtypes.uint32)): dtypes.float32,
    frozenset((dtypes.int8, dtypes.uint32)): dtypes.float32,
}


def _kind(value: Any) -> DType:
    if isinstance(value, bool | np.bool_):
        return dtypes.uint8
    if isinstance(value, np.generic):
        return kind_of(value.dtype, dtypes.float32)
    if isinstance(value, int):
        return dtypes.int32
    if isinstance(value, float):
        return dtypes.float32
    if not hasattr(value, "dtype"):
        raise refused("argument", f"an operand is {value!r}", "pass a tile or a number", kind=Beta1TypeError)
    found: DType = value.dtype
    return dtypes.uint8 if found == dtypes.bool_ else found
