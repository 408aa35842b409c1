"""tensor_tensor and tensor_scalar over shapes, dtypes and special values, against torch and exact rationals."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.spec.engine import engine
from tests.isa.elementwise_reference import wrapped
from tests.isa.tiles import empty, filled, load, store
from tests.support import both, rejection

BF16 = ml_dtypes.bfloat16
FLOATS = [np.float32, np.float16, BF16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
SMALL_INTEGERS = [np.int8, np.uint8, np.int16, np.uint16]
WIDE_INTEGERS = [np.int32, np.uint32]
TORCH = {np.float32: torch.float32, np.float16: torch.float16, BF16: torch.bfloat16}
SPECIALS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.5,
    -3.5,
    1e-40,
    -1e-45,
    3.4028235e38,
    1e20,
    np.inf,
    -np.inf,
    np.nan,
    255.5,
    2.0**31,
]

# ---- arguments


def floats(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A third special values, a third small numbers, a third any bits of float32."""
    r = np.random.default_rng(seed)
    kind = r.integers(0, 3, shape)
    bits = r.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        values = np.choose(kind, [r.choice(np.array(SPECIALS, np.float32), shape), r.normal(0, 4, shape), bits])
        return values.astype(np.float32).astype(dtype)


def integers(seed: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Half of them next to an end of the range or to a power of two, the rest anything."""
    r = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    edges = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, info.max // 2, info.max // 2 + 1]
    edges += [n for n in (-1, 2**24, 2**24 + 1, 2**24 + 3, -(2**24) - 1) if info.min <= n <= info.max]
    anything = r.integers(info.min, info.max + 1, shape)
    return np.where(r.integers(0, 2, shape) == 1, r.choice(np.array(edges, np.int64), shape), anything).astype(dtype)


SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.tuples(st.integers(1, 20), st.integers(1, 5), st.integers(1, 7))
PLACES = st.sampled_from([(nl.sbuf, nl.sbuf, nl.sbuf), (nl.psum, nl.sbuf, nl.psum), (nl.sbuf, nl.psum, nl.sbuf)])

# ---- references


def nearest(exact: Fraction) -> Fraction:
    """The float32 next to a rational, ties to even, as a rational; for magnitudes within the range."""
    if exact == 0:
        return exact
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > magnitude
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    return round(exact / unit) * unit


def saturated(value: Fraction, dtype: Any) -> int:
    """An integer of the dtype: to nearest, ties to even, and no further than the end of the range."""
    return min(max(round(value), int(np.iinfo(dtype).min)), int(np.iinfo(dtype).max))


def on_rationals(operation: Callable[[Fraction, Fraction], Any], *arrays: np.ndarray) -> list[Fraction]:
    """Element by element: operands as float32, an exact operation, its result as float32."""
    columns = [[nearest(Fraction(n)) for n in array.ravel().tolist()] for array in arrays]
    return [nearest(Fraction(operation(*pair))) for pair in zip(*columns, strict=True)]


def compared(relation: str) -> Callable[[Any, Any], Any]:
    return {
        "equal": lambda a, b: a == b,
        "not_equal": lambda a, b: a != b,
        "greater": lambda a, b: a > b,
        "greater_equal": lambda a, b: a >= b,
        "less": lambda a, b: a < b,
        "less_equal": lambda a, b: a <= b,
    }[relation]


EXACT: dict[Any, Callable[[Any, Any], Any]] = {
    nl.add: lambda a, b: a + b,
    nl.subtract: lambda a, b: a - b,
    nl.multiply: lambda a, b: a * b,
    nl.maximum: max,
    nl.minimum: min,
    nl.logical_and: lambda a, b: int(a != 0 and b != 0),
    nl.logical_or: lambda a, b: int(a != 0 or b != 0),
    nl.logical_xor: lambda a, b: int((a != 0) != (b != 0)),
    **{
        getattr(nl, name): compared(name)
        for name in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
    },
}

WITH_TORCH: dict[Any, Callable[[Any, Any], Any]] = {
    nl.add: torch.add,
    nl.subtract: torch.sub,
    nl.multiply: torch.mul,
    nl.maximum: torch.maximum,
    nl.minimum: torch.minimum,
    nl.equal: torch.eq,
    nl.not_equal: torch.ne,
    nl.greater: torch.gt,
    nl.greater_equal: torch.ge,
    nl.less: torch.lt,
    nl.less_equal: torch.le,
    nl.logical_and: torch.logical_and,
    nl.logical_or: torch.logical_or,
    nl.logical_xor: torch.logical_xor,
    nl.power: torch.pow,
    nl.abs_max: lambda a, b: torch.where(a.abs() > b.abs(), a, b),
    nl.abs_min: lambda a, b: torch.where(a.abs() < b.abs(), a, b),
}
UNARY_WITH_TORCH: dict[Any, Callable[[Any], Any]] = {
    nl.abs: torch.abs,
    nl.square: torch.square,
    nl.relu: torch.relu,
    nl.rsqrt: torch.rsqrt,
    nl.reciprocal: torch.reciprocal,
}
APPROXIMATE = (nl.power, nl.rsqrt)
"""Torch rounds these differently; they may be a few units of the last place apart."""


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array.astype(np.float32)))


def agrees(got: np.ndarray, wanted: torch.Tensor, dtype: Any, loose: bool) -> None:
    """Equal values, NaN in the same places; not the signs of zeros, which maximum and minimum leave open."""
    want = wanted.to(torch.float32).to(TORCH[dtype]).to(torch.float32).numpy()
    if loose:
        np.testing.assert_allclose(got.astype(np.float32), want, rtol=2e-6 if dtype is np.float32 else 1e-2, atol=1e-44)
    else:
        np.testing.assert_array_equal(got.astype(np.float32), want)


# ---- tensor_tensor


def pairwise(op: Any, dtype: Any, places: Any = (nl.sbuf,) * 3, shape: Any = None, **options: Any) -> Any:
    """A kernel that reads the second operand in another rank, and writes a strided result."""

    def kernel(a: Any, b: Any) -> Any:
        x, y = load(a, places[1]), load(b, places[2])
        result = filled((a.shape[0], 2 * math.prod(a.shape[1:])), 0, dtype, places[0])
        view = result[:, 1 : result.shape[1] : 2]
        nisa.tensor_tensor(view, x, y.reshape((b.shape[0], math.prod(b.shape[1:]))), op, **options)
        copy = empty(view.shape, dtype)
        nisa.tensor_copy(copy, view)
        return store(copy.reshape(a.shape))

    return kernel


@given(st.sampled_from(list(WITH_TORCH)), SHAPES, st.sampled_from(FLOATS), st.sampled_from(FLOATS), SEEDS, PLACES)
def test_float_operators_agree_with_torch(op: Any, shape: Any, first: Any, second: Any, seed: int, places: Any) -> None:
    a, b = floats(seed, shape, first), floats(seed + 1, shape, second)
    dtype = list(TORCH)[seed % 3]
    places = (nl.sbuf,) * 3 if op is nl.power else places
    got = both(pairwise(op, dtype, places), a, b, target="trn3")
    agrees(got, WITH_TORCH[op](tensor(a), tensor(b)), dtype, op in APPROXIMATE)


@given(
    st.sampled_from(list(EXACT)),
    SHAPES,
    st.sampled_from(SMALL_INTEGERS),
    st.sampled_from(SMALL_INTEGERS),
    st.sampled_from([*SMALL_INTEGERS, *WIDE_INTEGERS]),
    SEEDS,
    PLACES,
)
def test_small_integers_saturate(
    op: Any, shape: Any, first: Any, second: Any, dtype: Any, seed: int, places: Any
) -> None:
    a, b = integers(seed, shape, first), integers(seed + 1, shape, second)
    got = both(pairwise(op, dtype, places), a, b)
    assert got.ravel().tolist() == [saturated(v, dtype) for v in on_rationals(EXACT[op], a, b)]


@given(st.sampled_from(list(EXACT)), SHAPES, st.tuples(*[st.sampled_from(WIDE_INTEGERS)] * 3), SEEDS)
def test_32_bit_integers_are_exact_and_wrap(op: Any, shape: Any, dtypes: Any, seed: int) -> None:
    a, b = integers(seed, shape, dtypes[0]), integers(seed + 1, shape, dtypes[1])
    got = both(pairwise(op, dtypes[2]), a, b)
    pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
    assert got.ravel().tolist() == [wrapped(int(EXACT[op](x, y)), dtypes[2]) for x, y in pairs]


@given(
    st.sampled_from(list(EXACT)),
    SHAPES,
    st.tuples(*[st.sampled_from(WIDE_INTEGERS)] * 3),
    SEEDS,
    st.sampled_from([0, 1, 2]),
)
def test_32_bit_integers_pass_through_float32_on_vector(
    op: Any, shape: Any, dtypes: Any, seed: int, where: int
) -> None:
    a, b = integers(seed, shape, dtypes[0]), integers(seed + 1, shape, dtypes[1])
    places = tuple(nl.psum if place == where - 1 else nl.sbuf for place in range(3))
    options = {} if where else {"engine": nisa.engine.vector}
    got = both(pairwise(op, dtypes[2], places, **options), a, b)
    assert got.ravel().tolist() == [saturated(v, dtypes[2]) for v in on_rationals(EXACT[op], a, b)]


def bit_pattern(number: int, width: int) -> str:
    return format(number % (1 << width), f"0{width}b")


def on_bits(name: str, a: int, b: int, width: int) -> int:
    """Bitvec operators on strings of 0 and 1."""
    x, y = bit_pattern(a, width), bit_pattern(b, width)
    if name == "left_shift":
        return int((x + "0" * min(int(y, 2), width))[-width:], 2)
    if name == "right_shift":
        return int(("0" * min(int(y, 2), width) + x)[:width], 2)
    if name == "invert":
        return int(x.translate(str.maketrans("01", "10")), 2)
    keep = {"bitwise_and": {"11"}, "bitwise_or": {"01", "10", "11"}, "bitwise_xor": {"01", "10"}}[name]
    return int("".join("1" if p + q in keep else "0" for p, q in zip(x, y, strict=True)), 2)


BITVEC = ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]
SAME_SIZE = [(np.int8, np.uint8), (np.int16, np.uint16), (np.int32, np.uint32)]


def counts(seed: int, shape: Any, dtype: Any) -> np.ndarray:
    """Shift counts: mostly within the width, some at it and beyond, some of all bits."""
    r = np.random.default_rng(seed)
    return np.where(r.integers(0, 4, shape) > 0, r.integers(0, np.iinfo(dtype).bits + 2, shape), -1).astype(dtype)


@given(st.sampled_from(BITVEC), SHAPES, st.sampled_from(SAME_SIZE), st.tuples(*[st.integers(0, 1)] * 3), SEEDS, PLACES)
def test_bitvec_operators_mix_signs_of_one_size(
    name: str, shape: Any, kinds: Any, signs: Any, seed: int, places: Any
) -> None:
    dtypes = [kinds[sign] for sign in signs]
    a = integers(seed, shape, dtypes[0])
    b = (counts if "shift" in name else integers)(seed + 1, shape, dtypes[1])
    got = both(pairwise(getattr(nl, name), dtypes[2], places), a, b)
    width = np.iinfo(dtypes[0]).bits
    pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
    assert got.ravel().tolist() == [wrapped(on_bits(name, x, y, width), dtypes[2]) for x, y in pairs]


# ---- tensor_scalar

COLUMN = "column"


def scaled(steps: Any, dtype: Any, place: Any = nl.sbuf, **options: Any) -> Any:
    """A kernel with (op, operand, reverse) twice; `COLUMN` stands for a column of the second argument."""

    def kernel(a: Any, columns: Any) -> Any:
        table, result = load(columns), empty((a.shape[0], math.prod(a.shape[1:])), dtype, place)
        values = []
        for i, (op, operand, reverse) in enumerate(steps):
            values += [op, table[:, i : i + 1] if isinstance(operand, str) else operand, reverse]
        nisa.tensor_scalar(result, load(a), *values, **options)
        return store(result.reshape(a.shape))

    return kernel


NUMBERS = st.sampled_from([0, 1, -3, 2.5, -0.0, 1e-40, 3.4028235e38, 1e39, float("inf"), float("nan"), 2**31, True])
OPERANDS = st.one_of(st.just(COLUMN), NUMBERS)
BINARY_STEP = st.tuples(st.sampled_from(list(WITH_TORCH)), OPERANDS, st.booleans())
UNARY_STEP = st.tuples(st.sampled_from(list(UNARY_WITH_TORCH)), st.sampled_from([None, 0, 0.0]), st.booleans())
STEP = st.one_of(BINARY_STEP, UNARY_STEP)


def with_torch(step: Any, data: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    op, operand, reverse = step
    if op in UNARY_WITH_TORCH:
        return UNARY_WITH_TORCH[op](data)
    with np.errstate(over="ignore"):
        other = column.expand_as(data) if operand == COLUMN else torch.full_like(data, float(np.float32(operand)))
    return WITH_TORCH[op](*((other, data) if reverse else (data, other))).to(torch.float32)


@given(STEP, SHAPES, st.sampled_from(FLOATS), SEEDS, st.sampled_from([nl.sbuf, nl.psum]))
def test_one_step_agrees_with_torch(step: Any, shape: Any, dtype: Any, seed: int, place: Any) -> None:
    a, columns = floats(seed, shape, dtype), floats(seed + 1, (shape[0], 2), np.float32)
    into = list(TORCH)[seed % 3]
    got = both(scaled([step], into, place), a, columns, target="trn3")
    column = tensor(columns[:, 0]).reshape(-1, 1, 1)
    agrees(got, with_torch(step, tensor(a), column), into, step[0] in APPROXIMATE)


EXACT_STEP = st.tuples(st.sampled_from([op for op in WITH_TORCH if op not in APPROXIMATE]), OPERANDS, st.booleans())


@given(EXACT_STEP, EXACT_STEP, SHAPES, st.sampled_from(FLOATS), SEEDS, st.sampled_from(["vector", "scalar"]))
def test_two_steps_round_to_float32_in_between(
    first: Any, second: Any, shape: Any, dtype: Any, seed: int, runs_on: str
) -> None:
    """Zeros of either sign may leave the first step, which only a division by them would show."""
    a, columns = floats(seed, shape, dtype), floats(seed + 1, (shape[0], 2), np.float32)
    got = both(scaled([first, second], np.float32, engine=engine[runs_on]), a, columns, target="trn3")
    step = with_torch(first, tensor(a), tensor(columns[:, 0]).reshape(-1, 1, 1))
    wanted = with_torch(second, step, tensor(columns[:, 1]).reshape(-1, 1, 1))
    agrees(got, wanted, np.float32, False)


WHOLE = st.integers(-300, 300)


@given(
    st.sampled_from(list(EXACT)),
    st.sampled_from(list(EXACT)),
    st.tuples(WHOLE, st.booleans(), WHOLE, st.booleans()),
    SHAPES,
    st.sampled_from([*SMALL_INTEGERS, *WIDE_INTEGERS]),
    st.sampled_from([*SMALL_INTEGERS, *WIDE_INTEGERS]),
    SEEDS,
)
def test_integers_pass_through_float32_and_saturate(
    op0: Any, op1: Any, numbers: Any, shape: Any, dtype: Any, into: Any, seed: int
) -> None:
    a = integers(seed, shape, dtype)
    operand0, reverse0, operand1, reverse1 = numbers

    def calculate(op: Any, value: Fraction, operand: int, reverse: bool) -> Fraction:
        pair = (Fraction(operand), value) if reverse else (value, Fraction(operand))
        return nearest(Fraction(EXACT[op](*pair)))

    steps = [(op0, operand0, reverse0), (op1, operand1, reverse1)]
    got = both(scaled(steps, into), a, np.zeros((shape[0], 2), np.float32))
    wanted = []
    for n in a.ravel().tolist():
        value = calculate(op0, nearest(Fraction(n)), operand0, reverse0)
        wanted.append(saturated(calculate(op1, value, operand1, reverse1), into))
    assert got.ravel().tolist() == wanted


@given(
    st.lists(st.tuples(st.sampled_from([*BITVEC, "invert"]), st.booleans(), st.booleans()), min_size=1, max_size=2),
    SHAPES,
    st.sampled_from(SAME_SIZE),
    st.tuples(*[st.integers(0, 1)] * 3),
    SEEDS,
)
def test_two_bitvec_steps(steps: Any, shape: Any, kinds: Any, signs: Any, seed: int) -> None:
    dtype, into, other = (kinds[sign] for sign in signs)
    width = np.iinfo(dtype).bits
    a = integers(seed, shape, dtype)
    columns = (counts if seed % 2 else integers)(seed + 1, (shape[0], 2), other)
    r = np.random.default_rng(seed + 2)
    arguments, wanted = [], a.ravel().tolist()
    for i, (name, is_column, reverse) in enumerate(steps):
        operand: Any = (
            COLUMN if is_column else int(r.choice([r.integers(0, width + 2), -(2 ** (width - 1)), 2**width - 1]))
        )
        operand = None if name == "invert" else operand
        arguments.append((getattr(nl, name), operand, reverse))
        rows = [int(n) for n in columns[:, i]] if operand == COLUMN else [operand or 0] * shape[0]
        others = [n for n in rows for _ in range(shape[1] * shape[2])]
        swap = reverse and name != "invert"
        pairs = zip(others, wanted, strict=True) if swap else zip(wanted, others, strict=True)
        wanted = [on_bits(name, x, y, width) for x, y in pairs]
    got = both(scaled(arguments, into), a, columns)
    assert got.ravel().tolist() == [wrapped(n, into) for n in wanted]


# ---- single cases


def once(call: Any, values: Any, dtype: Any = np.float32, into: Any = None) -> np.ndarray:
    """The result of `call(dst, data)` on one row."""

    def kernel(a: Any) -> Any:
        data, dst = load(a), empty(a.shape, into or dtype)
        call(dst, data)
        return store(dst)

    return both(kernel, np.array([values], dtype), target="trn3")[0]


def test_nan_and_infinity_become_integers() -> None:
    values = [np.nan, np.inf, -np.inf, 300.0, -1.0, 0.5, 1.5, 2.5]
    got = once(lambda dst, data: nisa.tensor_scalar(dst, data, nl.add, 0.0), values, into=np.uint8)
    assert got.tolist() == [0, 255, 0, 255, 0, 0, 2, 2]


def test_comparisons_with_nan_are_false_but_for_not_equal() -> None:
    for op in EXACT:
        if op.__name__ in ("equal", "greater", "greater_equal", "less", "less_equal"):
            got = once(lambda dst, data, op=op: nisa.tensor_tensor(dst, data, data, op), [np.nan])
            assert got.tolist() == [0]
    assert once(lambda dst, data: nisa.tensor_tensor(dst, data, data, nl.not_equal), [np.nan]).tolist() == [1]


@pytest.mark.parametrize(("zero", "sign"), [(-0.0, True), (0.0, False), (0, False)])
def test_the_sign_of_a_zero_operand_counts(zero: float, sign: bool) -> None:
    got = once(lambda dst, data: nisa.tensor_scalar(dst, data, nl.add, zero), [-0.0])
    assert np.signbit(got).tolist() == [sign]


def test_zeros_keep_their_sign() -> None:
    got = once(lambda dst, data: nisa.tensor_tensor(dst, data, data, nl.add), [-0.0, 0.0])
    assert np.signbit(got).tolist() == [True, False]
    got = once(lambda dst, data: nisa.tensor_scalar(dst, data, nl.multiply, -1.0), [-0.0, 0.0])
    assert np.signbit(got).tolist() == [False, True]


def test_subnormal_results_are_kept() -> None:
    got = once(lambda dst, data: nisa.tensor_scalar(dst, data, nl.multiply, 2.0**-100), [2.0**-40, 3 * 2.0**-50])
    assert got.tolist() == [2.0**-140, 2.0**-148]


def test_a_step_may_be_left_out() -> None:
    def clamp(dst: Any, data: Any) -> None:
        nisa.tensor_scalar(dst, data, op0=None, operand0=None, op1=nl.maximum, operand1=-1.0)

    def nothing(dst: Any, data: Any) -> None:
        nisa.tensor_scalar(dst, data, op0=None, operand0=None, op1=None, operand1=None)

    assert once(clamp, [-3.0, 0.25]).tolist() == [-1.0, 0.25]
    assert once(nothing, [-3.0, 0.25], into=np.int8).tolist() == [-3, 0]


def engines(*calls: Any) -> list[engine]:
    """The engines that instructions choose; each call gets a float tile, an integer tile and a PSUM tile."""
    found: list[engine] = []

    def kernel(a: Any) -> Any:
        tiles = load(a), filled((4, 8), 1, np.int32), filled((4, 8), 1.0, buffer=nl.psum)
        found[:] = [call(*tiles).issued.engine for call in calls]
        return store(tiles[0])

    both(kernel, np.ones((4, 8), np.float32), target="trn3")
    return found


def test_the_engine_follows_from_operator_dtypes_and_buffers() -> None:
    def tensor(op: Any, *names: int, **options: Any) -> Any:
        return lambda *tiles: nisa.tensor_tensor(*(tiles[n] for n in names), op, **options)

    def scalar(op: Any, place: int, **options: Any) -> Any:
        return lambda *tiles: nisa.tensor_scalar(tiles[place], tiles[place], op, None, **options)

    assert engines(
        tensor(nl.add, 0, 0, 0),
        tensor(nl.add, 1, 1, 1),
        tensor(nl.add, 0, 1, 1),
        tensor(nl.add, 2, 1, 1),
        tensor(nl.add, 1, 1, 1, engine=engine.vector),
        tensor(nl.abs_max, 1, 1, 1),
        tensor(nl.bitwise_or, 1, 1, 1),
        tensor(nl.power, 0, 0, 0),
        scalar(nl.abs, 0),
        scalar(nl.rsqrt, 0),
        scalar(nl.rsqrt, 2),
        scalar(nl.square, 0, engine=engine.scalar),
    ) == [
        engine.vector,
        engine.gpsimd,
        engine.vector,
        engine.vector,
        engine.vector,
        engine.vector,
        engine.vector,
        engine.gpsimd,
        engine.vector,
        engine.gpsimd,
        engine.vector,
        engine.scalar,
    ]


REFUSED = {
    "operand.column": lambda f, i, p: nisa.tensor_scalar(f, f, nl.add, f[:, 0:2]),
    "operand.gpsimd-psum": lambda f, i, p: nisa.tensor_tensor(p, f, f, nl.power),
    "instruction.engine": lambda f, i, p: nisa.tensor_tensor(f, f, f, nl.add, engine=engine.scalar),
    "operand.kind": lambda f, i, p: nisa.tensor_scalar(f, f, nl.add, "1"),
    "tensor_tensor.operator": lambda f, i, p: nisa.tensor_tensor(i, i, i, nl.invert),
    "operand.operator": lambda f, i, p: nisa.tensor_tensor(f, f, f, np.add),
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_only_a_loose_simulator_computes_is_refused(code: str) -> None:
    def kernel(a: Any) -> Any:
        tile = load(a)
        REFUSED[code](tile, filled((4, 8), 1, np.int32), filled((4, 8), 1.0, buffer=nl.psum))
        return store(tile)

    assert rejection(kernel, np.ones((4, 8), np.float32)).code == code
