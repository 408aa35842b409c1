"""Numbers of run time and tiles: one is made of the other by way of a register."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NoReturn

import nki.isa as nisa
from nki.beta1.errors import Beta1TypeError, refused
from nki.beta1.tensors.scalar import Scalar, is_whole
from nki.beta1.tensors.tensor import COMPARISONS, Tensor
from nki.beta1.tracing.operands import tile
from nki.beta1.tracing.session import current
from nki.core.dtypes import int32
from nki.core.shown import shown
from nki.language.memory import new_tile


class RunTimeFloat:
    """A number of run time that is not whole: a tile of one element, compared and computed by instructions."""

    __slots__ = ("tile",)

    def __init__(self, one: Tensor) -> None:
        self.tile = one

    def __bool__(self) -> NoReturn:
        raise refused(
            "dynamic_control_flow_not_supported",
            "a number of run time that is not whole is a condition",
            "compare it: cond = number < 1e-3",
            kind=Beta1TypeError,
        )

    __hash__ = object.__hash__


def _compared(name: str, function: str) -> None:
    setattr(
        RunTimeFloat,
        f"__{name}__",
        lambda self, other: number_of(Tensor.functions[function](self.tile, _operand(other))),
    )


def _computed(name: str, function: str) -> None:
    def forward(self: RunTimeFloat, other: Any) -> RunTimeFloat:
        return RunTimeFloat(Tensor.functions[function](self.tile, _operand(other)))

    def backward(self: RunTimeFloat, other: Any) -> RunTimeFloat:
        return RunTimeFloat(Tensor.functions[function](_operand(other), self.tile))

    setattr(RunTimeFloat, f"__{name}__", forward)
    setattr(RunTimeFloat, f"__r{name}__", backward)


def _operand(value: Any) -> Any:
    return value.tile if isinstance(value, RunTimeFloat) else as_tile(value)


for _name, _function in COMPARISONS.items():
    _compared(_name, _function)
for _name, _function in {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide"}.items():
    _computed(_name, _function)


def scalar(value: Any) -> Any:
    """A number of run time, of a tensor of one element; a whole number of Python stands for itself.

    ``cond = nt.scalar(True)`` begins a loop ``while cond:``, which the device runs.

    Raises:
        Beta1Error: something else ("beta1.argument"); outside of a kernel ("beta1.nki_api_outside_of_nki_kernel").
    """
    current("nt.scalar")
    if isinstance(value, Scalar | RunTimeFloat):
        return value
    if is_whole(value):
        return Scalar((), int(value))
    if isinstance(value, Tensor):
        return number_of(value)
    raise refused(
        "argument", f"nt.scalar got {shown(value)}", "pass a tensor of one element, or an int", kind=Beta1TypeError
    )


def number_of(value: Tensor) -> Any:
    """The one element of a tensor as a number of run time. Raises Beta1Error."""
    if prod(value.shape) != 1:
        raise refused(
            "argument",
            f"nt.scalar got {value.describe()}",
            "pass one element of it: nt.scalar(tile[0, 0])",
            rule="a number of run time is one element",
        )
    if not value.dtype.is_integer:
        made = value if value.on_chip else Tensor.functions["load"](value)
        return RunTimeFloat(Tensor.functions["copy"](made))
    element = tile(value, "value", "scalar", sbuf=True) if value.on_chip else value.elements()
    register = nisa.register_alloc()
    nisa.register_load(register, element)
    return Scalar.of(register)


def as_tile(value: Any) -> Any:
    """A number of run time as a tile (1, 1); anything else as it is."""
    if type(value) is Tensor:
        return value
    if isinstance(value, RunTimeFloat):
        return value.tile
    if type(value) is not Scalar:
        return value
    if value.known:
        return value.const
    made = new_tile((1, 1), int32)
    nisa.register_store(made, value.register())
    return Tensor.of(made)


def extreme(function: str, one: Any, other: Any) -> Scalar:
    """``nl.maximum`` and ``nl.minimum`` of numbers of run time."""
    a, b = [each if type(each) is Scalar else scalar(each) for each in (one, other)]
    compute: Callable[[Any], Any] = getattr(a.register(), function)
    return Scalar.of(compute(b.const if b.known else b.register()).record)
