"""Registers of the engines' sequencers: numbers that exist only while the kernel runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from types import FrameType
from typing import Any, NoReturn

from nki.core.errors import FrontendError
from nki.core.shown import shown
from nki.core.source import here, text_of

Truth = Callable[["VirtualRegister", FrameType], bool]
"""Answers ``while register:`` for the trace that owns the register; the frame is the one that asks."""

_BRANCH_FIX = "loop with nl.while_loop or `while register:`, or decide with nisa.select_reduce or a mask on a tensor"
_SCALAR_FIX = "load the value with nisa.scalar_load: an NkiScalar takes part in arithmetic and comparisons"


def _refused(symbol: str) -> Callable[..., Any]:
    def operator(self: VirtualRegister, other: Any) -> NoReturn:
        raise not_python(f"an operand of {symbol}", _SCALAR_FIX)

    return operator


class VirtualRegister:
    """A 32-bit register that the compiler places on whichever sequencers need it.

    It stands for a value that is not known while the kernel is traced, so it cannot steer Python: use it as a loop
    bound, a loop condition or a dynamic offset. ``while register:`` is a loop on the device; every other truth test is
    an error. `nki.isa.NkiScalar` is the register that also takes part in arithmetic.
    """

    __slots__ = ("_truth", "frozen", "id", "trace")

    def __init__(
        self, state: int | None = None, frozen: bool = False, trace: Hashable = None, truth: Truth | None = None
    ) -> None:
        self.id = -1 if state is None else state
        self.frozen = frozen
        self.trace = trace
        self._truth = truth

    @property
    def record(self) -> VirtualRegister:
        """What instructions carry."""
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id})"

    def __bool__(self) -> bool:
        if self._truth is None:
            raise not_a_condition()
        return self._truth(self.record, sys._getframe(1))

    def __int__(self) -> NoReturn:
        raise not_python("an int", "keep the computation in registers or tensors")

    def __index__(self) -> NoReturn:
        if text_of(here().frame).startswith("range("):
            raise not_python("a bound of range", "write nl.dynamic_range(register) in place of range(register)")
        raise not_python(
            "an index",
            "use tensor.select(dim, register), after tensor.reshape((blocks, rows, columns)) if it counts blocks, "
            "or scalar_offset of tensor.ap(...)",
        )

    def __float__(self) -> NoReturn:
        raise not_python("a float", "store it with nisa.register_store and use the tensor")

    def __iter__(self) -> NoReturn:
        raise not_python("an iterable", "use nl.fori_loop(0, register, body)")

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, int | float) and not isinstance(other, bool):
            raise not_python("an operand of ==", _SCALAR_FIX)
        return self is other

    def __hash__(self) -> int:
        return id(self)

    __add__ = __radd__ = _refused("+")
    __sub__ = __rsub__ = _refused("-")
    __mul__ = __rmul__ = _refused("*")
    __floordiv__ = __rfloordiv__ = _refused("//")
    __truediv__ = __rtruediv__ = _refused("/")
    __mod__ = __rmod__ = _refused("%")
    __lshift__ = __rlshift__ = _refused("<<")
    __rshift__ = __rrshift__ = _refused(">>")
    __and__ = __rand__ = _refused("&")
    __or__ = __ror__ = _refused("|")
    __xor__ = __rxor__ = _refused("^")
    __lt__ = _refused("<")
    __le__ = _refused("<=")
    __gt__ = _refused(">")
    __ge__ = _refused(">=")


@shown.register
def _(value: VirtualRegister) -> str:
    return "a register"


def not_python(role: str, fix: str) -> FrontendError:
    """The error for a register where Python needs a value."""
    return FrontendError(
        "register.python-value",
        f"a register was used as {role}, but its value is only known while the kernel runs",
        fix=fix,
    )


def not_a_condition() -> FrontendError:
    """The error for a truth test that is not the condition of a while loop."""
    text = text_of(here().frame)
    for name, method in (("min(", "minimum"), ("max(", "maximum")):
        if text.startswith(name):
            return not_python(f"an operand of {name[:-1]}", f"write scalar.{method}(other)")
    return not_python("a condition", _BRANCH_FIX)
