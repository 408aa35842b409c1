"""Python's operators on a tensor, all of them refused: each names the function that computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from nki.core.errors import FrontendError
from nki.core.operator_advice import Advice, Written, comparison, floor_quotient, function, power, quotient

_VALUES = (bool, int, float, complex, np.generic, np.ndarray)


def _binary(symbol: str, remedy: str | Advice) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """The operator, its reflection and its assignment (``x += y``); a text as `remedy` has the names x and y."""
    advice = function(remedy) if isinstance(remedy, str) else remedy

    def operator(self: NoArithmetic, other: Any) -> NoReturn:
        raise _refused(self, symbol, advice(_written(self, "x"), _written(other, "y")))

    def reflected(self: NoArithmetic, other: Any) -> NoReturn:
        raise _refused(self, symbol, advice(_written(other, "y"), _written(self, "x")))

    def in_place(self: NoArithmetic, other: Any) -> NoReturn:
        raise _refused(self, f"{symbol}=", "x[...] = " + advice(_written(self, "x"), _written(other, "y")))

    return operator, reflected, in_place


def _unary(symbol: str, remedy: str) -> Callable[..., Any]:
    def operator(self: NoArithmetic) -> NoReturn:
        raise _refused(self, symbol, remedy.format(x=_named(self, "x")))

    return operator


def _value(kind: str) -> Callable[..., Any]:
    def convert(self: NoArithmetic) -> NoReturn:
        raise FrontendError(
            "tensor.python-value",
            f"{self.describe()} has no {kind} value while the kernel is traced",
            fix="compute with nki.language; a value for loops or offsets comes from nisa.register_load",
        )

    return convert


class NoArithmetic:
    """Base of what only instructions compute with."""

    __slots__ = ()

    if TYPE_CHECKING:  # what those who inherit from it have; abc would make every isinstance of a tensor slower

        def describe(self) -> str:
            """Short text for messages."""

        def _on_chip(self) -> bool: ...

        def _is_integer(self) -> bool: ...

    __add__, __radd__, __iadd__ = _binary("+", "nl.add({x}, {y})")
    __sub__, __rsub__, __isub__ = _binary("-", "nl.subtract({x}, {y})")
    __mul__, __rmul__, __imul__ = _binary("*", "nl.multiply({x}, {y})")
    __truediv__, __rtruediv__, __itruediv__ = _binary("/", quotient)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _binary("//", floor_quotient)
    __mod__, __rmod__, __imod__ = _binary("%", "nl.mod({x}, {y})")
    __pow__, __rpow__, __ipow__ = _binary("**", power)
    __matmul__, __rmatmul__, __imatmul__ = _binary("@", "nl.matmul({x}, {y})")
    __and__, __rand__, __iand__ = _binary("&", "nl.bitwise_and({x}, {y})")
    __or__, __ror__, __ior__ = _binary("|", "nl.bitwise_or({x}, {y})")
    __xor__, __rxor__, __ixor__ = _binary("^", "nl.bitwise_xor({x}, {y})")
    __lshift__, __rlshift__, __ilshift__ = _binary("<<", "nl.left_shift({x}, {y})")
    __rshift__, __rrshift__, __irshift__ = _binary(">>", "nl.right_shift({x}, {y})")
    __lt__, *_ = _binary("<", comparison("less"))
    __le__, *_ = _binary("<=", comparison("less_equal"))
    __gt__, *_ = _binary(">", comparison("greater"))
    __ge__, *_ = _binary(">=", comparison("greater_equal"))
    __neg__ = _unary("-", "nl.negative({x})")
    __invert__ = _unary("~", "nl.invert({x})")
    __abs__ = _unary("abs", "nl.abs({x})")
    __int__ = _value("int")
    __index__ = _value("int")
    __float__ = _value("float")
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        """Options are compared with None and with strings, which no tensor is; values are compared by instructions."""
        if isinstance(other, (NoArithmetic, *_VALUES)):
            raise _refused(self, "==", f"nl.equal({_named(self, 'x')}, {_operand(other)})")
        return False

    def __ne__(self, other: object) -> bool:
        if isinstance(other, (NoArithmetic, *_VALUES)):
            raise _refused(self, "!=", f"nl.not_equal({_named(self, 'x')}, {_operand(other)})")
        return True


def _refused(tensor: NoArithmetic, symbol: str, remedy: str) -> FrontendError:
    return FrontendError(
        "tensor.arithmetic",
        f"tensors have no Python arithmetic: {symbol} with {tensor.describe()}",
        rule="functions of nki.language and instructions compute with tensors",
        fix=f"write {remedy}",
    )


def _operand(value: Any) -> str:
    return _written(value, "y").text


def _written(value: Any, name: str) -> Written:
    """An operand that is called `name` if it is not a number."""
    if isinstance(value, NoArithmetic):
        return Written(_named(value, name), None, value._is_integer())
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool | int | float):
        return Written(repr(plain), plain, not isinstance(plain, float))
    return Written(name, None, isinstance(value, np.ndarray) and value.dtype.kind in "iu")


def _named(tensor: NoArithmetic, name: str) -> str:
    """The name of an operand; functions of nki.language compute on tiles on chip."""
    return name if tensor._on_chip() else f"nl.load({name})"
