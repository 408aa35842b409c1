"""How fast the native primitives are, against NumPy and against what this processor can do at most.

Prints CPU time of the calling thread in microseconds: the least, the median and the spread (the middle half of the
runs over the median), the rate, and the least time of NumPy for the same; for products also the rate of nothing but
multiply-adds in registers. The last table is the CPU time of compiling. Operands lie in one memory of 128 rows, as in
SBUF. Usage: ``python benchmarks/native_primitives.py [--runs N] [--only TEXT] [--json]``.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import ml_dtypes
import numpy as np

from nki.core.dtypes import DType, float4_e2m1fn_x4, float8_e4m3fn_x4, unpack_x4
from nki.native import cpu_features
from nki.native.call_context import CallContext
from nki.native.objects import jit
from nki.native.primitives import module
from nki.native.primitives.abi import EXPONENTS
from nki.native.primitives.copy import copy_text
from nki.native.primitives.dots import LEAST
from nki.native.primitives.matmul import ADD, FLOATS, PAIRS, matmul_text
from nki.native.primitives.matmul_mx import matmul_mx_text
from nki.native.primitives.transpose import transpose_text

KERNEL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
PLAIN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}
BF16 = ml_dtypes.bfloat16
PITCH = 192 * 1024 + 64
CALL_MICROSECONDS = 40.0


@dataclass(frozen=True)
class Row:
    """One measurement; times in microseconds, rates in 10**9 per second."""

    name: str
    least: float
    median: float
    spread: float
    rate: float
    unit: str
    numpy: float | None


def times(call: Callable[[], object], runs: int) -> list[float]:
    """Microseconds of each of `runs` measurements."""
    call()
    started = time.thread_time()
    call()
    count = max(1, int(CALL_MICROSECONDS * 1e-6 / max(time.thread_time() - started, 1e-7)))
    found = []
    for _ in range(runs):
        started = time.thread_time()
        for _ in range(count):
            call()
        found.append((time.thread_time() - started) / count * 1e6)
    return sorted(found)


def measure(
    name: str, call: Callable[[], object], other: Callable[[], object] | None, work: float, unit: str, runs: int
) -> Row:
    """Both sides one after the other, `work` being operations or bytes of a call."""
    found = times(call, runs)
    numpy = times(other, max(3, runs // 3))[0] if other else None
    median = statistics.median(found)
    spread = (found[len(found) * 3 // 4] - found[len(found) // 4]) / median
    return Row(name, found[0], median, spread, work / found[0] / 1e3, unit, numpy)


Case = tuple[str, Callable[[], Row]]
"""A name, and what measures it before the next case is asked for."""


def case(
    name: str, call: Callable[[], object], other: Callable[[], object] | None, work: float, unit: str, runs: int
) -> Case:
    """`measure`, but later."""
    return name, partial(measure, name, call, other, work, unit, runs)


class Bench:
    """Operands, and calls of record functions."""

    def __init__(self) -> None:
        base = jit.in_process(module.module_text())
        helpers = {word: base[name] for word, name in module.HELPERS.items()}
        self.context = CallContext(helpers | {EXPONENTS: LEAST})
        self.memory = np.zeros(128 * PITCH, np.uint8)
        self.used = 0
        self.random = np.random.default_rng(0)
        self.compiling: dict[str, float] = {}

    def tile(self, shape: Sequence[int], dtype: type) -> np.ndarray:
        """(partitions, ...) in the memory, with random values."""
        size = np.dtype(dtype).itemsize
        row = int(np.prod(shape[1:])) * size
        start = self.used
        self.used = (self.used + row + 63) // 64 * 64
        assert self.used <= PITCH, "the operands of one measurement fit"
        strides = [PITCH]
        for axis in range(1, len(shape)):
            strides.append(int(np.prod(shape[axis + 1 :])) * size)
        view = np.ndarray(tuple(shape), dtype, self.memory, start, tuple(strides))
        if np.dtype(dtype).kind in "ui":
            view[...] = self.random.integers(0, 200, tuple(shape))
        else:
            view[...] = self.random.standard_normal(tuple(shape)).astype(dtype)
        return view

    def compiled(self, text: Callable[..., str], *arguments: object) -> int:
        """The address of a function; what it took is remembered."""
        started = time.thread_time()
        address = jit.in_process(text("function", *arguments))["function"]
        named = ["pairs" if each is PAIRS else "floats" if each is FLOATS else str(each) for each in arguments]
        self.compiling[" ".join([text.__name__.removesuffix("_text"), *named])] = (time.thread_time() - started) * 1e3
        return address

    def call(self, function: int, views: Sequence[np.ndarray], immediates: Sequence[int] = ()) -> Callable[[], object]:
        """A call of a record function for all partitions."""
        shape = views[0].shape
        words = [function, 0, shape[0], int(np.prod(shape[1:]))]
        units = [contiguous(view) for view in views]
        for view, unit in zip(views, units, strict=True):
            dims = list(zip(view.shape[1:], view.strides[1:], strict=True))
            merged = [(int(np.prod(view.shape[1:])), view.itemsize)] if all(units) else dims
            padded = [(1, 0)] * (5 - len(merged)) + merged
            words += [
                0,
                view.__array_interface__["data"][0],
                view.strides[0],
                int(unit),
                *[w for d in padded for w in d],
            ]
        words += immediates
        words[1] = len(words)
        packed = np.array(words, np.int64)
        kernel, address = KERNEL(function), self.context.address
        assert kernel(packed.ctypes.data, address, 0, shape[0]) == 0
        return lambda: kernel(packed.ctypes.data, address, 0, shape[0])


def contiguous(view: np.ndarray) -> bool:
    """Whether the items of a partition lie one after the other."""
    return all(s == int(np.prod(view.shape[i + 2 :])) * view.itemsize for i, s in enumerate(view.strides[1:]))


def products(bench: Bench, runs: int) -> Iterator[Case]:
    """Products of one tile, accumulating."""
    cases = [("floats", "float32", FLOATS), ("floats", "bfloat16", FLOATS), ("floats", "float8_e4m3", FLOATS)]
    if cpu_features.has("avx512_bf16"):
        cases += [("pairs", "bfloat16", PAIRS), ("pairs", "float8_e4m3", PAIRS), ("small pairs", "bfloat16", PAIRS)]
    for mode, dtype, shape in cases:
        function = bench.compiled(matmul_text, dtype, dtype, shape)
        storage = {"float32": np.float32, "bfloat16": BF16, "float8_e4m3": ml_dtypes.float8_e4m3}[dtype]
        for m, k, n in ((128, 128, 512), (128, 128, 128), (128, 64, 512), (1, 128, 512), (128, 128, 1)):
            bench.used = 0
            dst, left, right = (
                bench.tile(s, d) for s, d in (((m, n), np.float32), ((k, m), storage), ((k, n), storage))
            )
            if mode == "small pairs":  # so that dot products would lose some
                left[...] = 2.0**-100
            call = bench.call(function, [dst, left, right], [ADD, k])
            yield case(
                f"matmul {mode} {dtype} {m}x{k}x{n}",
                call,
                partial(blas, dst, left, right),
                2 * m * k * n,
                "GFLOP/s",
                runs,
            )
            dst[...] = 0


def blas(dst: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """The same with NumPy's BLAS."""
    np.add(dst, left.astype(np.float32).T @ right.astype(np.float32), out=dst)


