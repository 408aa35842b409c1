"""Products have the bits of exact fused multiply-adds in ascending k, by floats and by pairs; loose ones are near."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki.core import dtypes
from nki.core.numerics import to_f32
from nki.native import cpu_features
from nki.native.primitives.dots import LEAST, NEVER
from nki.native.primitives.matmul import FLOATS, LOOSE, PAIRED, PAIRS, matmul_text
from nki.native.primitives.tile import Shape
from nki.native.primitives.widen import STORED
from nki.sim.products import matmul_ordered
from tests.native.primitives import support
from tests.native.primitives.support import (
    ORDER,
    RESULTS,
    Memory,
    base,
    compiled,
    execute,
    fused,
    layouts,
    place,
    product_of,
    ranges,
    record,
    same,
    slot_words,
)

F32 = np.float32
STORAGE = {
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
DTYPES = [
    ("float32", "float32"),
    ("bfloat16", "bfloat16"),
    ("float16", "bfloat16"),
    ("float8_e4m3", "float8_e5m2"),
    ("float8_e5m2", "float8_e4m3"),
    ("float8_e4m3fn", "float16"),
]
"""Every dtype on both sides, but for float8_e4m3fn as moving operand, which has a test of its own below."""

needs_dot = pytest.mark.skipif(not cpu_features.has("avx512_bf16"), reason="no bfloat16 dot products here")


def wide(memory: Memory, name: str) -> np.ndarray:
    """The operand's values."""
    return np.asarray(to_f32(np.ascontiguousarray(memory.view), getattr(dtypes, name)), F32)


def job(dst: Memory, pairs: list[tuple[Memory, Memory]], function: int, add: bool, rows: int = 0) -> list[int]:
    """The record of a chain."""
    depths = [left.view.shape[0] * max(rows, 1) for left, _ in pairs]
    memories = [memory for pair in pairs for memory in pair]
    return record(function, [dst, *memories], [int(add) | rows << 8, *depths])


def shapes(*names: str) -> list[Shape]:
    """The ways to multiply operands of these dtypes on this processor."""
    return [FLOATS, PAIRS] if cpu_features.has("avx512_bf16") and all(name in PAIRED for name in names) else [FLOATS]


def usual(memory: Memory, seed: int) -> Memory:
    """Moderate random values in place of random bits."""
    values = np.random.default_rng(seed).standard_normal(memory.view.shape)
    memory.view[...] = values.astype(memory.view.dtype)
    return memory


def test_the_reference_rounds_once() -> None:
    rng = np.random.default_rng(5)
    total, left, right = (
        rng.standard_normal(300).astype(F32) * F32(2.0) ** rng.integers(-30, 30, 300) for _ in range(3)
    )
    tie = F32(1 + 2.0**-23), F32(2.0**-24 * (1 + 2.0**-20)), F32(1 - 2.0**-20)
    total, left, right = (np.append(each, F32(last)) for each, last in zip((total, left, right), tie, strict=True))
    for t, a, b, found in zip(total, left, right, fused(total, left, right), strict=True):
        exact = Fraction(float(t)) + Fraction(float(a)) * Fraction(float(b))
        near = F32(float(exact))
        candidates = [np.nextafter(near, F32(-np.inf)), near, np.nextafter(near, F32(np.inf))]
        best = min(candidates, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.uint32)) & 1))
        assert found == best


@given(st.data(), st.integers(1, 40), st.integers(1, 20), st.integers(1, 70), st.booleans(), st.integers(0, 999))
def test_ordered_in_any_layout(data: st.DataObject, m: int, k: int, n: int, add: bool, seed: int) -> None:
    """Random bits: NaN, infinities and subnormals are among them."""
    names, result = data.draw(st.sampled_from(DTYPES)), data.draw(st.sampled_from(list(RESULTS)))
    kind = RESULTS[result]
    dst = place((m, n), data.draw(layouts((m, n), np.dtype(kind).itemsize, False)), kind, seed)
    operands = []
    for shape, name in (((k, m), names[0]), ((k, n), names[1])):
        size = STORED[name].size
        dense = data.draw(st.booleans())
        strides = (shape[1] * size, size) if dense else data.draw(layouts(shape, size, True))
        operands.append(place(shape, strides, STORAGE[name], seed + len(operands)))
        if data.draw(st.booleans()) and not (0 in strides or len(set(map(abs, strides))) < 2):
            usual(operands[-1], seed)
    left, right = operands
    first, last = data.draw(ranges(m))
    before = dst.bytes.copy()
    old = dst.view.copy()
    with np.errstate(all="ignore"):
        expected = product_of(wide(left, names[0]), wide(right, names[1]))
        expected = (old.astype(F32) + expected if add else expected).astype(kind)
    shape = data.draw(st.sampled_from(shapes(*names)))
    words = job(dst, [(left, right)], compiled(matmul_text, *names, shape, result), add)
    assert execute(words, first, last) == 0
    same(dst.view[first:last], expected[first:last])
    dst.view[first:last] = old[first:last]
    np.testing.assert_array_equal(dst.bytes, before)


