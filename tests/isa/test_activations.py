"""Meaning of the functions of the Scalar engine, of their domains, and of the accumulator registers."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
from nki.core import dtypes
from nki.isa import alu, functions
from nki.isa.activations import activate2, activation, activation_reduce, exponential, reciprocal
from nki.isa.reduce import tensor_scalar_cumulative, tensor_scalar_reduce
from nki.report import NkiWarning
from nki.spec.engine import reduce_cmd
from nki.spec.operator import Operator
from tests.isa.tiles import empty, filled, load, store, ulps
from tests.support import both, rejection

IDLE, RESET, REDUCE = reduce_cmd.idle, reduce_cmd.reset, reduce_cmd.reduce
RESET_REDUCE, LOAD_REDUCE = reduce_cmd.reset_reduce, reduce_cmd.load_reduce
INF, NAN = float("inf"), float("nan")


def apply(op: Operator, values: Any, **options: Any) -> Any:
    """``activation`` of an array, eagerly and compiled."""

    def kernel(a: Any) -> Any:
        result = empty(a.shape)
        activation(dst=result, op=op, data=load(a), **options)
        return store(result)

    return both(kernel, np.atleast_2d(np.asarray(values, np.float32)))


def grid() -> np.ndarray:
    """Both signs, small and large numbers, as (64, 96)."""
    r = np.random.default_rng(5)
    parts = [
        r.uniform(-6, 6, 2048),
        r.uniform(-30, 30, 2048),
        np.exp2(r.uniform(-40, 4, 2048)) * r.choice([-1, 1], 2048),
    ]
    return np.concatenate(parts).astype(np.float32).reshape(64, 96)


def differentiated(function: Any, values: Any) -> np.ndarray:
    """Derivative by torch's autograd, in float64."""
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    function(x).sum().backward()
    assert x.grad is not None
    return x.grad.numpy()


def in_torch(function: Any) -> Any:
    return lambda v: function(torch.tensor(v, dtype=torch.float64)).numpy()


def _gelu_sigmoid(v: Any) -> Any:
    return v * torch.sigmoid(1.702 * v)


EXACT: dict[Operator, tuple[Any, float]] = {
    functions.COPY: (lambda v: v, 0),
    functions.EXP: (np.exp, 3),
    functions.TANH: (np.tanh, 4),
    functions.SIGMOID: (scipy.special.expit, 4),
    functions.GELU: (lambda v: v * scipy.special.ndtr(v), 10),
    functions.SILU: (in_torch(torch.nn.functional.silu), 5),
    functions.SOFTPLUS: (lambda v: np.logaddexp(0, v), 5),
    functions.MISH: (lambda v: v * np.tanh(np.logaddexp(0, v)), 8),
    functions.ERF: (scipy.special.erf, 1.3),
    functions.ERF_DX: (lambda v: 2 / math.sqrt(math.pi) * np.exp(-v * v), 6),
    functions.SIGN: (np.sign, 0),
    alu.SQUARE: (np.square, 0.51),
    alu.RELU: (in_torch(torch.relu), 0),
    alu.ABS: (np.abs, 0),
}
"""Reference in float64, and the largest error in ulps."""


@pytest.mark.parametrize("op", EXACT, ids=str)
def test_functions_are_accurate_everywhere(op: Operator) -> None:
    values, (exact, bound) = grid(), EXACT[op]
    assert ulps(apply(op, values), exact(values.astype(np.float64))).max() <= bound


WITHIN: dict[Operator, tuple[Any, float, float, float]] = {
    functions.LOG: (np.log, 3.5, 2.0**-60, 2.0**60),
    functions.SQRT: (np.sqrt, 0.51, 2.0**-100, 2.0**100),
    alu.RSQRT: (lambda v: 1 / np.sqrt(v), 2, 2.0**-80, 2.0**90),
    alu.RECIPROCAL: (lambda v: 1 / v, 0.51, 2.0**-40, 2.0**40),
    functions.ARCTAN: (np.arctan, 3, 2.0**-30, 1.5),
    functions.SIN: (np.sin, 3, 2.0**-30, 3.0),
}