def microscaled(bench: Bench, runs: int) -> Iterator[Case]:
    """Products of one tile of packed elements with scales; 128 partitions hold 512 rows of either operand."""
    for dtype, stored in ((float8_e4m3fn_x4, np.uint32), (float4_e2m1fn_x4, np.uint16)):
        function = bench.compiled(matmul_mx_text, dtype.name, dtype.name)
        for m, n in ((128, 512), (128, 64), (4, 512)):
            bench.used = 0
            dst, *factors = (bench.tile((128, c), k) for c, k in ((n, np.float32), (m, stored), (n, stored)))
            scales = [bench.tile((16, columns), np.uint8) for columns in (m, n)]
            for scale, factor in zip(scales, factors, strict=True):  # magnitudes with which nothing over- or underflows
                scale[...] = bench.random.integers(120, 130, scale.shape)
                factor[...] = bench.random.integers(0, 1 << 32, factor.shape) & 0x77777777
            operands = [
                rows
                for q in range(4)
                for factor, scale in zip(factors, scales, strict=True)
                for rows in (factor[32 * q : 32 * q + 32], scale[4 * q : 4 * q + 4])
            ]
            call = bench.call(function, [dst[:m], *operands], [0, 4])
            other = partial(dequantized_blas, dst[:m], factors, scales, dtype)
            yield case(f"matmul mx {dtype.name} {m}x512x{n}", call, other, 2 * m * 512 * n, "GFLOP/s", runs)