@pytest.mark.parametrize("dtype, shape", [("float32", FLOATS), *[("bfloat16", each) for each in shapes("bfloat16")]])
def test_every_edge(dtype: str, shape: Shape) -> None:
    """All remainders of rows and of columns, and large sizes."""
    size = STORED[dtype].size
    edges = [(m, 3, n) for m in range(1, 18) for n in (1, 15, 16, 17, 31, 32, 33, 47, 64)]
    for m, k, n in [*edges, (128, 128, 512), (128, 1, 512), (1, 128, 512), (128, 128, 1), (5, 512, 7), (128, 100, 300)]:
        left = usual(place((k, m), (m * size, size), STORAGE[dtype], m), m)
        right = usual(place((k, n), (n * size + 64, size), STORAGE[dtype], n), n)
        dst = usual(place((m, n), (n * 4 + 4, 4), F32, k), k)
        before, old = dst.bytes.copy(), dst.view.copy()
        assert execute(job(dst, [(left, right)], compiled(matmul_text, dtype, dtype, shape), True), 0, m) == 0
        same(dst.view, old + matmul_ordered(wide(left, dtype), wide(right, dtype)))
        dst.view[...] = old
        np.testing.assert_array_equal(dst.bytes, before)


def test_steps_round_once() -> None:
    """A sum that float64 would round to the middle between two float32 values, and one among subnormals."""
    left = place((2, 2), (8, 4), F32, 1)
    right = place((2, 1), (4, 4), F32, 2)
    dst = place((2, 1), (4, 4), F32, 3)
    left.view[...] = [[1 + 2.0**-23, 3 * 2.0**-149], [2.0**-24 * (1 + 2.0**-20), 2.0**-130 * (1 + 2.0**-20)]]
    right.view[...] = [[1], [1 - 2.0**-20]]
    assert execute(job(dst, [(left, right)], compiled(matmul_text, "float32", "float32", FLOATS), False), 0, 2) == 0
    assert dst.view[0, 0] == F32(1 + 2.0**-23)
    same(dst.view, product_of(left.view, right.view))


@pytest.mark.parametrize("name", list(STORED))
@np.errstate(invalid="ignore")
def test_every_8_and_16_bit_value_is_widened_exactly(name: str) -> None:
    count = 2 ** (8 * min(STORED[name].size, 2))
    values = np.arange(count, dtype=np.uint32).astype({1: np.uint8, 2: np.uint16, 4: np.uint32}[STORED[name].size])
    if name == "float32":
        values = values << 16
    one = place((1, 1), (4, 4), F32, 1)
    one.view[...] = 1
    function = compiled(matmul_text, "float32", name, FLOATS)
    for start in range(0, count, 512):
        right = place((1, min(512, count)), (512 * STORED[name].size, STORED[name].size), STORAGE[name], 2)
        right.view.view(values.dtype)[...] = values[start : start + 512]
        dst = place((1, right.view.shape[1]), (2048, 4), F32, 3)
        assert execute(job(dst, [(one, right)], function, False), 0, 1) == 0
        expected = wide(right, name) + F32(0)
        same(dst.view, expected)
        if STORED[name].size == 1:
            np.testing.assert_array_equal(dst.view.view(np.uint32), expected.view(np.uint32))


@given(st.integers(1, 4), st.booleans(), st.integers(1, 20), st.integers(1, 50), st.booleans(), st.integers(0, 99))
def test_a_chain_is_its_instructions(links: int, add: bool, m: int, n: int, strided: bool, seed: int) -> None:
    step = 8 if strided else 4
    dst = usual(place((m, n), (n * step, step), F32, seed), seed)
    pairs = []
    for i in range(links):
        k = 1 + (seed * 7 + i * 5) % 30
        pairs.append(tuple(usual(place((k, c), (c * step, step), F32, seed + i), seed + i) for c in (m, n)))
    expected = dst.view.copy()
    for i, (left, right) in enumerate(pairs):
        product = matmul_ordered(left.view, right.view)
        expected = expected + product if add or i else product
    assert execute(job(dst, pairs, compiled(matmul_text, "float32", "float32", FLOATS), add), 0, m) == 0
    same(dst.view, expected)


