"""Registers of the sequencers: numbers of 32 bits for loop bounds, loop conditions and dynamic addresses."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Annotated, Any

import numpy as np

from nki.core.dtypes import float32, int8, int16, int32, uint8, uint16, uint32
from nki.core.errors import ArgumentError, ExecutionError
from nki.core.nki_tensor import NkiTensor
from nki.core.register import VirtualRegister
from nki.core.shown import shown
from nki.spec.arrays import Arrays
from nki.spec.cost_core import sequences
from nki.spec.engine import engine as Engine
from nki.spec.instruction import Deprecated, instruction
from nki.spec.operand import DMA_REACHABLE, Operand, choice, out, source
from nki.spec.rule import Rule
from nki.spec.sink import current_sink

_ISA = "nki/api/nki/isa"
_GUIDE = "nki/get-started/nki-language-guide.rst, Dynamic Control Flow"

# Every sequencer has registers, and the compiler chooses among them; Sync has nothing else to do.
_SEQUENCERS = (Engine.sync, Engine.vector, Engine.scalar, Engine.gpsimd, Engine.tensor)
_SCALARS = (int32, uint32, int16, uint16, int8, uint8, float32)

_RegisterDst = Annotated[VirtualRegister, Operand("register", writes=True)]
_RegisterSrc = Annotated[VirtualRegister, Operand("register", reads=True)]
_RegisterOrInt = Annotated[int | VirtualRegister, Operand("register_or_int", reads=True)]

_NOT_FROZEN = Rule(
    "frozen",
    "the index of a device loop is not written",
    lambda a, t: not a.dst.frozen,
    "release-notes/components/nki.rst 0.4.0",
    "move it into a register of your own: nisa.register_move(nisa.register_alloc(), index)",
    lambda a, t: "dst is the index of a device loop",
)


def _range(*names: str) -> Rule:
    return Rule(
        "range",
        "a constant fits 32 bits, signed or unsigned",
        lambda a, t: all(
            isinstance(value, VirtualRegister) or int32.min <= value <= uint32.max
            for value in (getattr(a, name) for name in names)
        ),
        _GUIDE,
        "use a smaller number",
        lambda a, t: ", ".join(f"{name} is {getattr(a, name)}" for name in names),
    )


def _one_element(name: str) -> Rule:
    return Rule(
        "one-element",
        f"{name} has one element",
        lambda a, t: getattr(a, name).size == 1,
        _ISA,
        f"slice one element of {name}",
        lambda a, t: f"{name} is {getattr(a, name).describe()}",
    )


PUBLIC = ("register_alloc",)
"""What this family exports besides its instructions."""


def register_alloc(x: int | NkiTensor | None = None) -> VirtualRegister:
    """A new register.

    Args:
        x: None leaves it without a value, and reading it is an error; an int is moved into it (`register_move`); from
            a tensor of one element, as older kernels pass it, it is loaded (`register_load`).

    Raises:
        ArgumentError: `x` is something else (``operand.kind``).
    """
    register = current_sink("nisa.register_alloc").register()
    if isinstance(x, NkiTensor):
        register_load(register, x)
    elif isinstance(x, int | np.integer) and not isinstance(x, bool):
        register_move(register, int(x))
    elif x is not None:
        raise ArgumentError(
            "operand.kind",
            f"x must be an int or a tensor, not {shown(x)}",
            rule="a register starts with a constant integer, a loaded value, or none",
            source=_ISA,
            fix="pass an int; copy a register with nisa.register_move(nisa.register_alloc(), register)",
        )
    return register


_IMMEDIATE = Deprecated(
    "imm",
    "write nisa.register_move(dst, number), or nisa.register_alloc(x=number) for a new register",
    lambda value, bound: False,
    "src takes numbers as well as registers",
    today="src",
)


@instruction(
    engines=_SEQUENCERS,
    source=_ISA,
    rules=[_NOT_FROZEN, _range("src")],
    deprecated=[_IMMEDIATE],
    steps=sequences("RegisterMove"),
)
def register_move(dst: _RegisterDst, src: _RegisterOrInt) -> None:
    """Put a constant, or the value of another register, into a register.

    Registers hold 32 bits and count as signed: ``2**32 - 1`` reads as -1.

    Args:
        dst: any register but the index of a device loop.
        src: int or register.
    """


@register_move.body
def _(a: Any, x: Arrays) -> None:
    x.write_register(a.dst, x.read_register(a.src))


@instruction(
    engines=_SEQUENCERS, source=_ISA, rules=[_NOT_FROZEN, _one_element("src")], steps=sequences("RegisterLoad", "src")
)
def register_load(dst: _RegisterDst, src: Annotated[NkiTensor, source(DMA_REACHABLE, _SCALARS, dma=True)]) -> None:
    """Load the one element of a tensor into a register.

    Narrow signed integers keep their value, unsigned ones are filled with zeros. A float32 is loaded as its bits, not
    converted: convert it to int32 first if it shall be a count.

    Args:
        dst: any register but the index of a device loop.
        src: HBM or SBUF, one integer of up to 32 bits, or one float32.
    """


@register_load.body
def _(a: Any, x: Arrays) -> None:
    raw = np.array(x.load_raw(a.src)).reshape(1)
    x.write_register(a.dst, int((raw if a.src.dtype.is_integer else raw.view(np.int32))[0]))


@instruction(engines=_SEQUENCERS, source=_ISA, rules=[_one_element("dst")], steps=sequences("RegisterStore", "dst"))
def register_store(dst: Annotated[NkiTensor, out(DMA_REACHABLE, _SCALARS, dma=True)], src: _RegisterSrc) -> None:
    """Store a register into the one element of a tensor.

    Narrow integers take the low bits. A float32 takes the bits, as `register_load` reads them.

    Args:
        dst: HBM or SBUF, one integer of up to 32 bits, or one float32.
        src: a register that has a value.
    """


@register_store.body
def _(a: Any, x: Arrays) -> None:
    bits = np.array([[x.read_register(a.src)]], np.int64).astype(f"u{a.dst.dtype.itemsize}")
    x.store_raw(a.dst, bits.view(a.dst.dtype.numpy))


class register_op(Enum):  # noqa: N801 - spelled like the other enumerations of nki.isa
    """What `register_alu` computes."""

    add = auto()
    subtract = auto()
    multiply = auto()
    floor_divide = auto()
    remainder = auto()
    left_shift = auto()
    right_shift = auto()
    bitwise_and = auto()
    bitwise_or = auto()
    bitwise_xor = auto()
    minimum = auto()
    maximum = auto()
    equal = auto()
    not_equal = auto()
    less = auto()
    less_equal = auto()
    greater = auto()
    greater_equal = auto()


_SHIFTED_OUT = 32
"""A shift by this much or more leaves nothing but the sign."""

_COMPUTE: dict[register_op, Callable[[int, int], int]] = {
    register_op.add: lambda a, b: a + b,
    register_op.subtract: lambda a, b: a - b,
    register_op.multiply: lambda a, b: a * b,
    register_op.floor_divide: lambda a, b: a // b,
    register_op.remainder: lambda a, b: a % b,
    register_op.left_shift: lambda a, b: a << min(b, _SHIFTED_OUT),
    register_op.right_shift: lambda a, b: a >> min(b, _SHIFTED_OUT),
    register_op.bitwise_and: lambda a, b: a & b,
    register_op.bitwise_or: lambda a, b: a | b,
    register_op.bitwise_xor: lambda a, b: a ^ b,
    register_op.minimum: min,
    register_op.maximum: max,
    register_op.equal: lambda a, b: int(a == b),
    register_op.not_equal: lambda a, b: int(a != b),
    register_op.less: lambda a, b: int(a < b),
    register_op.less_equal: lambda a, b: int(a <= b),
    register_op.greater: lambda a, b: int(a > b),
    register_op.greater_equal: lambda a, b: int(a >= b),
}

_DIVISIONS = (register_op.floor_divide, register_op.remainder)
_SHIFTS = (register_op.left_shift, register_op.right_shift)


@instruction(
    engines=_SEQUENCERS,
    source=_ISA,
    rules=[_NOT_FROZEN, _range("a", "b")],
    public=False,
    steps=sequences("RegisterAlu"),
)
def register_alu(
    dst: _RegisterDst, a: _RegisterOrInt, b: _RegisterOrInt, op: Annotated[register_op, choice(register_op)]
) -> None:
    """``dst = a <op> b`` in 32-bit signed integers that wrap: what the arithmetic of `NkiScalar` issues.

    Division, remainder and right shift round down. Dividing by 0 and shifting by a negative count is an error while
    the kernel runs; a shift by 32 or more leaves 0, or the sign.

    Args:
        dst: any register but the index of a device loop.
        a, b: ints or registers.
        op: member of `register_op`.
    """


@register_alu.body
def _(a: Any, x: Arrays) -> None:
    first, second = (_signed(x.read_register(value)) for value in (a.a, a.b))
    if (a.op in _DIVISIONS and second == 0) or (a.op in _SHIFTS and second < 0):
        raise ExecutionError(
            "register.arithmetic",
            f"{a.op.name} of {first} by {second}",
            rule="registers are divided by numbers other than 0, and shifted by 0 or more",
            fix="use divisor.maximum(1), or skip the computation with a loop of 0 trips",
        )
    x.write_register(a.dst, _COMPUTE[a.op](first, second))


def _signed(value: int) -> int:
    """A constant as the register would hold it."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)
