"""Records, guarded operands and drawn layouts for the tests of the primitives."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from nki.native.call_context import SCRATCH_BYTES
from nki.native.objects import jit
from nki.native.primitives import module
from nki.native.primitives.abi import EXPONENTS

KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
ORDER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
ROW = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}
GUARD = 0xA5
_BEHIND = 1 << 12
F32 = np.float32
RESULTS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
"""Of a product, by name."""


@cache
def base() -> dict[str, int]:
    """The functions of the base module."""
    return jit.in_process(module.module_text())


@cache
def exponents() -> int:
    """From which sum of exponents on dot products are in the defined order here."""
    return ORDER(base()[module.ORDER])(1)


@cache
def compiled(make: Callable[..., str], *arguments: object) -> int:
    """The address of the function "tested" that a text function makes."""
    return jit.in_process(make("tested", *arguments))["tested"]


@dataclass
class Memory:
    """An operand in the middle of guard bytes; `view` is any strided array over `bytes`."""

    bytes: np.ndarray
    view: np.ndarray

    @property
    def address(self) -> int:
        return self.view.__array_interface__["data"][0]


def place(shape: Sequence[int], strides: Sequence[int], dtype: type, seed: int, random: bool = True) -> Memory:
    """Guarded memory for a view with these byte strides; random bytes in and around it, or guards."""
    size = np.dtype(dtype).itemsize
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, strides, strict=True)) + size
    margin = 96 + seed % 7 * (size if size > 1 else 1)
    if random:
        content = np.random.default_rng(seed).integers(0, 256, high - low + 2 * margin, np.uint8)
    else:
        content = np.full(high - low + 2 * margin, GUARD, np.uint8)
    view = np.ndarray(shape, dtype, content, margin - low, tuple(strides))
    return Memory(content, view)


def slot_words(memory: Memory, number: int) -> list[int]:
    """Base `number` is address 0, the offset the whole address; a slot holds the first dimension as partitions."""
    view = memory.view
    size = view.itemsize
    dims = list(zip(view.shape[1:], view.strides[1:], strict=True))
    expected = size
    unit = 1
    for count, stride in reversed(dims):
        unit &= int(count == 1 or stride == expected)
        expected *= count
    padded = [(1, 0)] * (5 - len(dims)) + dims
    return [number, memory.address, view.strides[0], unit, *[word for pair in padded for word in pair]]


def record(function: int, memories: Sequence[Memory], immediates: Sequence[int] = (), home: int = 0) -> list[int]:
    """A record whose partitions and elements are those of the first operand."""
    shape = memories[0].view.shape if memories else (128,)
    words = [function, 0, shape[0], int(np.prod(shape[1:]))]
    for memory in memories:
        words += slot_words(memory, 0)
    words += immediates
    words[1] = len(words) | home << 32
    return words


class Context:
    """A context with scratch memory and helpers; base 0 is address 0."""

    def __init__(self, thread: int = 0, threads: int = 0, shared: np.ndarray | None = None) -> None:
        self.scratch = np.full(SCRATCH_BYTES + 64 + _BEHIND, GUARD, np.uint8)
        self.words = np.zeros(17, np.int64)
        start = self.scratch.ctypes.data
        self.words[0] = start + -start % 64
        for word, name in module.HELPERS.items():
            self.words[word] = base()[name]
        self.words[EXPONENTS] = exponents()
        self.words[8], self.words[9] = thread, threads
        self.words[10] = 0 if shared is None else shared.ctypes.data
        self.words[11] = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0

    @property
    def address(self) -> int:
        return self.words.ctypes.data


def execute(words: Sequence[int], first: int, last: int) -> int:
    """Call the function of a record for some partitions; returns its status."""
    packed = np.array(words, np.int64)
    context = Context()
    status = KERNEL(words[0])(packed.ctypes.data, context.address, first, last)
    assert (context.scratch[-_BEHIND:] == GUARD).all(), "the scratch memory ends before"
    return status


@st.composite
def layouts(draw: st.DrawFn, shape: Sequence[int], size: int, reads: bool) -> tuple[int, ...]:
    """Byte strides, of any order of the axes, with gaps and signs; of a source also zero, or with shared items."""
    order = draw(st.permutations(range(len(shape))))
    strides = [0] * len(shape)
    step = size * draw(st.sampled_from([1, 1, 1, 2, 3]))
    for axis in order:
        strides[axis] = step * draw(st.sampled_from([1, 1, 1, -1]))
        step = step * max(shape[axis], 1) + size * draw(st.sampled_from([0, 0, 1, 5]))
    if reads:
        for axis in range(len(shape)):
            strides[axis] = draw(st.sampled_from([strides[axis]] * 6 + [0, size]))
    return tuple(strides)


@st.composite
def ranges(draw: st.DrawFn, count: int) -> tuple[int, int]:
    """A subrange of partitions, mostly all."""
    first = draw(st.sampled_from([0, 0, 0, count // 3, count]))
    return first, draw(st.integers(first, count)) if draw(st.booleans()) else count


def fused(total: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """total + left * right rounded once: the sum in float64 is rounded to odd, and then to float32."""
    product = left.astype(np.float64) * right.astype(np.float64)
    old = total.astype(np.float64)
    rounded = old + product
    back = rounded - old
    error = (old - (rounded - back)) + (product - back)
    bits = rounded.view(np.int64)
    inexact = np.isfinite(rounded) & (error != 0) & (bits & 1 == 0)
    away = np.where((error > 0) == (rounded > 0), 1, -1)
    return np.where(inexact, bits + away, bits).view(np.float64).astype(F32)


@np.errstate(all="ignore")
def product_of(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """left.T @ right, ascending k."""
    total = np.zeros((left.shape[1], right.shape[1]), F32)
    for a, b in zip(left, right, strict=True):
        total = fused(total, np.broadcast_to(a[:, None], total.shape), np.broadcast_to(b[None, :], total.shape))
    return total


def same(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits; all NaN are equal."""
    assert found.dtype == expected.dtype
    nan, bits = np.isnan(expected), BITS[expected.dtype.itemsize]
    np.testing.assert_array_equal(np.isnan(found), nan)
    found, expected = np.ascontiguousarray(found), np.ascontiguousarray(expected)
    np.testing.assert_array_equal(np.where(nan, 0, found.view(bits)), np.where(nan, 0, expected.view(bits)))