@pytest.mark.parametrize("op", WITHIN, ids=str)
def test_functions_are_accurate_in_their_domain(op: Operator) -> None:
    exact, bound, low, high = WITHIN[op]
    values = np.geomspace(low, high, 1000).astype(np.float32)[None]
    assert ulps(apply(op, values), exact(values.astype(np.float64))).max() <= bound
    if op in (alu.RECIPROCAL, functions.ARCTAN, functions.SIN):
        np.testing.assert_array_equal(apply(op, -values), -apply(op, values))


CONDITIONED: dict[Operator, tuple[Any, Any]] = {
    functions.GELU_DX: (
        lambda v: scipy.stats.norm.cdf(v) + v * scipy.stats.norm.pdf(v),  # torch loses its tail in float64
        lambda v: scipy.special.ndtr(v) + np.abs(v) * np.exp(-v * v / 2),
    ),
    functions.SILU_DX: (
        lambda v: differentiated(torch.nn.functional.silu, v),
        lambda v: scipy.special.expit(v) * (1 + np.abs(v) * scipy.special.expit(-v)),
    ),
    functions.GELU_APPRX_SIGMOID: (
        in_torch(_gelu_sigmoid),
        lambda v: np.abs(_of(_gelu_sigmoid, v)) * (1 + 1.7 * np.abs(v)),
    ),
    functions.GELU_APPRX_SIGMOID_DX: (
        lambda v: differentiated(_gelu_sigmoid, v),
        lambda v: scipy.special.expit(1.702 * v) * (1 + 1.7 * np.abs(v)) ** 2,
    ),
    functions.GELU_APPRX_TANH: (
        lambda v: v * scipy.special.expit(math.sqrt(8 / math.pi) * (v + 0.044715 * v**3)),
        lambda v: (
            np.abs(v)
            * scipy.special.expit(math.sqrt(8 / math.pi) * (v + 0.044715 * v**3))
            * (1 + 1.6 * np.abs(v) * (1 + 0.045 * v * v))
        ),
    ),
}
"""Reference, and the scale of its condition: what an error of one ulp in the inner argument makes of the result."""


def _of(function: Any, values: Any) -> np.ndarray:
    return np.asarray(in_torch(function)(values))


@pytest.mark.parametrize("op", CONDITIONED, ids=str)
def test_derivatives_and_approximations_are_as_accurate_as_their_condition_allows(op: Operator) -> None:
    values = np.clip(grid(), -9, 9)
    exact, scale = CONDITIONED[op]
    wide = values.astype(np.float64)
    error = np.abs(apply(op, values) - exact(wide))
    assert (error / np.maximum(scale(wide) * 2.0**-24, 2.0**-149)).max() <= 8


def test_gelu_apprx_tanh_is_that_of_torch() -> None:
    values = np.linspace(-4, 4, 200).astype(np.float32)[None]
    wanted = torch.nn.functional.gelu(torch.tensor(values, dtype=torch.float64), approximate="tanh").numpy()
    np.testing.assert_allclose(apply(functions.GELU_APPRX_TANH, values), wanted, rtol=1e-5, atol=1e-12)


LIMITS = {
    functions.EXP: (0, 1, INF),
    functions.TANH: (-1, 0, 1),
    functions.SIGMOID: (0, 0.5, 1),
    functions.GELU: (0, 0, INF),
    functions.GELU_DX: (0, 0.5, 1),
    functions.GELU_APPRX_TANH: (0, 0, INF),
    functions.GELU_APPRX_SIGMOID: (0, 0, INF),
    functions.GELU_APPRX_SIGMOID_DX: (0, 0.5, 1),
    functions.SILU: (0, 0, INF),
    functions.SILU_DX: (0, 0.5, 1),
    functions.SOFTPLUS: (0, math.log(2), INF),
    functions.MISH: (0, 0, INF),
    functions.ERF: (-1, 0, 1),
    functions.ERF_DX: (0, 2 / math.sqrt(math.pi), 0),
    functions.SIGN: (-1, 0, 1),
    alu.RELU: (0, 0, INF),
    alu.SQUARE: (INF, 0, INF),
}


