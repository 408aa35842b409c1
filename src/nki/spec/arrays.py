"""The array namespace in which bodies are written: NumPy values here, MLIR values in the native executor.

All values are float32 arrays ``(partitions, elements per partition)`` unless a method says otherwise; free dimensions
are flattened in row-major order, which is how the engines stream them. Every reduction has a fixed order. In `reduce`
element ``i`` goes to lane ``i % 16``, each lane adds in ascending ``i``, and the lanes meet in a tree (8, 4, 2, 1): no
order of hardware, but one that is fast and exact. In `sum_in_order` there is one sum, as published results of a device
have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from nki.core.dtypes import DType
from nki.core.register import VirtualRegister
from nki.core.tensor import View
from nki.spec.engine import engine as Engine
from nki.spec.operator import Operator
from nki.target.model import Target

LANES = 16


class Arrays(Protocol):
    """What a body may do. Documented by what it means, implemented by each executor."""

    target: Target
    engine: Engine
    core: int

    # --- memory

    def load(self, view: View) -> Any:
        """float32 ``(P, F)`` of the view's values, widened exactly (int32 rounds to nearest even).

        The result may be the memory itself: a body computes everything before its first store.
        """

    def load_raw(self, view: View) -> Any:
        """Storage values ``(P, F)`` without conversion."""

    def column(self, value: View | float | int) -> Any:
        """A number as a float32 scalar; a one-per-partition tensor as float32 ``(P, 1)``."""

    def rounded(self, value: float, dtype: DType) -> Any:
        """A number as a storage scalar of `dtype`."""

    def store(self, view: View, values: Any) -> None:
        """Round float32 ``(P, F)`` (or what broadcasts to it) to the view's dtype and write it."""

    def store_raw(self, view: View, values: Any) -> None:
        """Write storage values ``(P, F)`` without conversion."""

    def copy(self, dst: View, src: View) -> None:
        """Copy in element order: the bits if the dtypes are equal, else through float32."""

    def dma(self, dst: View, src: View, skip: bool, axes: Sequence[int] | None = None, add: View | None = None) -> None:
        """`copy` by DMA; with `skip`, rows whose dynamic address is out of bounds leave the destination untouched.

        With `axes`, dimension i of `dst` is dimension ``axes[i]`` of `src`. With `add`, a view of the shape
        of `dst`, its float32 sum with `src` is rounded into `dst`.
        """

    def gather(self, dst: View, src: View, positions: Any) -> None:
        """Move bits: element (p, i) of `dst` takes element ``positions[p, i]`` of `src`; negative ones leave it.

        `positions` is an integer array that broadcasts to ``(P, F)`` of `dst`; the elements of `src` count row by row.
        """

    def accumulate(self, dst: View, product: Any, mode: bool | None) -> None:
        """Write a matmul result to PSUM: True adds, False overwrites, None overwrites each location the first time."""

    # --- state of the engines

    def read_accumulator(self, partitions: int) -> Any:
        """float32 ``(partitions, 1)`` of the accumulator registers of the running engine."""

    def write_accumulator(self, values: Any) -> None:
        """Set the accumulator registers of the first partitions from ``(P, 1)``."""

    def clobber_accumulator(self) -> None:
        """What the accumulator registers of the running engine hold is undefined from here on."""

    def accumulator_defined(self, partitions: int) -> Any:
        """``(partitions, 1)``: 1.0 where an accumulator register was written, and not clobbered since."""

    def read_register(self, register: VirtualRegister | int) -> int:
        """Value of a register, or the number itself."""

    def write_register(self, register: VirtualRegister, value: int) -> None:
        """Set a register."""

    def random_bits(self, partitions: int, count: int) -> Any:
        """uint32 ``(partitions, count)`` from the generator of the running engine."""

    def seed_random(self, state: Any) -> None:
        """Set the generator of the running engine from uint32 ``(P, words)``, for programs that follow too.

        A single word seeds all lanes, for this program.
        """

    def random_state(self, partitions: int, words: int) -> Any:
        """uint32 ``(partitions, words)`` that `seed_random` takes back."""

    def barrier(self) -> None:
        """Wait until the other core arrives."""

    def exchange(self, key: int, dst: View, src: View, to: int, source: int) -> None:
        """Send the bits of `src` to core `to`, and put what core `source` sends under the same key into `dst`."""

    def ranks(self) -> tuple[int, int]:
        """The number of this rank, and how many ranks the launch has."""

    def together(self, members: Sequence[int], what: tuple[Any, ...], value: Any) -> list[Any]:
        """Wait until all `members`, this rank among them, make the same call; returns their values in that order.

        A value is not changed any more after it was given away.
        """

    def say(self, prefix: str, view: View) -> None:
        """Print a tensor."""

    def warn(self, code: str, message: str, fix: str) -> None:
        """Report something that is only seen while running."""

    def warn_outside(self, values: Any, low: float, high: float, code: str, message: str, fix: str) -> None:
        """`warn` if a value but 0 and NaN lies outside ``low..high``; ``{value}`` in the message is that value."""

    def check(self, condition: Any, code: str, message: str, fix: str) -> None:
        """`warn` unless every value of `condition` is not zero."""

    # --- arithmetic on float32

    def elementwise(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """``function(self, *arguments)``: float32 of which each element depends on the same element of the arguments.

        The executor may evaluate it piece by piece.
        """

    def constant(self, value: float) -> Any:
        """float32 scalar."""

    def add(self, a: Any, b: Any) -> Any: ...
    def subtract(self, a: Any, b: Any) -> Any: ...
    def multiply(self, a: Any, b: Any) -> Any: ...
    def divide(self, a: Any, b: Any) -> Any: ...
    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """``a * b + c`` with one rounding: fusedMultiplyAdd of IEEE 754."""

    def scaled(self, a: Any, n: Any) -> Any:
        """``a * 2**n`` with one rounding; `n` holds finite whole numbers, and may be NaN where `a` is."""

    def maximum(self, a: Any, b: Any) -> Any:
        """NaN if either is NaN."""

    def minimum(self, a: Any, b: Any) -> Any:
        """NaN if either is NaN."""

    def at_most(self, a: Any, bound: float) -> Any:
        """`bound`, which is not 0, where a is greater, else a, also if that is NaN."""

    def at_least(self, a: Any, bound: float) -> Any:
        """`bound`, which is not 0, where a is less, else a, also if that is NaN."""

    def absolute(self, a: Any) -> Any:
        """The bits with the sign cleared."""

    def negative(self, a: Any) -> Any:
        """The bits with the sign flipped."""

    def sign(self, a: Any) -> Any: ...
    def sqrt(self, a: Any) -> Any: ...
    def floor(self, a: Any) -> Any: ...
    def round(self, a: Any, dtype: DType) -> Any:
        """The values that `dtype` would hold, as float32 again."""

    def compare(self, name: str, a: Any, b: Any) -> Any:
        """1.0 where equal, not_equal, greater, greater_equal, less or less_equal holds, else 0.0."""

    def truth(self, a: Any) -> Any:
        """1.0 where not zero."""

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """`a` where the condition is not zero."""

    def select(self, name: str, a: Any, b: Any, p: Any, q: Any) -> Any:
        """`p` where the comparison of that name holds between a and b, else `q`; both are float32."""

    # --- what is not an operation of IEEE 754: `nki.elementary.Functions` gives these to every executor

    def exp(self, a: Any) -> Any: ...
    def log(self, a: Any) -> Any: ...
    def log1p(self, a: Any) -> Any: ...
    def sin(self, a: Any) -> Any: ...
    def tanh(self, a: Any) -> Any: ...
    def arctan(self, a: Any) -> Any: ...
    def erf(self, a: Any) -> Any: ...
    def power(self, a: Any, b: Any) -> Any: ...
    def exponent(self, a: Any) -> Any:
        """Unbiased exponent field as float32: floor(log2|a|), but -127 below 2**-126 and 128 for infinity and NaN."""

    def ldexp(self, a: Any, n: Any) -> Any:
        """`scaled`, also for infinite `n`, which count as very large."""

    # --- int32 that wraps, and the bits of float32

    def float_bits(self, a: Any) -> Any:
        """The bits of float32 as int32."""

    def bits_float(self, i: Any) -> Any:
        """The float32 with these bits."""

    def int_constant(self, value: int) -> Any:
        """int32 scalar."""

    def int_subtract(self, i: Any, j: Any) -> Any: ...
    def int_and(self, i: Any, j: Any) -> Any: ...
    def int_xor(self, i: Any, j: Any) -> Any: ...
    def shift_left(self, i: Any, count: int) -> Any:
        """By 0 to 31 bits."""

    def shift_right(self, i: Any, count: int) -> Any:
        """By 0 to 31 bits, with copies of the sign bit."""

    def int_to_float(self, i: Any) -> Any:
        """float32 of int32, rounded to nearest even."""

    # --- float64, where float32 would need tricks

    def wide(self, a: Any) -> Any:
        """float64 of float32, exactly."""

    def narrow(self, w: Any) -> Any:
        """float32 of float64, rounded to nearest even, with subnormals and infinities."""

    def wide_constant(self, value: float) -> Any:
        """float64 scalar."""

    def wide_add(self, v: Any, w: Any) -> Any: ...
    def wide_subtract(self, v: Any, w: Any) -> Any: ...
    def wide_multiply(self, v: Any, w: Any) -> Any: ...
    def wide_divide(self, v: Any, w: Any) -> Any: ...

    # --- integers

    def bitwise(self, name: str, a: Any, b: Any) -> Any:
        """bitwise_and, bitwise_or, bitwise_xor, invert, left_shift, right_shift (logical) on storage integers."""

    def integer(self, name: str, a: Any, b: Any, dtype: DType) -> Any:
        """Exact 32-bit add, subtract, multiply, maximum, minimum and comparisons, wrapping as GpSimd does."""

    def affine(self, partitions: int, pattern: Sequence[tuple[int, int]], offset: int, multiplier: int) -> Any:
        """int32 ``(partitions, F)``: ``offset + p * multiplier + sum(step * index)`` over ``(step, count)`` pairs.

        The last pair runs fastest, F is the product of the counts, and the sum wraps.
        """

    def to_float(self, a: Any) -> Any:
        """Storage integers as float32, rounded to nearest even."""

    # --- shapes and reductions

    def reshape(self, a: Any, shape: Sequence[int]) -> Any: ...

    def transpose(self, a: Any) -> Any:
        """Swap both dimensions."""

    def every(self, a: Any, start: int, step: int) -> Any:
        """Every step-th element of the last dimension from `start`."""

    def concatenate(self, parts: Sequence[Any]) -> Any:
        """Side by side along the last dimension."""

    def broadcast(self, a: Any, partitions: int, count: int) -> Any:
        """Repeat values to ``(partitions, count)``."""

    def rows(self, a: Any, first: int, count: int) -> Any:
        """`count` rows from row `first`."""

    def identity(self, count: int) -> Any:
        """float32 ``(count, count)``: 1.0 on the diagonal, else 0.0."""

    def dequantize(self, packed: Any, dtype: DType, scales: Any) -> Any:
        """float32 ``(4P, F)``: all first values of packed elements ``(P, F)`` times their scales, all second ones, ...

        Each row of `scales`, float32 ``(G, F)``, is that of ``P / G`` rows.
        """

    def pack_x4(self, a: Any, dtype: DType) -> Any:
        """x4 storage values ``(P, F)`` from float32 ``(P, 4F)``, rounded to nearest and saturated."""

    def reduce(self, operator: Operator, a: Any) -> Any:
        """Reduce over the last dimension, which stays with size 1, in the fixed order."""

    def sum_in_order(self, a: Any) -> Any:
        """The sum over the last dimension, which stays with size 1: from 0.0 on, one element after the other."""

    def recurrence(self, step: Callable[..., Any], initial: Any, *sequences: Any) -> Any:
        """``(P, F)`` of the states ``s[i] = step(s[i - 1], *[q[:, i] for q in sequences])``, from ``s[-1] = initial``.

        `initial` and what `step` gets and returns is one value for each partition.
        """

    def reduce_bits(self, operator: Operator, a: Any) -> Any:
        """Reduce storage integers over the last dimension, which stays with size 1, with a bitvec operator."""

    def matmul(self, stationary: Any, moving: Any) -> Any:
        """``stationary.T @ moving`` for ``(K, M)`` and ``(K, N)`` with float32 accumulation over K."""
