"""Copies, transposes and matrix products, recognised from the bodies of instructions.

A body runs with symbols in place of values. One that does nothing but move bits, or multiply two operands into PSUM,
leaves a `Move` for each thing that it does; at everything else the attempt ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from nki.core import dtypes
from nki.core.dtypes import DType
from nki.core.tensor import View
from nki.native.primitives.matmul import MOST_ROWS
from nki.native.primitives.matmul_mx import GROUPS, QUADRANT, VALUES
from nki.native.primitives.widen import PACKED, STORED
from nki.native.trace.expression import Symbol
from nki.native.trace.symbolic_execution import NotTraceable
from nki.spec.engine import engine as Engine
from nki.spec.program import Issued
from nki.target.model import Target


class Copy(NamedTuple):
    """The bits of `src` in element order; dimension i of `dst` is dimension ``axes[i]`` of `src`."""

    dst: View
    src: View
    axes: tuple[int, ...] | None = None


class Transposed(NamedTuple):
    """The bits of `src`, partitions and elements swapped."""

    dst: View
    src: View


class Multiplied(NamedTuple):
    """The product of `src`, transposed, and the identity matrix: the values of `src` unless some are not finite."""

    dst: View
    src: View


class Quadrant(NamedTuple):
    """What a quadrant of partitions has of the operands of a microscaled product."""

    stationary: View
    stationary_scales: View
    moving: View
    moving_scales: View


class Product(NamedTuple):
    """``stationary.T @ moving`` to PSUM; mode as in `nki.spec.arrays.Arrays.accumulate`.

    Attributes:
        rows: of the product that a partition of an operand holds; if more than 1, the second dimension counts them.
        quadrants: of a microscaled product, whose products are added; `stationary` and `moving` are those of the first.
    """

    dst: View
    stationary: View
    moving: View
    mode: bool | None
    rows: int = 1
    quadrants: tuple[Quadrant, ...] = ()


Move = Copy | Transposed | Multiplied | Product


def operands_of(move: Move) -> list[View]:
    """What it writes, and then what it reads."""
    if isinstance(move, Product) and move.quadrants:
        return [move.dst, *[view for quadrant in move.quadrants for view in quadrant]]
    return [value for value in move if isinstance(value, View)]


@dataclass(frozen=True, slots=True)
class _LoadedOperand(Symbol):
    view: View
    raw: bool
    rows: int = 1


@dataclass(frozen=True, slots=True)
class _Swapped(Symbol):
    loaded: _LoadedOperand


@dataclass(frozen=True, slots=True)
class _Dequantized(Symbol):
    packed: View
    scales: View


@dataclass(frozen=True, slots=True)
class _Identity(Symbol):
    count: int


@dataclass(frozen=True, slots=True)
class _ByIdentity(Symbol):
    view: View


@dataclass(frozen=True, slots=True)
class _ProductRecognizer(Symbol):
    stationary: View
    moving: View
    rows: int = 1
    quadrants: tuple[Quadrant, ...] = ()


def depth_of(product: Product) -> int:
    """How many values each element of the result is a sum of."""
    if product.quadrants:
        return len(product.quadrants) * QUADRANT * VALUES
    return product.stationary.shape[0] * product.rows


def moves(issued: Issued, target: Target) -> list[Move]:
    """What the instruction does, in order.

    Raises:
        NotTraceable: it does more than moving bits and multiplying.
    """
    body = _MoveBody(issued.engine, target)
    issued.instruction.execute(issued.arguments, body)
    return body.moves


class _MoveBody:
    """The part of `nki.spec.arrays.Arrays` that moves need."""

    core = 0

    def __init__(self, engine: Engine, target: Target) -> None:
        self.engine = engine
        self.target = target
        self.moves: list[Move] = []

    def __getattr__(self, name: str) -> Any:
        raise NotTraceable(name)

    def load(self, view: View) -> _LoadedOperand:
        return _LoadedOperand(view, False)

    def load_raw(self, view: View) -> _LoadedOperand:
        return _LoadedOperand(view, True)

    def reshape(self, values: Any, shape: Sequence[int]) -> Any:
        if not isinstance(values, _LoadedOperand):
            raise NotTraceable("reshape")
        for rows in (1, *values.view.shape[1:2]):
            if tuple(shape) == (values.view.shape[0] * rows, values.view.free_size // rows):
                return replace(values, rows=rows)
        raise NotTraceable("reshape")

    def transpose(self, values: Any) -> _Swapped:
        if not isinstance(values, _LoadedOperand) or not values.raw or values.rows > 1:
            raise NotTraceable("transpose")
        return _Swapped(values)

    def store_raw(self, view: View, values: Any) -> None:
        loaded = values.loaded if isinstance(values, _Swapped) else values
        if (
            not isinstance(loaded, _LoadedOperand)
            or not loaded.raw
            or loaded.view.dtype.itemsize != view.dtype.itemsize
        ):
            raise NotTraceable("store_raw")
        if isinstance(values, _Swapped):
            self.moves.append(Transposed(view, loaded.view))
        else:
            self.copy(view, loaded.view)

    def copy(self, dst: View, src: View) -> None:
        if dst.dtype != src.dtype:
            raise NotTraceable("copy")
        self.moves.append(Copy(dst, src))

    def dma(self, dst: View, src: View, skip: bool, axes: Sequence[int] | None = None, add: View | None = None) -> None:
        if add is not None or dst.dtype != src.dtype:
            raise NotTraceable("dma")
        order = None if axes is None or tuple(axes) == tuple(range(src.ndim)) else tuple(axes)
        self.moves.append(Copy(dst, src, order))

    def dequantize(self, packed: Any, dtype: DType, scales: Any) -> _Dequantized:
        if not all(isinstance(loaded, _LoadedOperand) and loaded.rows == 1 for loaded in (packed, scales)):
            raise NotTraceable("dequantize")
        counts = packed.view.shape[0], scales.view.shape[0]
        if dtype.name not in PACKED or scales.view.dtype is not dtypes.float8_e8m0fnu or counts != (QUADRANT, GROUPS):
            raise NotTraceable("dequantize")
        return _Dequantized(packed.view, scales.view)

    def add(self, one: Any, other: Any) -> _ProductRecognizer:
        if not all(isinstance(product, _ProductRecognizer) and product.quadrants for product in (one, other)):
            raise NotTraceable("add")
        return replace(one, quadrants=(*one.quadrants, *other.quadrants))

    def identity(self, count: int) -> _Identity:
        return _Identity(count)

    def matmul(self, stationary: Any, moving: Any) -> _ProductRecognizer | _ByIdentity:
        if isinstance(stationary, _Dequantized) and isinstance(moving, _Dequantized):
            quadrant = Quadrant(stationary.packed, stationary.scales, moving.packed, moving.scales)
            return _ProductRecognizer(stationary.packed, moving.packed, quadrants=(quadrant,))
        for factor in (stationary, moving):
            if isinstance(factor, _Identity):
                continue
            if not isinstance(factor, _LoadedOperand) or factor.raw or factor.view.dtype.name not in STORED:
                raise NotTraceable("matmul")
        if isinstance(moving, _Identity) and isinstance(stationary, _LoadedOperand):
            return _ByIdentity(stationary.view)
        if stationary.rows != moving.rows or stationary.rows > MOST_ROWS:
            raise NotTraceable("matmul")
        return _ProductRecognizer(stationary.view, moving.view, stationary.rows)

    def accumulate(self, dst: View, product: Any, mode: bool | None) -> None:
        if dst.dtype not in (dtypes.float32, dtypes.bfloat16):
            raise NotTraceable("accumulate")
        if isinstance(product, _ByIdentity) and mode is False:
            self.moves.append(Multiplied(dst, product.view))
            return
        if not isinstance(product, _ProductRecognizer):
            raise NotTraceable("accumulate")
        self.moves.append(Product(dst, product.stationary, product.moving, mode, product.rows, product.quadrants))