@pytest.mark.parametrize("op", LIMITS, ids=str)
def test_functions_reach_their_limits_without_overflow_on_the_way(op: Operator) -> None:
    low, middle, high = LIMITS[op]
    got = apply(op, [-INF, -3.4e38, -1e20, 0.0, -0.0, INF, NAN])[0]
    np.testing.assert_allclose(got, np.float32([low, low, low if op != alu.SQUARE else INF, middle, middle, high, NAN]))
    large = apply(op, [200.0, 1e15, 3.4e38])[0]
    assert not np.isnan(large).any()
    if math.isfinite(high):
        np.testing.assert_array_equal(large, high)


def test_copy_keeps_special_values() -> None:
    values = np.array([[0.0, -0.0, 1e-45, -1e-40, INF, -INF, NAN]], np.float32)
    assert apply(functions.COPY, values).tobytes() == values.tobytes()


# ---- sine


def sine(values: Any) -> Any:
    with pytest.warns(NkiWarning, match=r"activation\.domain"):
        return apply(functions.SIN, values)[0]


def test_sine_continues_as_a_cubic() -> None:
    got = sine([9.0, -9.0, 4.0])
    assert got[0] == pytest.approx(27.65, abs=0.005)
    assert got[1] == -got[0]
    d = 4.0 - math.pi
    assert got[2] == pytest.approx(-d + d**3 / 6, rel=1e-6)


def test_the_cubic_joins_the_sine_smoothly() -> None:
    step = 2.0**-10
    points = np.float32(math.pi) + step * np.arange(-6, 40)
    got = sine(points).astype(np.float64)
    assert np.abs(got - np.sin(points)).max() < 1e-6  # the fifth power of the distance over 120, and rounding
    slopes = np.diff(got) / step
    assert np.abs(slopes + 1).max() < 2e-3


def test_sine_of_special_values() -> None:
    got = sine([INF, -INF, NAN, -0.0, 1e30])
    np.testing.assert_array_equal(got, [INF, -INF, NAN, 0.0, INF])
    assert np.signbit(got[3])


# ---- domains


@pytest.mark.parametrize(
    ("op", "outside"),
    [
        (functions.LOG, [-1.0, 2.0**-65, 2.0**65, INF, -INF]),
        (functions.SQRT, [-1.0, 2.0**-117, 2.0**119]),
        (alu.RSQRT, [-1.0, 2.0**-88, 2.0**98]),
        (alu.RECIPROCAL, [2.0**-43, -(2.0**-43), 2.0**43, -(2.0**43)]),
        (functions.SIN, [3.15, -3.15]),
        (functions.ARCTAN, [1.58, -1.58]),
    ],
    ids=str,
)
def test_values_outside_the_domain_are_reported(op: Operator, outside: list[float]) -> None:
    for value in outside:
        with pytest.warns(NkiWarning, match=r"activation\.domain.*" + str(op)):
            apply(op, [1.0, value])


@pytest.mark.parametrize(
    ("op", "inside"),
    [
        (functions.LOG, [2.0**-64, 2.0**64]),
        (functions.SQRT, [2.0**-116, 2.0**118]),
        (alu.RSQRT, [2.0**-87, 2.0**97]),
        (alu.RECIPROCAL, [2.0**-42, -(2.0**42)]),
        (functions.SIN, [np.float32(math.pi), -np.float32(math.pi)]),
        (functions.ARCTAN, [np.float32(math.pi / 2), -np.float32(math.pi / 2)]),
    ],
    ids=str,
)
def test_the_ends_of_the_domain_zero_and_nan_are_not_reported(op: Operator, inside: list[float]) -> None:
    apply(op, [*inside, 0.0, -0.0, NAN])
    apply(op, [0.0, 0.0])


