"""Native fused multiply-adds, powers of two, and every function made of them have the bits of NumPy's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki import elementary
from nki.isa import functions
from nki.native import cpu_features
from nki.native.emit.code import LANES, Code, type_of
from nki.native.emit.ops import operation
from nki.native.objects import jit
from nki.native.trace.values import Values
from nki.sim.numpy_arrays import NumpyArrays
from tests.elementary.functions import normal_tail
from tests.elementary.references import sweep
from tests.native.emit import emit_cases
from tests.native.emit.test_emit_shapes import empty, load, run, values

COUNT = 1 << 14
X: Any = NumpyArrays()
PROCESSORS = [pytest.param(True, marks=pytest.mark.skipif(not cpu_features.has("avx512f"), reason="no AVX-512")), False]
"""Whether multiplications by powers of two are single instructions."""

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=PROCESSORS, ids=lambda v: "AVX-512" if v else "any processor")
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    found = frozenset(cpu_features.features() - {"avx512f"} | ({"avx512f"} if request.param else set()))
    monkeypatch.setattr(cpu_features, "features", lambda: found)
    monkeypatch.setattr(emit_cases, "_compiled", {})
    yield


def natively(op: str, width: int, *operands: np.ndarray) -> np.ndarray:
    """One operation on vectors of LANES elements, or on single values where the width is 0."""
    traced, code = Values(), Code()
    node = getattr(traced, op)(*[traced.immediate(0, "f32") for _ in operands])
    kind = type_of("f32", width)
    items = [f"%p{i}" for i in range(len(operands))]
    with code.block(f"scf.for %i = {code.number(0)} to %count step {code.number(max(width, 1))} : i64 {{"):
        at = {p: code.let(f"llvm.getelementptr {p}[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32") for p in [*items, "%out"]}
        loaded = [code.let(f"llvm.load {at[p]} {{alignment = 4 : i64}} : !llvm.ptr -> {kind}") for p in items]
        result = operation(code, node, loaded, width)
        code.do(f"llvm.store {result}, {at['%out']} {{alignment = 4 : i64}} : {kind}, !llvm.ptr")
    pointers = ", ".join(f"{p}: !llvm.ptr" for p in [*items, "%out"])
    body = "\n".join([*code.head, *code.lines])
    text = f"module {{\n  func.func @f({pointers}, %count: i64) {{\n{body}\n    return\n  }}\n}}"
    out = np.empty_like(operands[0])
    arrays = [np.ascontiguousarray(v) for v in operands]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(arrays) + 1), ctypes.c_int64)(jit.in_process(text)["f"])
    function(*[v.ctypes.data for v in [*arrays, out]], out.size)
    return out


def difficult(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Factors and summands: any bits, and sums next to ties, to 0, to the smallest and to the largest numbers."""
    random = np.random.default_rng(seed)
    a, b, c = (values(3 * seed + i, (COUNT,)) for i in range(3))
    near = 1 + random.integers(-9, 10, COUNT) * 2.0**-23
    scale = np.exp2(random.integers(-149, 128, COUNT).astype(np.float64))
    count = random.integers(-(2**24), 2**24, COUNT)
    with np.errstate(all="ignore"):
        half = np.exp2(random.integers(0, 76, COUNT) - 75.0)
        kinds = random.integers(0, 4, COUNT)
        a = np.where(kinds == 0, half * scale * near, np.where(kinds == 1, 2.0**-75 * near, a)).astype(np.float32)
        b = np.where(kinds == 0, (2 - near) / half / 2, np.where(kinds == 1, 2.0**-75 * (2 - near), b))
        b = b.astype(np.float32)
        c = np.where(kinds == 0, count * scale, np.where(kinds == 1, count * 2.0**-149, c)).astype(np.float32)
        c = np.where(kinds == 2, -(a * b), c).astype(np.float32)
    lone = np.isnan(a).astype(int) + np.isnan(b) + np.isnan(c) + (np.isinf(a) & (b == 0)) + (np.isinf(b) & (a == 0))
    return a, b, np.where(lone > 1, np.float32(1), c)