def dequantized_blas(dst: np.ndarray, factors: list[np.ndarray], scales: list[np.ndarray], dtype: DType) -> None:
    """The same with NumPy, which multiplies the values by their scales first."""
    left, right = (
        unpack_x4(np.ascontiguousarray(factor), dtype).reshape(*factor.shape, 4)
        * np.repeat(np.ldexp(np.float32(1), scale.astype(np.int32) - 127), 8, axis=0)[..., None]
        for factor, scale in zip(factors, scales, strict=True)
    )
    dst[...] = np.tensordot(left, right, ((0, 2), (0, 2)))


def moves(bench: Bench, runs: int) -> Iterator[Case]:
    """Copies and transposes."""
    for size, dtype in BITS.items():
        copy = bench.compiled(copy_text, size)
        for name, view in patterns():
            bench.used = 0
            dst, src = bench.tile((128, 512), dtype), view(bench, dtype)
            other = partial(np.copyto, dst.reshape(src.shape) if src.ndim > 2 else dst, src)
            call = bench.call(copy, [np.ndarray(src.shape, dtype, dst.base, *_at(dst, src.shape)), src])
            yield case(f"copy {size} B {name}", call, other, 2 * dst.nbytes, "GB/s", runs)
        bench.used = 0
        square, src = bench.tile((128, 128), dtype), bench.tile((128, 128), dtype)
        call = bench.call(bench.compiled(transpose_text, size), [square, src])
        yield case(
            f"transpose {size} B 128x128", call, partial(np.copyto, square, src.T), 2 * square.nbytes, "GB/s", runs
        )
    yield from large(bench, runs)