def test_the_domain_is_that_of_what_reaches_the_function() -> None:
    apply(functions.LOG, [-2.0, -8.0], scale=-1.0)
    with pytest.warns(NkiWarning, match="-2"):
        apply(functions.LOG, [2.0, 8.0], scale=-1.0)


def test_a_place_is_reported_once_however_often_it_runs() -> None:
    def kernel(a: Any) -> Any:
        tile = load(a)
        result = empty(a.shape)
        for _ in range(5):
            activation(result, functions.LOG, tile)
        activation(result, functions.LOG, tile)
        return store(result)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nki.simulate(nki.jit(kernel))(np.full((2, 3), -1.0, np.float32))
    assert [w.message.finding.code for w in caught if isinstance(w.message, NkiWarning)] == ["activation.domain"] * 2


def test_vector_reciprocal_has_no_domain() -> None:
    def kernel(a: Any) -> Any:
        result = empty(a.shape)
        reciprocal(result, load(a))
        return store(result)

    got = both(kernel, np.array([[2.0**-100, -(2.0**100), 0.0, -0.0, INF]], np.float32))
    np.testing.assert_array_equal(got, np.array([[2.0**100, -(2.0**-100), INF, -INF, 0.0]], np.float32))


# ---- scale, bias and rounding


@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 30)),
    source=st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.int8, np.uint16]),
    result=st.sampled_from([np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3]),
    scale=st.sampled_from([1.0, -0.5, 3.7]),
    bias=st.sampled_from([None, 0.0, 0.3]),
    seed=st.integers(0, 99),
)
@settings(max_examples=25)
def test_scale_and_bias_are_float32_with_one_rounding_each(
    shape: Any, source: Any, result: Any, scale: float, bias: Any, seed: int
) -> None:
    def kernel(a: Any) -> Any:
        out = empty(a.shape, result)
        activation(out, functions.COPY, load(a), bias=bias, scale=scale)
        return store(out)

    r = np.random.default_rng(seed)
    a = np.clip(r.standard_normal(shape) * 30, 0 if source is np.uint16 else -100, 100).astype(source)
    product = a.astype(np.float32) * np.float32(scale)
    wanted = (product if bias is None else product + np.float32(bias)).astype(result)
    np.testing.assert_array_equal(both(kernel, a).astype(np.float32), wanted.astype(np.float32))


def test_integers_saturate() -> None:
    def kernel(a: Any) -> Any:
        out = empty(a.shape, np.int8)
        activation(out, functions.COPY, load(a))
        return store(out)

    got = both(kernel, np.array([[127.5, -128.5, 2.5, 3.5, -INF, 1e30]], np.float32))
    np.testing.assert_array_equal(got, [[127, -128, 2, 4, -128, 127]])


def with_column(name: str, dtype: Any) -> Any:
    def kernel(a: Any) -> Any:
        result = empty(a.shape)
        activation(result, functions.EXP, load(a), **{name: filled((a.shape[0], 1), 0, dtype)})
        return store(result)

    return kernel


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float8_e4m3, np.int32, np.uint8, np.float32])
def test_a_bias_may_have_any_dtype(dtype: Any) -> None:
    both(with_column("bias", dtype), np.zeros((4, 4), np.float32), target="trn1")


@pytest.mark.parametrize(("name", "dtype"), [("bias", dtypes.tfloat32), ("scale", dtypes.bfloat16)])
def test_but_not_tfloat32_and_a_scale_is_float32(name: str, dtype: Any) -> None:
    assert rejection(with_column(name, dtype), np.zeros((4, 4), np.float32)).code == "operand.dtype"


def test_a_bias_of_zero_needs_no_immediate() -> None:
    def kernel(a: Any) -> Any:
        result = empty(a.shape)
        activation(result, alu.RECIPROCAL, load(a), bias=0.0)
        activation(result, functions.EXP, load(a), bias=None)
        return store(result)

    both(kernel, np.ones((4, 4), np.float32), target="trn1")