@pytest.mark.parametrize("width", [LANES, 0])
def test_multiply_add(width: int) -> None:
    for seed in range(4):
        a, b, c = difficult(seed)
        with np.errstate(all="ignore"):
            expected = X.multiply_add(a, b, c)
            twice = (a.astype(np.float64) * b + c).astype(np.float32)
        got = natively("multiply_add", width, a, b, c)
        two = np.isnan(a) & np.isnan(b)
        assert (got[~two].view(np.uint32) == expected[~two].view(np.uint32)).all()
        assert (got[~two] != twice[~two]).sum() > 100 + np.isnan(got[~two]).sum(), "rounding twice shows"


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("width", [LANES, 0])
def test_scaled(width: int) -> None:
    random = np.random.default_rng(1)
    a = values(0, (COUNT,))
    n = random.integers(-320, 321, COUNT).astype(np.float32)
    n[::9] = random.choice(np.float32([2.0**30, -(2.0**30), 3.4e38, -3.4e38]), n[::9].size)
    n = np.where(np.isnan(a) & (n > 0), a, n)
    with np.errstate(all="ignore"):
        expected = X.scaled(a, n)
    assert natively("scaled", width, a, n).tobytes() == expected.tobytes()
    assert ((np.abs(expected) < 2.0**-126) & (expected != 0)).sum() > 100


def test_the_instruction_is_used_where_there_is_one() -> None:
    code, traced = Code(), Values()
    node = traced.scaled(traced.immediate(0, "f32"), traced.immediate(0, "f32"))
    operation(code, node, ["%a", "%n"], LANES)
    assert any("scalef" in line for line in code.lines) == cpu_features.has("avx512f")


def evaluated(function: Callable[[Any, Any], Any], monkeypatch: pytest.MonkeyPatch, *tiles: np.ndarray) -> None:
    """Native code and NumPy evaluate a function of one variable on tiles, without a valid range, to the same bits."""
    monkeypatch.setitem(functions._MEANING, "erf", function)

    def body(*arrays: Any) -> None:
        for array in arrays:
            nisa.activation(empty(array.shape), nl.erf, load(array))

    assert run(body, *tiles)["activation"] == len(tiles)


def numbers(points: int) -> np.ndarray:
    """All exponents, both signs, special values."""
    found = np.concatenate([*sweep(points), values(9, (4096,)).ravel()])
    found = np.where(np.isnan(found), np.uint32(0xFFC0_0000).view(np.float32), found)
    return found[: found.size // 128 * 128].reshape(128, -1)


def of_magnitude(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, a: function(x, x.absolute(a))


ALL = {
    **functions._MEANING,
    **{name: getattr(elementary, name) for name in ("log1p", "sin", "exponent")},
    "decay": of_magnitude(elementary.decay),
    "log1p_unit": of_magnitude(elementary.log1p_unit),
    "normal_tail": of_magnitude(normal_tail),
}


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("name", ALL)
def test_functions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated(ALL[name], monkeypatch, numbers(16))


@pytest.mark.slow
@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("name", ALL)
def test_functions_of_many_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated(ALL[name], monkeypatch, *np.array_split(numbers(1 << 11), 16, axis=1))


@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("op", ["power", "ldexp"])
def test_functions_of_two_variables(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second variable is made of the bits of the first one."""

    def function(x: Any, a: Any) -> Any:
        other = x.bits_float(x.int_xor(x.shift_left(x.float_bits(a), 9), x.int_constant(0x4012_3456)))
        other = x.select("equal", other, other, other, x.constant(2.0))
        return x.power(a, other) if op == "power" else x.ldexp(a, x.floor(other))

    evaluated(function, monkeypatch, numbers(64))


def test_every_function_is_tested() -> None:
    parts = {"lifted_decay", "lifted_gaussian", "scaled_tail"}
    assert {name for name in elementary.__all__ if name.islower()} - set(ALL) == {"power", "ldexp", *parts}
