"""What an instruction returns is a handle and no tensor: using it as one is an error that says where the result is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from nki.core.errors import FrontendError, RemovedError
from nki.core.names.removed_table import TENSOR
from nki.core.nki_tensor import NkiTensor
from nki.core.shown import shown

PASS_DST = "pass the dst of the instruction: it wrote there, and returned no tensor"

_RULE = "an instruction writes into its dst; what it returns is a handle, for depends_on"
_SOURCE = "nki/migration/index.rst, All ISA functions require a destination parameter"
_NAMES = frozenset(name for name in dir(NkiTensor) if not name.startswith("_")) | frozenset(TENSOR)
"""Attributes of tensors and of arrays; all others are asked for by tools, which take a plain AttributeError."""


def _operator(symbol: str) -> Callable[..., Any]:
    def refused(self: NoTensor, *_: Any) -> NoReturn:
        raise FrontendError(
            "instruction.result", f"{symbol} with {shown(self)}", rule=_RULE, source=_SOURCE, fix=PASS_DST
        )

    return refused


class NoTensor:
    """Base of what kernels take for a tensor.

    Attributes of tensors and Python's operators are errors with a remedy, which are an AttributeError and a TypeError
    as well. Equality, truth, copies and pickles are those of any object.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # so that type checkers know the attributes

        def __getattr__(self, name: str) -> NoReturn:
            if name not in _NAMES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)
            raise RemovedError(
                "instruction.result", f"{shown(self)} has no {name!r}", rule=_RULE, source=_SOURCE, fix=PASS_DST
            )

    __add__ = __radd__ = _operator("+")
    __sub__ = __rsub__ = _operator("-")
    __mul__ = __rmul__ = _operator("*")
    __truediv__ = __rtruediv__ = _operator("/")
    __floordiv__ = __rfloordiv__ = _operator("//")
    __mod__ = __rmod__ = _operator("%")
    __pow__ = __rpow__ = _operator("**")
    __matmul__ = __rmatmul__ = _operator("@")
    __and__ = __rand__ = _operator("&")
    __or__ = __ror__ = _operator("|")
    __xor__ = __rxor__ = _operator("^")
    __lshift__ = __rlshift__ = _operator("<<")
    __rshift__ = __rrshift__ = _operator(">>")
    __lt__ = __gt__ = _operator("comparison")
    __le__ = __ge__ = _operator("comparison")
    __neg__ = _operator("-")
    __invert__ = _operator("~")
    __abs__ = _operator("abs")
    __getitem__ = _operator("indexing")
    __setitem__ = _operator("assignment to a part")