@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("m", [10, 45])
@pytest.mark.parametrize("rows, shape", [(2, FLOATS), (3, FLOATS), *[(2, each) for each in shapes("float8_e5m2")[1:]]])
def test_several_rows_in_a_partition(rows: int, shape: Shape, m: int, strided: bool) -> None:
    """Row k is row ``k % rows`` of partition ``k // rows``."""
    step = 2 if strided else 1
    left, right = (
        usual(place((9, rows, n), (rows * (2 * n + 5) + 9, 2 * n + 5, step), STORAGE["float8_e5m2"], n), n)
        for n in (m, 40)
    )
    dst = place((m, 40), (160, 4), F32, 3)
    function = compiled(matmul_text, "float8_e5m2", "float8_e5m2", shape)
    words = record(function, [dst], [])
    for memory in (left, right):
        slot = slot_words(memory, 0)
        row, column = (rows, memory.view.strides[1]), (memory.view.shape[2], step)
        words += [*slot[:3], int(not strided), *row, 1, 0, 1, 0, 1, 0, *column]
    words += [rows << 8, 9 * rows]
    words[1] = len(words)
    assert execute(words, 0, m) == 0
    lefts, rights = (wide(memory, "float8_e5m2").reshape(9 * rows, -1) for memory in (left, right))
    same(dst.view, matmul_ordered(lefts, rights))


def test_what_exceeds_the_scratch_memory_is_refused() -> None:
    left, right = place((2000, 128), (512, 4), F32, 1), place((2000, 4), (16, 4), F32, 2)
    dst = place((128, 4), (16, 4), F32, 3)
    before = dst.bytes.copy()
    assert execute(job(dst, [(left, right)], compiled(matmul_text, "float32", "float32", FLOATS), False), 0, 128) == 1
    np.testing.assert_array_equal(dst.bytes, before)


def test_a_chain_with_a_rounded_result_is_refused() -> None:
    pairs = [tuple(place((3, n), (n * 4, 4), F32, n) for n in (4, 5)) for _ in range(2)]
    dst = place((4, 5), (10, 2), RESULTS["bfloat16"], 3)
    function = compiled(matmul_text, "float32", "float32", FLOATS, "bfloat16")
    before = dst.bytes.copy()
    assert execute(job(dst, pairs, function, False), 0, 4) == 1
    np.testing.assert_array_equal(dst.bytes, before)
    assert execute(job(dst, pairs[:1], function, False), 0, 4) == 0


@needs_dot
@pytest.mark.parametrize(
    "names", [("bfloat16", "bfloat16"), ("float8_e5m2", "bfloat16"), ("bfloat16", "float8_e4m3fn")]
)
@pytest.mark.parametrize("exponents", [(-60, -60), (-126, 14), (-112, 0), (-56, -57), (-55, -56), (-126, -7), (0, 100)])
def test_small_sums_have_the_bits_of_multiply_adds(names: tuple[str, str], exponents: tuple[int, int]) -> None:
    """Magnitudes from 2**exponent on, few of them: many sums cancel, or are as small as they can be."""
    rng = np.random.default_rng(7)
    depth, m, n = 31, 24, 40
    operands = []
    for name, columns, exponent in zip(names, (m, n), exponents, strict=True):
        values = rng.integers(-3, 4, (depth, columns)) * 2.0 ** rng.choice([0, 0, 1, 5], (depth, columns))
        size = STORED[name].size
        memory = place((depth, columns), (columns * size, size), STORAGE[name], columns)
        memory.view[...] = (values * 2.0**exponent).astype(F32).astype(STORAGE[name])
        operands.append(memory)
    dst = place((m, n), (n * 4, 4), F32, 3)
    assert execute(job(dst, [tuple(operands)], compiled(matmul_text, *names, PAIRS), False), 0, m) == 0
    same(dst.view, product_of(*[wide(memory, name) for memory, name in zip(operands, names, strict=True)]))