@pytest.mark.parametrize("instruction", ["activate2", "exponential"])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_newer_instructions_do_not_exist_everywhere(instruction: str, target: str) -> None:
    def kernel(a: Any) -> Any:
        result = empty(a.shape)
        if instruction == "activate2":
            activate2(result, functions.EXP, load(a), 0.0, 0.0, alu.BYPASS, alu.BYPASS)
        else:
            exponential(result, load(a))
        return store(result)

    assert rejection(kernel, np.ones((4, 4), np.float32), target=target).code == "instruction.unavailable"


# ---- accumulator registers


def test_default_commands() -> None:
    for instruction in (activation, activate2, exponential):
        assert inspect.signature(instruction).parameters["reduce_cmd"].default is IDLE
    for instruction in (tensor_scalar_reduce, tensor_scalar_cumulative):
        assert inspect.signature(instruction).parameters["reduce_cmd"].default is RESET_REDUCE


def test_the_sum_takes_values_before_they_round() -> None:
    def kernel(a: Any) -> Any:
        tile, rounded, total, exact = load(a), empty(a.shape, dtypes.bfloat16), empty((64, 1)), empty(a.shape)
        activation_reduce(rounded, functions.TANH, tile, alu.ADD, total)
        activation(exact, functions.TANH, tile)
        return store(total), store(exact)

    total, exact = both(kernel, grid())
    wide = exact.astype(np.float64)
    error = np.abs(total[:, 0] - wide.sum(1)).max()
    assert error < 1e-5 < np.abs(wide.astype(ml_dtypes.bfloat16).astype(np.float64).sum(1) - wide.sum(1)).max()


