"""Registers of the sequencers: numbers of 32 bits for loop bounds, loop conditions and dynamic addresses."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from nki.core.dtypes import float32, int8, int16, int32, uint8, uint16, uint32
from nki.core.errors import ArgumentError
from nki.core.nki_tensor import NkiTensor
from nki.core.register import VirtualRegister
from nki.spec.arrays import Arrays
from nki.spec.engine import engine as Engine
from nki.spec.instruction import instruction
from nki.spec.operand import DMA_REACHABLE, Operand, out, source
from nki.spec.rule import Rule
from nki.spec.sink import current_sink

_ISA = "nki/api/nki/isa"
_GUIDE = "nki/get-started/nki-language-guide.rst, Dynamic Control Flow"

# Every sequencer has registers, and the compiler chooses among them; Sync has nothing else to do.
_SEQUENCERS = (Engine.sync, Engine.vector, Engine.scalar, Engine.gpsimd, Engine.tensor)
_SCALARS = (int32, uint32, int16, uint16, int8, uint8, float32)

_RegisterDst = Annotated[VirtualRegister, Operand("register", writes=True)]
_RegisterSrc = Annotated[VirtualRegister, Operand("register", reads=True)]

_NOT_FROZEN = Rule(
    "frozen",
    "the index of a device loop is not written",
    lambda a, t: not a.dst.frozen,
    "release-notes/components/nki.rst 0.4.0",
    "move it into a register of your own: nisa.register_move(nisa.register_alloc(), index)",
    lambda a, t: "dst is the index of a device loop",
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
            f"x must be an int or a tensor, not {type(x).__name__} {x!r}",
            rule="a register starts with a constant integer, a loaded value, or none",
            source=_ISA,
            fix="pass an int; copy a register with nisa.register_move(nisa.register_alloc(), register)",
        )
    return register


@instruction(
    engines=_SEQUENCERS,
    source=_ISA,
    rules=[
        _NOT_FROZEN,
        Rule(
            "range",
            "a constant fits 32 bits, signed or unsigned",
            lambda a, t: isinstance(a.src, VirtualRegister) or int32.min <= a.src <= uint32.max,
            _GUIDE,
            "use a smaller number",
            lambda a, t: f"src is {a.src}",
        ),
    ],
)
def register_move(
    dst: _RegisterDst, src: Annotated[int | VirtualRegister, Operand("register_or_int", reads=True)]
) -> None:
    """Put a constant, or the value of another register, into a register.

    Registers hold 32 bits and count as signed: ``2**32 - 1`` reads as -1.

    Args:
        dst: any register but the index of a device loop.
        src: int or register.
    """


@register_move.body
def _(a: Any, x: Arrays) -> None:
    x.write_register(a.dst, x.read_register(a.src))


@instruction(engines=_SEQUENCERS, source=_ISA, rules=[_NOT_FROZEN, _one_element("src")])
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


@instruction(engines=_SEQUENCERS, source=_ISA, rules=[_one_element("dst")])
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