@needs_dot
def test_a_sum_of_negative_zeros_stays_one() -> None:
    """Products that underflow leave -0, to which the missing row of an odd K must not add +0."""
    left, right = (place((1, n), (2 * n, 2), STORAGE["bfloat16"], n) for n in (3, 5))
    left.view[...], right.view[...] = -(2.0**-100), 2.0**-100
    dst = place((3, 5), (20, 4), F32, 3)
    assert execute(job(dst, [(left, right)], compiled(matmul_text, "bfloat16", "bfloat16", PAIRS), False), 0, 3) == 0
    assert (dst.view == 0).all() and np.signbit(dst.view).all()


@needs_dot
def test_multiply_adds_replace_dot_products_of_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both give these bits, whichever the context asks for."""
    left, right = (usual(place((37, n), (2 * n, 2), STORAGE["bfloat16"], n), n) for n in (30, 50))
    expected = product_of(wide(left, "bfloat16"), wide(right, "bfloat16"))
    for limit in (LEAST, NEVER):
        monkeypatch.setattr(support, "exponents", lambda limit=limit: limit)
        dst = place((30, 50), (200, 4), F32, 3)
        function = compiled(matmul_text, "bfloat16", "bfloat16", PAIRS)
        assert execute(job(dst, [(left, right)], function, False), 0, 30) == 0
        same(dst.view, expected)


@needs_dot
def test_the_order_of_dot_products_is_checked() -> None:
    """The verdict does not depend on the numbers that are drawn; on AMD's processors dot products are in order."""
    order = ORDER(base()["order"])
    verdicts = {order(seed) for seed in range(1, 99, 2)}
    assert verdicts <= {LEAST, NEVER} and len(verdicts) == 1
    if cpu_features.dots_pay():
        assert verdicts == {LEAST}


@needs_dot
@given(st.data(), st.integers(1, 40), st.integers(1, 20), st.integers(1, 70), st.booleans(), st.integers(0, 999))
def test_loose_dot_products(data: st.DataObject, m: int, k: int, n: int, add: bool, seed: int) -> None:
    """Each of k steps rounds a sum of at most the sum of magnitudes; products below the normal range may be lost."""
    bf16 = STORAGE["bfloat16"]
    dst = usual(place((m, n), data.draw(layouts((m, n), 4, False)), F32, seed), seed)
    operands = []
    for shape in ((k, m), (k, n)):
        strides = (shape[1] * 2, 2) if data.draw(st.booleans()) else data.draw(layouts(shape, 2, False))
        operands.append(usual(place(shape, strides, bf16, seed + len(operands)), seed + len(operands)))
    left, right = operands
    first, last = data.draw(ranges(m))
    before, old = dst.bytes.copy(), dst.view.copy()
    words = job(dst, [(left, right)], compiled(matmul_text, "bfloat16", "bfloat16", PAIRS), add | LOOSE)
    assert execute(words, first, last) == 0
    a, b = left.view.astype(np.float64), right.view.astype(np.float64)
    start = old.astype(np.float64) if add else np.zeros((m, n))
    error = np.abs(dst.view - (start + a.T @ b))[first:last]
    bound = (k + 2) * 2.0**-23 * (np.abs(start) + np.abs(a).T @ np.abs(b)) + 2.0**-120
    assert (error <= bound[first:last]).all()
    dst.view[first:last] = old[first:last]
    np.testing.assert_array_equal(dst.bytes, before)


@needs_dot
def test_loose_dot_products_keep_what_is_not_finite() -> None:
    """NaN and infinity stay in their rows and columns; a missing last row of an odd K counts as zeros."""
    left, right = (usual(place((3, 20), (40, 2), STORAGE["bfloat16"], i), i) for i in (1, 2))
    left.view[2, 3], right.view[2, 7], right.view[0, 9] = np.inf, np.nan, -np.inf
    dst = place((20, 20), (80, 4), F32, 3)
    assert execute(job(dst, [(left, right)], compiled(matmul_text, "bfloat16", "bfloat16", PAIRS), LOOSE), 0, 20) == 0
    expected = product_of(wide(left, "bfloat16"), wide(right, "bfloat16"))
    np.testing.assert_array_equal(np.isnan(dst.view), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(dst.view), np.isinf(expected))


@needs_dot
def test_pairs_of_three_rows_are_refused() -> None:
    left, right = (place((4, 6), (12, 2), STORAGE["bfloat16"], i) for i in (1, 2))
    dst = place((6, 6), (24, 4), F32, 3)
    function = compiled(matmul_text, "bfloat16", "bfloat16", PAIRS)
    assert execute(job(dst, [(left, right)], function, False, rows=3), 0, 6) == 1
