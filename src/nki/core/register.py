"""Registers of the engines' sequencers: numbers that exist only while the kernel runs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NoReturn

from nki.core.errors import FrontendError


class VirtualRegister:
    """A 32-bit register that the compiler places on whichever sequencers need it.

    It stands for a value that is not known while the kernel is traced, so it cannot steer Python: use it as a loop
    bound, a loop condition or a dynamic offset.
    """

    __slots__ = ("frozen", "id", "trace")

    def __init__(self, state: int | None = None, frozen: bool = False, trace: Hashable = None) -> None:
        self.id = -1 if state is None else state
        self.frozen = frozen
        self.trace = trace

    def __repr__(self) -> str:
        return f"VirtualRegister({self.id})"

    def __bool__(self) -> NoReturn:
        raise _not_python("a condition", "use nl.while_loop or nl.fori_loop, or decide with nisa.select on a tensor")

    def __int__(self) -> NoReturn:
        raise _not_python("an int", "keep the computation in registers or tensors")

    def __index__(self) -> NoReturn:
        raise _not_python("an index", "pass it as scalar_offset of tensor.ap(...) or use tensor.select(dim, register)")

    def __float__(self) -> NoReturn:
        raise _not_python("a float", "store it with nisa.register_store and use the tensor")

    def __iter__(self) -> NoReturn:
        raise _not_python("an iterable", "use nl.fori_loop(0, register, body)")

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, int | float) and not isinstance(other, bool):
            raise _not_python("an operand of ==", "compare tensors with nl.equal, or loop with nl.while_loop")
        return self is other

    def __hash__(self) -> int:
        return id(self)


def _not_python(role: str, fix: str) -> FrontendError:
    return FrontendError(
        "register.python-value",
        f"a register was used as {role}, but its value is only known while the kernel runs",
        fix=fix,
    )
