"""The small kernels between kernels: copies in device memory, and registers that choose what runs."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import nki.isa as nisa
from nki.core.dtypes import uint8
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import contiguous_strides
from nki.graph.ir import TensorType
from nki.isa.register import register_alu, register_op

_PIECES = 16
"""Transfers that a large copy is made of, so that several queues share it."""
_WORTH = 1 << 16
"""Bytes from which more than one transfer pays."""


def copy(source: NkiTensor, target: NkiTensor) -> None:
    """All bytes of a tensor into another one of its shape."""
    size = prod(source.shape)
    pieces = min(_PIECES, size) if size * source.dtype.itemsize >= _WORTH else 1
    step = -(-size // pieces)
    for first in range(0, size, step):
        count = min(step, size - first)
        nisa.dma_copy(dst=_flat(target, first, count), src=_flat(source, first, count))


def part_of(strides: tuple[int, ...], shape: tuple[int, ...], offset: int) -> Callable[[NkiTensor, NkiTensor], None]:
    """A kernel that copies the elements of a view of its first tensor into its second one."""

    def copy_part(source: NkiTensor, target: NkiTensor) -> None:
        pattern = [[stride, count] for stride, count in zip(strides, shape, strict=True)]
        nisa.dma_copy(dst=target, src=source.ap(pattern, offset=offset))

    return copy_part


BOTH = (TensorType((1, 1), uint8),)
"""The arguments of `meet`."""


def meet(both: NkiTensor) -> None:
    """The cores wait for each other; they name a tensor that both have."""
    nisa.core_barrier(both, (0, 1))


def truth(test: NkiTensor) -> None:
    """Load a truth value, or a number, into a register, which is the last operand of this kernel's last instruction."""
    register = nisa.register_alloc()
    nisa.register_load(register, test)


def chosen(number: int, count: int, truth: bool) -> Callable[[NkiTensor], None]:
    """A kernel whose last instruction leaves 1 in its register if branch `number` of `count` is to run, else 0.

    A number outside of the branches chooses the last one; a truth value the first if it is true, else the second.
    """

    def choose(index: NkiTensor) -> None:
        value, found = nisa.register_alloc(), nisa.register_alloc()
        nisa.register_load(value, index)
        if truth:
            register_alu(found, value, 0, register_op.equal if number else register_op.not_equal)
        elif count == 1:
            nisa.register_move(found, 1)
        elif number < count - 1:
            register_alu(found, value, number, register_op.equal)
        else:
            below = nisa.register_alloc()
            register_alu(below, value, 0, register_op.less)
            register_alu(value, value, count - 1, register_op.greater_equal)
            register_alu(found, value, below, register_op.bitwise_or)

    return choose


def ended(_: NkiTensor) -> None:
    """Leave 0 in a register, so that a loop ends."""
    register = nisa.register_alloc()
    nisa.register_move(register, 0)


def _flat(tensor: NkiTensor, first: int, count: int) -> NkiTensor:
    """Elements of a row-major tensor as if it had one dimension."""
    assert tensor.view_record.strides == contiguous_strides(tensor.shape), "values are row-major"
    return tensor.ap([[1, count]], offset=first)
