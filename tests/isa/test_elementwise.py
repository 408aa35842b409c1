"""tensor_tensor over shapes, dtypes and special values, and single cases of both element-wise instructions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nki.isa as nisa
import nki.language as nl
from nki.spec.engine import engine
from tests.isa.elementwise_cases import (
    APPROXIMATE,
    BITVEC,
    EXACT,
    FLOATS,
    PLACES,
    SAME_SIZE,
    SEEDS,
    SHAPES,
    SMALL_INTEGERS,
    TORCH,
    WIDE_INTEGERS,
    WITH_TORCH,
    agrees,
    counts,
    floats,
    integers,
    on_bits,
    on_rationals,
    saturated,
    tensor,
)
from tests.isa.elementwise_reference import wrapped
from tests.isa.tiles import empty, filled, load, store
from tests.support import both, rejection


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


@pytest.mark.filterwarnings("ignore:.*lint.integer-precision:nki.report.NkiWarning")
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
        return lambda *tiles: nisa.tensor_tensor(tiles[names[0]], tiles[names[1]], tiles[names[2]], op, **options)

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
    "operand.kind": lambda f, i, p: nisa.tensor_scalar(f, f, nl.add, "1"),  # type: ignore[arg-type]
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