def test_reduce_res_survives_being_part_of_dst_and_of_data() -> None:
    def kernel(a: Any) -> Any:
        tile = load(a)
        activation(tile, alu.SQUARE, tile, reduce_op=alu.ADD, reduce_res=tile[:, 0:1], reduce_cmd=RESET_REDUCE)
        return store(tile)

    got = both(kernel, np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    np.testing.assert_array_equal(got, [[14, 4, 9], [77, 25, 36]])


def test_scalar_and_vector_have_registers_of_their_own_and_idle_leaves_those_of_scalar() -> None:
    def kernel(a: Any) -> Any:
        tile, junk, total = load(a), empty(a.shape), empty((2, 1))
        activation(junk, functions.COPY, tile, reduce_op=alu.ADD, reduce_cmd=RESET_REDUCE)
        tensor_scalar_reduce(junk, tile, alu.ADD, 100.0, alu.ADD)
        activation(junk, functions.EXP, tile)
        activation(junk, functions.COPY, tile, reduce_op=alu.ADD, reduce_res=total, reduce_cmd=REDUCE)
        return store(total)

    np.testing.assert_array_equal(both(kernel, np.array([[1, 2], [3, 4]], np.float32)), [[6], [14]])


def test_registers_of_other_partitions_stay() -> None:
    def kernel(a: Any) -> Any:
        tile, junk, total = load(a), empty(a.shape), empty((4, 1))
        activation(junk, functions.COPY, tile, reduce_op=alu.ADD, reduce_cmd=RESET_REDUCE)
        activation(junk[0:2], functions.COPY, tile[0:2], reduce_op=alu.ADD, reduce_cmd=RESET)
        activation(junk, functions.COPY, tile, reduce_op=alu.ADD, reduce_res=total, reduce_cmd=REDUCE)
        return store(total)

    got = both(kernel, np.array([[1], [2], [3], [4]], np.float32))
    np.testing.assert_array_equal(got, [[1], [2], [6], [8]])


def test_vector_registers_are_shared() -> None:
    def kernel(a: Any) -> Any:
        tile, junk, total, last = load(a), empty(a.shape), empty((2, 1)), empty(a.shape)
        exponential(junk, tile, reduce_cmd=RESET_REDUCE)
        tensor_scalar_reduce(junk, tile, alu.MULTIPLY, 1.0, alu.ADD, total, reduce_cmd=REDUCE)
        tensor_scalar_cumulative(last, tile, alu.MULTIPLY, alu.ADD, 0.0, reduce_cmd=REDUCE)
        return store(total), store(last)

    a = np.array([[0, 1, 2], [3, -1, 0.5]], np.float32)
    total, last = both(kernel, a, target="trn3")
    wanted = np.exp(a.astype(np.float64)).sum(1) + a.sum(1)
    np.testing.assert_allclose(total[:, 0], wanted, rtol=1e-6)
    np.testing.assert_array_equal(last, np.broadcast_to(total, (2, 3)))


def undefined(first: str) -> Any:
    """A kernel that reduces onto Vector registers after nothing, or after an instruction that left them idle."""

    def kernel(a: Any) -> Any:
        tile, junk, total = load(a), empty(a.shape), empty((2, 1))
        if first:
            tensor_scalar_reduce(junk, tile, alu.MULTIPLY, 1.0, alu.ADD)
        if first == "idle":
            exponential(junk, tile)
        tensor_scalar_reduce(junk, tile, alu.MULTIPLY, 1.0, alu.ADD, total, reduce_cmd=REDUCE)
        return store(total)

    return kernel


@pytest.mark.parametrize("first", ["", "idle"])
def test_undefined_vector_registers_are_reported_and_poisoned(first: str) -> None:
    with pytest.warns(NkiWarning, match=r"accumulator\.undefined"):
        got = both(undefined(first), np.ones((2, 3), np.float32), target="trn3")
    assert np.isnan(got).all()


def test_defined_vector_registers_are_not_reported() -> None:
    got = both(undefined("defined"), np.ones((2, 3), np.float32), target="trn3")
    np.testing.assert_array_equal(got, [[6], [6]])


def test_reading_scalar_registers_that_nothing_set_is_reported() -> None:
    def kernel(a: Any) -> Any:
        junk, total = empty(a.shape), empty((2, 1))
        activation(junk, functions.COPY, load(a), reduce_res=total)
        return store(total)

    with pytest.warns(NkiWarning, match=r"accumulator\.undefined"):
        assert np.isnan(both(kernel, np.ones((2, 3), np.float32))).all()


@given(values=st.lists(st.sampled_from([-3.0, -2.0, 0.0, 2.0, 3.0, 5.0, NAN]), min_size=1, max_size=40))
@settings(max_examples=20)
def test_abs_max_and_abs_min_choose_by_magnitude(values: list[float]) -> None:
    def kernel(a: Any) -> Any:
        junk, largest, smallest = empty(a.shape), empty((1, 1)), empty((1, 1))
        for op, total in ((alu.ABS_MAX, largest), (alu.ABS_MIN, smallest)):
            options = {"reduce_op": op, "reduce_res": total, "reduce_cmd": RESET_REDUCE}
            activate2(junk, functions.COPY, load(a), 0.0, 0.0, alu.BYPASS, alu.BYPASS, **options)
        return store(largest), store(smallest)

    for got, choose in zip(both(kernel, np.array([values], np.float32), target="trn3"), (max, min), strict=True):
        magnitude = NAN if any(map(math.isnan, values)) else choose(map(abs, values))
        if math.isnan(magnitude):
            assert np.isnan(got[0, 0])
        else:
            assert got[0, 0] == (magnitude if magnitude in values else -magnitude)


def test_fill_value_of_range_select_stays_finite_in_a_softmax() -> None:
    """A masked row: float32 minimum minus itself is 0, and -inf minus it is -inf, whose exponential is 0."""

    def kernel(a: Any) -> Any:
        result = empty(a.shape)
        activation(result, functions.EXP, load(a), bias=filled((1, 1), 3.4028235e38))
        return store(result)

    got = both(kernel, np.array([[-3.4028235e38, -INF, -1.0]], np.float32))
    np.testing.assert_array_equal(got[0, 0:2], [1.0, 0.0])