def _at(dst: np.ndarray, shape: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Offset in the memory and strides of a contiguous tile in another shape."""
    start = dst.__array_interface__["data"][0] - dst.base.__array_interface__["data"][0]
    inner = [int(np.prod(shape[axis + 1 :])) * dst.itemsize for axis in range(1, len(shape))]
    return start, (dst.strides[0], *inner)


def patterns() -> Iterator[tuple[str, Callable[[Bench, type], np.ndarray]]]:
    """Sources of 128 x 512 items."""
    yield "rows", lambda bench, dtype: bench.tile((128, 512), dtype)
    yield "every second item", lambda bench, dtype: bench.tile((128, 1024), dtype)[:, ::2]
    yield "one item", lambda bench, dtype: np.broadcast_to(bench.tile((128, 1), dtype), (128, 512))
    yield "16 x 32 swapped", lambda bench, dtype: bench.tile((128, 16, 32), dtype).swapaxes(1, 2)
    yield "8 heads of 64", lambda bench, dtype: bench.tile((128, 16, 64), dtype)[:, ::2]
    yield "partitions swapped", lambda bench, dtype: np.zeros((512, 128), dtype).T


def large(bench: Bench, runs: int) -> Iterator[Case]:
    """A copy that no cache holds."""
    dst, src = np.zeros((128, 1 << 18), np.uint8), np.ones((128, 1 << 18), np.uint8)
    call = bench.call(bench.compiled(copy_text, 1), [dst, src])
    yield case("copy 32 MiB", call, partial(np.copyto, dst, src), 2 * dst.nbytes, "GB/s", max(5, runs // 4))


def peaks(runs: int) -> Iterator[Case]:
    """Nothing but independent multiply-adds in registers."""
    steps, sums = 4096, 24
    memory = np.zeros(64 * sums, np.uint8)
    kinds = [("peak float32", 32, False)]
    if cpu_features.has("avx512_bf16"):
        kinds.append(("peak bfloat16 dot", 64, True))
    for name, operations, dot in kinds:
        function = PLAIN(jit.in_process(_peak_text(sums, dot))["peak"])
        yield case(name, partial(function, memory.ctypes.data, steps), None, operations * sums * steps, "GFLOP/s", runs)


def _peak_text(sums: int, dot: bool) -> str:
    floats = "vector<16xf32>"
    names = [f"%s{i}" for i in range(sums)]
    kinds = ", ".join([floats] * sums)
    lines = [
        "func.func @peak(%memory: !llvm.ptr, %steps: i64) {",
        "  %zero = arith.constant 0 : i64",
        "  %one = arith.constant 1 : i64",
        f"  %x = llvm.load %memory {{alignment = 4 : i64}} : !llvm.ptr -> {floats}",
        f"  %pairs = vector.bitcast %x : {floats} to vector<32xbf16>",
        f"  %all:{sums} = scf.for %i = %zero to %steps step %one iter_args({', '.join(f'{s} = %x' for s in names)})"
        f" -> ({kinds}) : i64 {{",
    ]
    for i, name in enumerate(names):
        call = f'llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"({name}, %pairs, %pairs)'
        if dot:
            lines.append(f"    %n{i} = {call} : ({floats}, vector<32xbf16>, vector<32xbf16>) -> {floats}")
        else:
            lines.append(f"    %n{i} = math.fma %x, %x, {name} : {floats}")
    lines += [f"    scf.yield {', '.join(f'%n{i}' for i in range(sums))} : {kinds}", "  }"]
    for i in range(sums):
        lines += [
            f"  %p{i} = llvm.getelementptr %memory[{64 * i}] : (!llvm.ptr) -> !llvm.ptr, i8",
            f"  llvm.store %all#{i}, %p{i} {{alignment = 4 : i64}} : {floats}, !llvm.ptr",
        ]
    return "\n".join([*lines, "  return", "}"])


def compile_base() -> float:
    """Milliseconds for the base module."""
    started = time.thread_time()
    jit.compile_object(module.module_text())
    return (time.thread_time() - started) * 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--only", default="", help="part of a name")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bench = Bench()
    rows: list[Row] = []
    for measured in (peaks, partial(products, bench), partial(microscaled, bench), partial(moves, bench)):
        group = measured(options.runs)
        rows += [row() for name, row in group if options.only in name]
    compiling = {**bench.compiling, "base module": compile_base()}
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "compile_milliseconds": compiling}, indent=1))
        return
    print(f"{'':<36}{'least us':>10}{'median':>10}{'spread':>8}{'rate':>9}{'':<9}{'NumPy us':>10}{'times':>7}")
    for row in rows:
        against = f"{row.numpy:10.1f}{row.numpy / row.least:7.1f}" if row.numpy else ""
        rate = f"{row.rate:9.1f} {row.unit:<8}"
        print(f"{row.name:<36}{row.least:10.1f}{row.median:10.1f}{row.spread:8.0%}{rate}{against}")
    print()
    for name, milliseconds in compiling.items():
        print(f"compile {name:<40}{milliseconds:8.0f} ms")


if __name__ == "__main__":
    main()
