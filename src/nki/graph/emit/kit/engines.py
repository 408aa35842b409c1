"""Instructions as emitters use them: a new tile for each result, broadcasts by access pattern, engines by load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import nki.isa as nisa
import nki.language as nl
from nki.core.dtypes import DType, bool_, float32, int32, uint8, uint32
from nki.core.nki_tensor import NkiTensor
from nki.core.tensor import MemoryRegion
from nki.isa import alu
from nki.isa import functions as unit
from nki.target.model import Target

Number = int | float

_SCALAR_RATE = 0.8
"""Time of an element on Scalar, of one on Vector being 1: the ratio of their clocks."""

_GPSIMD_RATE = 2.4
"""Time of an element on GpSimd, which has two inputs to read, of one on Vector being 1."""

_WORTHWHILE = 256
"""Elements per partition from which an instruction is given to another engine than the obvious one."""

_LARGEST = 1 << 24
"""Up to this magnitude every integer is a float32."""


@dataclass(frozen=True, slots=True)
class Splat:
    """A value whose elements are all the same number, which is known."""

    value: Number


Made = TypeVar("Made")

Form = NkiTensor | Splat
"""How a value is present: a tile ``(partitions, *free)``, in which a size of 1 is broadcast, or a number."""


def storage(dtype: DType) -> DType:
    """The dtype of tiles: truth values are bytes of 0 and 1."""
    return uint8 if dtype == bool_ else dtype


def is_word(dtype: DType) -> bool:
    """Whether it is a 32-bit integer, which passes through float32 only if it is small."""
    return dtype in (int32, uint32)


def is_column(form: Form) -> bool:
    """Whether a tile has one element per partition."""
    return isinstance(form, NkiTensor) and prod(form.shape[1:]) == 1


def in_sbuf(*tiles: NkiTensor) -> bool:
    """Whether all tiles are in SBUF, where GpSimd reaches them."""
    return all(tile.buffer is MemoryRegion.sbuf for tile in tiles)


class EngineOps:
    """Issues instructions; results are new SBUF tiles.

    Args:
        target: what the kernel is made for.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._load = {nisa.engine.vector: 0.0, nisa.engine.scalar: 0.0, nisa.engine.gpsimd: 0.0}
        self._columns: dict[tuple[int, int, DType, str], NkiTensor] = {}
        self._last: tuple[NkiTensor, Callable[..., Any], Any] | None = None

    def once(self, make: Callable[[EngineOps, NkiTensor], Made], tile: NkiTensor) -> Made:
        """What a function makes of a tile, which is kept until another one is asked for."""
        if self._last is None or self._last[0] is not tile or self._last[1] is not make:
            self._last = (tile, make, make(self, tile))
        made: Made = self._last[2]
        return made

    # --- tiles

    def new(self, shape: Sequence[int], dtype: DType) -> NkiTensor:
        """A tile in SBUF."""
        return nl.ndarray(tuple(shape), dtype=dtype, buffer=nl.sbuf)

    def column(self, value: Number, dtype: DType, partitions: int, rank: int = 2) -> NkiTensor:
        """A tile with the same number in each partition, made once."""
        key = (partitions, rank, dtype, repr(value))
        if key not in self._columns:
            tile = self.new((partitions,) + (1,) * (rank - 1), dtype)
            nisa.memset(dst=tile, value=value)
            self._columns[key] = tile
        return self._columns[key]

    def filled(self, value: Number, dtype: DType, shape: Sequence[int]) -> NkiTensor:
        """A tile of one number."""
        tile = self.new(shape, dtype)
        nisa.memset(dst=tile, value=value)
        return tile

    def tile(self, form: Form, dtype: DType, like: Sequence[int]) -> NkiTensor:
        """A form as a tile: numbers become columns."""
        if isinstance(form, NkiTensor):
            return form
        return self.column(form.value, dtype, like[0], len(like))

    def fit(self, tile: NkiTensor, shape: Sequence[int]) -> NkiTensor:
        """The tile with its sizes of 1 broadcast to the shape."""
        for dim in range(1, len(shape)):
            if tile.shape[dim] != shape[dim]:
                tile = tile.broadcast(dim, shape[dim])
        return tile

    def common(self, *forms: Form) -> tuple[int, ...]:
        """The shape to which tiles broadcast."""
        shapes = [form.shape for form in forms if isinstance(form, NkiTensor)]
        return tuple(max(sizes) for sizes in zip(*shapes, strict=True))

    # --- instructions

    def copy(self, x: NkiTensor, dtype: DType, dst: NkiTensor | None = None) -> NkiTensor:
        """A cast by way of float32 on whatever engine has time, or a copy of the bits."""
        result = self.new(x.shape, dtype) if dst is None else dst
        x = self.fit(x, result.shape)
        exact = x.dtype == dtype and not dtype.is_float
        if exact or x.dtype.is_packed:
            nisa.tensor_copy(dst=result, src=x, engine=self._spend(nisa.engine.vector, result))
        elif self._quicker(nisa.engine.scalar, result) and not is_word(x.dtype):
            nisa.activation(dst=result, op=unit.COPY, data=x)
        else:
            nisa.tensor_copy(dst=result, src=x, engine=nisa.engine.vector)
        return result

    def scalar(
        self,
        x: NkiTensor,
        op0: Any,
        operand0: Number | NkiTensor,
        op1: Any = None,
        operand1: Number | NkiTensor | None = None,
        *,
        reverse0: bool = False,
        reverse1: bool = False,
        dtype: DType | None = None,
    ) -> NkiTensor:
        """``(x <op0> operand0) <op1> operand1`` with numbers or float32 columns."""
        result = self.new(x.shape, x.dtype if dtype is None else dtype)
        pair = (op0, op1)
        if pair in ((alu.MULTIPLY, None), (alu.MULTIPLY, alu.ADD)) and self._affine(result, operand0, operand1):
            bias = None if operand1 is None else self._bias(operand1, x.shape[0])
            nisa.activation(dst=result, op=unit.COPY, data=x, scale=self._flat(operand0), bias=bias)
            return result
        self._spend(nisa.engine.vector, result)
        nisa.tensor_scalar(
            dst=result,
            data=x,
            op0=op0,
            operand0=self._flat(operand0),
            reverse0=reverse0,
            op1=op1,
            operand1=None if operand1 is None else self._flat(operand1),
            reverse1=reverse1,
        )
        return result

    def bits(self, x: NkiTensor, op0: Any, operand0: int, op1: Any = None, operand1: int | None = None) -> NkiTensor:
        """Bit operators with constant patterns, on integers as they are."""
        result = self.new(x.shape, x.dtype)
        self._spend(nisa.engine.vector, result)
        nisa.tensor_scalar(dst=result, data=x, op0=op0, operand0=operand0, op1=op1, operand1=operand1)
        return result

    def binary(self, a: NkiTensor, b: NkiTensor, op: Any, dtype: DType | None = None) -> NkiTensor:
        """``a <op> b`` with broadcasts; 32-bit integers exactly, on GpSimd."""
        if not in_sbuf(a) and not in_sbuf(b):
            b = self.here(b)
        shape = self.common(a, b)
        result = self.new(shape, a.dtype if dtype is None else dtype)
        a, b = self.fit(a, shape), self.fit(b, shape)
        words = all(is_word(tile.dtype) for tile in (result, a, b))
        engine = nisa.engine.unknown
        if not op.is_bitvec and not words and op != alu.POWER:
            quick = in_sbuf(a, b) and self._quicker(nisa.engine.gpsimd, result)
            engine = nisa.engine.gpsimd if quick else nisa.engine.vector
            if not quick:
                self._spend(nisa.engine.vector, result, 2.0 if in_sbuf(a, b) else 1.0)
        nisa.tensor_tensor(dst=result, data1=a, data2=b, op=op, engine=engine)
        return result

    def fused(
        self,
        x: NkiTensor,
        op0: Any,
        operand0: Number | NkiTensor,
        op1: Any,
        other: NkiTensor,
        *,
        reverse0: bool = False,
        reverse1: bool = False,
        dtype: DType = float32,
    ) -> NkiTensor:
        """``(x <op0> operand0) <op1> other`` in one pass of Vector."""
        if not in_sbuf(x) and not in_sbuf(other):
            other = self.here(other)
        shape = self.common(x, other)
        result = self.new(shape, dtype)
        self._spend(nisa.engine.vector, result, 2.0)
        nisa.scalar_tensor_tensor(
            dst=result,
            data=self.fit(x, shape),
            op0=op0,
            operand0=self._flat(operand0),
            op1=op1,
            operand1=self.fit(other, shape),
            reverse0=reverse0,
            reverse1=reverse1,
        )
        return result

    def activate(
        self,
        x: NkiTensor,
        op: Any,
        dtype: DType,
        scale: Number | NkiTensor = 1.0,
        bias: Number | NkiTensor | None = None,
    ) -> NkiTensor:
        """``op(x * scale + bias)`` on Scalar."""
        result = self.new(x.shape, dtype)
        self._load[nisa.engine.scalar] += _SCALAR_RATE * prod(x.shape[1:])
        added = None if bias is None else self._bias(bias, x.shape[0])
        nisa.activation(dst=result, op=op, data=x, scale=self._flat(scale), bias=added)
        return result

    def activate_and_sum(
        self,
        x: NkiTensor,
        op: Any,
        dtype: DType,
        scale: Number | NkiTensor = 1.0,
        bias: Number | NkiTensor | None = None,
    ) -> tuple[NkiTensor, NkiTensor]:
        """`activate`, and the float32 sum over all free elements as a column of the same rank."""
        result = self.new(x.shape, dtype)
        sums = self.new((x.shape[0], 1), float32)
        self._load[nisa.engine.scalar] += _SCALAR_RATE * prod(x.shape[1:])
        added = None if bias is None else self._bias(bias, x.shape[0])
        nisa.activation_reduce(
            dst=result,
            op=op,
            data=x,
            reduce_op=alu.ADD,
            reduce_res=sums,
            bias=added,
            scale=self._flat(scale),
        )
        return result, sums.reshape((x.shape[0],) + (1,) * (len(x.shape) - 1))

    def inverse(self, x: NkiTensor) -> NkiTensor:
        """``1 / x`` in float32."""
        result = self.new(x.shape, float32)
        self._spend(nisa.engine.vector, result)
        nisa.reciprocal(dst=result, data=x)
        return result

    def squared(self, x: NkiTensor, dtype: DType) -> NkiTensor:
        """``x * x`` on Scalar or Vector, whichever has time."""
        result = self.new(x.shape, dtype)
        if self._quicker(nisa.engine.scalar, result):
            nisa.activation(dst=result, op=alu.SQUARE, data=x)
            return result
        self._spend(nisa.engine.vector, result, 2.0)
        nisa.tensor_tensor(dst=result, data1=self.here(x), data2=self.here(x), op=alu.MULTIPLY)
        return result

    def here(self, x: NkiTensor) -> NkiTensor:
        """The tile in SBUF."""
        return x if in_sbuf(x) else self.copy(x, x.dtype)

    def where(
        self, predicate: NkiTensor, on_true: Form, on_false: Form, dtype: DType, into: NkiTensor | None = None
    ) -> NkiTensor:
        """Bits of one or the other; `into` is a tile that holds `on_false` and may be overwritten."""
        shape = self.common(predicate, on_true, on_false)
        if into is None or into.shape != shape:
            into = self.new(shape, dtype)
            if isinstance(on_false, Splat):
                nisa.memset(dst=into, value=on_false.value)
            else:
                self.copy(on_false, dtype, into)
        self.replace(into, predicate, on_true)
        return into

    def replace(self, tile: NkiTensor, predicate: NkiTensor, value: Form) -> None:
        """Overwrite the elements of a tile where the predicate holds."""
        source: Number | NkiTensor
        if isinstance(value, NkiTensor):
            source = self.fit(value, tile.shape)
        elif tile.dtype.is_float or abs(value.value) < _LARGEST:
            source = value.value
        else:
            source = self.fit(self.column(value.value, tile.dtype, tile.shape[0], len(tile.shape)), tile.shape)
        self._spend(nisa.engine.vector, tile, 2.0)
        nisa.tensor_copy_predicated(dst=tile, src=source, predicate=self.fit(predicate, tile.shape))

    # --- choices

    def _flat(self, operand: Number | NkiTensor) -> Number | NkiTensor:
        if not isinstance(operand, NkiTensor) or len(operand.shape) == 2:
            return operand
        return operand.reshape((operand.shape[0], 1))

    def _bias(self, bias: Number | NkiTensor, partitions: int) -> Number | NkiTensor:
        if isinstance(bias, NkiTensor) or bias == 0 or self.target.has("scalar_bias_immediate"):
            return self._flat(bias)
        return self.column(bias, float32, partitions)

    def _affine(self, result: NkiTensor, *operands: Number | NkiTensor | None) -> bool:
        """Whether a multiplication and an addition are quicker on Scalar, which they then are given to.

        Some targets are reported to leave the addition out there (the rule activation.copy-bias).
        """
        if operands[-1] is not None and not self.target.has("scalar_copy_bias"):
            return False
        return result.dtype.is_float and self._quicker(nisa.engine.scalar, result)

    def _spend(self, engine: Any, result: NkiTensor, rate: float = 1.0) -> Any:
        self._load[engine] += rate * prod(result.shape[1:])
        return engine

    def _quicker(self, engine: Any, result: NkiTensor) -> bool:
        """Whether this engine would be done before Vector; then it is given the instruction."""
        size = prod(result.shape[1:])
        cost = size * (_SCALAR_RATE if engine is nisa.engine.scalar else _GPSIMD_RATE)
        if size < _WORTHWHILE or self._load[engine] + cost > self._load[nisa.engine.vector] + size:
            return False
        self._load[engine] += cost
        return True
