"""`NkiScalar`: a register whose arithmetic and comparisons become register instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.core.dtypes import DType
from nki.core.errors import ArgumentError, DtypeError
from nki.core.nki_tensor import NkiTensor
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.isa.register import register_alu, register_load, register_move, register_op, register_store
from nki.spec.sink import current_sink

_NEWS = "release notes of NKI 0.7.0"


PUBLIC = ("NkiScalar", "scalar_load", "scalar_store")
"""What this family exports besides its instructions."""


class NkiScalar(VirtualRegister):
    """An integer that is only known while the kernel runs.

    ``+ - * // % << >> & | ^ ~``, comparisons (1 or 0), `minimum` and `maximum` with other scalars, registers and ints
    give new scalars. They count in 32 bits, signed, and wrap; ``//``, ``%`` and ``>>`` round down as in Python. Use one
    as a loop bound, as the condition of a loop, as ``scalar_offset``, or wherever an instruction takes a register.

    Args:
        register: the register that holds the value; the scalar is another name for it.
    """

    __slots__ = ("_record",)

    def __init__(self, register: VirtualRegister) -> None:
        self._record = register.record
        super().__init__(self._record.id, self._record.frozen, self._record.trace, self._record._truth)

    @property
    def record(self) -> VirtualRegister:
        return self._record

    def minimum(self, other: Any) -> NkiScalar:
        """The smaller one."""
        return _computed(register_op.minimum, self, other)

    def maximum(self, other: Any) -> NkiScalar:
        """The larger one."""
        return _computed(register_op.maximum, self, other)

    def __add__(self, other: Any) -> NkiScalar:
        return _computed(register_op.add, self, other)

    def __radd__(self, other: Any) -> NkiScalar:
        return _computed(register_op.add, other, self)

    def __sub__(self, other: Any) -> NkiScalar:
        return _computed(register_op.subtract, self, other)

    def __rsub__(self, other: Any) -> NkiScalar:
        return _computed(register_op.subtract, other, self)

    def __mul__(self, other: Any) -> NkiScalar:
        return _computed(register_op.multiply, self, other)

    def __rmul__(self, other: Any) -> NkiScalar:
        return _computed(register_op.multiply, other, self)

    def __floordiv__(self, other: Any) -> NkiScalar:
        return _computed(register_op.floor_divide, self, other)

    def __rfloordiv__(self, other: Any) -> NkiScalar:
        return _computed(register_op.floor_divide, other, self)

    def __mod__(self, other: Any) -> NkiScalar:
        return _computed(register_op.remainder, self, other)

    def __rmod__(self, other: Any) -> NkiScalar:
        return _computed(register_op.remainder, other, self)

    def __lshift__(self, other: Any) -> NkiScalar:
        return _computed(register_op.left_shift, self, other)

    def __rlshift__(self, other: Any) -> NkiScalar:
        return _computed(register_op.left_shift, other, self)

    def __rshift__(self, other: Any) -> NkiScalar:
        return _computed(register_op.right_shift, self, other)

    def __rrshift__(self, other: Any) -> NkiScalar:
        return _computed(register_op.right_shift, other, self)

    def __and__(self, other: Any) -> NkiScalar:
        return _computed(register_op.bitwise_and, self, other)

    def __rand__(self, other: Any) -> NkiScalar:
        return _computed(register_op.bitwise_and, other, self)

    def __or__(self, other: Any) -> NkiScalar:
        return _computed(register_op.bitwise_or, self, other)

    def __ror__(self, other: Any) -> NkiScalar:
        return _computed(register_op.bitwise_or, other, self)

    def __xor__(self, other: Any) -> NkiScalar:
        return _computed(register_op.bitwise_xor, self, other)

    def __rxor__(self, other: Any) -> NkiScalar:
        return _computed(register_op.bitwise_xor, other, self)

    def __neg__(self) -> NkiScalar:
        return _computed(register_op.subtract, 0, self)

    def __pos__(self) -> NkiScalar:
        return self

    def __invert__(self) -> NkiScalar:
        return _computed(register_op.bitwise_xor, self, -1)

    def __lt__(self, other: Any) -> NkiScalar:
        return _computed(register_op.less, self, other)

    def __le__(self, other: Any) -> NkiScalar:
        return _computed(register_op.less_equal, self, other)

    def __gt__(self, other: Any) -> NkiScalar:
        return _computed(register_op.greater, self, other)

    def __ge__(self, other: Any) -> NkiScalar:
        return _computed(register_op.greater_equal, self, other)

    def __eq__(self, other: Any) -> Any:
        return _computed(register_op.equal, self, other) if _is_operand(other) else NotImplemented

    def __ne__(self, other: Any) -> Any:
        return _computed(register_op.not_equal, self, other) if _is_operand(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._record)


def scalar_load(tensor: NkiTensor) -> NkiScalar:
    """The one element of an integer tensor in HBM or SBUF as a scalar.

    Raises:
        DtypeError: the element is not an integer (``scalar.dtype``).
    """
    if isinstance(tensor, NkiTensor) and not tensor.dtype.is_integer:
        raise _not_an_integer("tensor", tensor.dtype)
    register = current_sink("nisa.scalar_load").register()
    register_load(register, tensor)
    return NkiScalar(register)


def scalar_store(tensor: NkiTensor, scalar: Any) -> None:
    """Store a scalar, a register or an int into the one element of an integer tensor, which keeps the low bits.

    Raises:
        DtypeError: the element is not an integer (``scalar.dtype``).
        ArgumentError: `scalar` is something else (``scalar.operand``).
    """
    if isinstance(tensor, NkiTensor) and not tensor.dtype.is_integer:
        raise _not_an_integer("tensor", tensor.dtype)
    value = _operand(scalar)
    if not isinstance(value, VirtualRegister):
        register = current_sink("nisa.scalar_store").register()
        register_move(register, value)
        value = register
    register_store(tensor, value)


def _computed(op: register_op, a: Any, b: Any) -> NkiScalar:
    first, second = _operand(a), _operand(b)
    result = current_sink("arithmetic of an NkiScalar").register()
    register_alu(result, first, second, op)
    return NkiScalar(result)


def _is_operand(value: Any) -> bool:
    return isinstance(value, VirtualRegister | int | np.integer) and not isinstance(value, bool)


def _operand(value: Any) -> VirtualRegister | int:
    if not _is_operand(value):
        raise ArgumentError(
            "scalar.operand",
            f"an operand of a scalar is {shown(value)}",
            rule="scalars combine with scalars, registers and ints",
            source=_NEWS,
            fix="use an int, or compute with tensors",
        )
    return value if isinstance(value, VirtualRegister) else int(value)


def _not_an_integer(name: str, dtype: DType) -> DtypeError:
    return DtypeError(
        "scalar.dtype",
        f"{name} has dtype {dtype}",
        rule="a scalar is an integer of up to 32 bits",
        source=_NEWS,
        fix="convert it to int32 with nisa.tensor_copy first, or move its bits with nisa.register_load",
    )
