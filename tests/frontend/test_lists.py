"""Lists as arguments of kernels: settings by value, and tensors where they hold arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ArgumentError, TensorError
from tests.support import both, environment, rejection
from tests.together import together

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def out_like(a: Any) -> Any:
    return nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)


def scaled(a: Any, factors: Any = (1.0,), shape: Any = None) -> Any:
    tile, out = nl.load(a), out_like(a)
    for factor in factors:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nl.store(out, tile)
    return out


def total(tensors: Any) -> Any:
    tile, out = nl.load(tensors[0]), out_like(tensors[0])
    for each in tensors[1:]:
        nisa.tensor_tensor(dst=tile, data1=tile, data2=nl.load(each), op=nl.add)
    nl.store(out, tile)
    return out


def test_a_list_is_a_setting() -> None:
    assert (both(scaled, X, [2.0, 3.0]) == X * 6).all()
    assert (both(scaled, X, factors=[2.0], shape=[[1, 2], [3]]) == X * 2).all()


def test_a_list_that_changes_is_another_setting() -> None:
    kernel, factors = nki.jit(scaled), [2.0]
    assert (kernel(X, factors) == X * 2).all()
    factors.append(5.0)
    assert (kernel(X, factors) == X * 10).all()
    factors[:] = [3.0]
    assert (kernel(X, factors) == X * 3).all()


def test_the_kernel_has_a_list_of_its_own() -> None:
    def kernel(a: Any, factors: Any) -> Any:
        factors.append(4.0)
        return scaled(a, factors)

    factors = [2.0]
    assert (both(kernel, X, factors) == X * 8).all()
    assert factors == [2.0]


def test_lists_of_arrays_are_lists_of_tensors() -> None:
    arrays = [X, X * 2, X * 3]
    assert (both(total, arrays) == X * 6).all()
    kernel = nki.jit(total)
    assert (kernel(arrays[:2]) == X * 3).all()
    assert (kernel([X, X]) == X * 2).all(), "one array twice"
    assert (kernel([X, X.copy()]) == X * 2).all()


def test_arrays_of_a_list_are_written_in_place() -> None:
    def kernel(tensors: Any) -> None:
        for number, each in enumerate(tensors):
            tile = nl.load(each)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(number + 1))
            nl.store(each, tile)

    for made in (nki.jit(kernel), nki.simulate(nki.jit(kernel))):
        arrays = [X.copy(), np.asfortranarray(X)]
        made(arrays)
        assert (arrays[0] == X + 1).all() and (arrays[1] == X + 2).all()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (lambda a: a.shape, "argument.no-array"),
        (lambda a: a[0:1, 0:2], "argument.no-array"),
        (lambda a: nl.load(a), "language.tile"),  # noqa: PLW0108
        (lambda a: nl.exp(a), "language.tile"),  # noqa: PLW0108
        (lambda a: nisa.tensor_copy(dst=nl.ndarray((2, 2), nl.float32), src=a), "argument.no-array"),
    ],
)
@pytest.mark.parametrize("kind", [list, tuple])
def test_numbers_where_a_tensor_is_used(body: Any, code: str, kind: Any) -> None:
    error = rejection(body, kind([[1.0, 2.0], [3.0, 4.0]]))
    assert isinstance(error, ArgumentError)
    assert error.code == code
    assert "np.asarray(" in error.fix and "np.float32)" in error.fix


def test_the_address_of_a_tensor() -> None:
    def kernel(a: Any) -> Any:
        fixed = nl.ndarray((4, 8), nl.float32, address=(0, 4096))
        assert fixed.address == fixed[0:2, 1:3].address == (0, 4096)
        assert nl.ndarray((4, 8), nl.float32).address is None
        assert a.address is None
        again, out = nl.ndarray((4, 8), nl.float32, address=fixed.address), out_like(a)
        nisa.dma_copy(dst=fixed, src=a)
        nl.store(out, again)
        return out

    assert (both(kernel, X) == X).all()


@together("target", ["trn1", "trn2", "trn3"])
@together("dtype", [np.float32, np.float16])
@together("shape", [(128, 32, 1), (1, 128, 64), (1, 32, 1, 64), (64, 1, 32), (1, 128, 1), (16, 1, 1)])
def test_transposes_leave_out_dimensions_of_size_1(shape: Any, dtype: Any, target: str) -> None:
    def kernel(a: Any) -> Any:
        tile = nl.load_transpose2d(a)
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    a = np.random.default_rng(0).random(shape).astype(dtype)
    rows, columns = ([size for size in shape if size > 1] + [1])[:2] if shape[0] > 1 else (1, 128)
    if shape[0] == 1 and shape != (1, 128, 1):
        rows, columns = (size for size in shape if size > 1)
    with environment(NEURON_PLATFORM_TARGET_OVERRIDE=target):
        assert (np.asarray(nki.simulate(nki.jit(kernel))(a)) == a.reshape(rows, columns).T).all()


def test_three_dimensions_are_too_many() -> None:
    error = rejection(nl.load_transpose2d, np.zeros((2, 3, 4), np.float32))
    assert isinstance(error, TensorError) and error.code == "language.rank"


def pattern(a: Any) -> Any:
    tile, out = nl.load(a), nl.ndarray((4, 4), a.dtype, buffer=nl.shared_hbm)
    part = nl.ndarray((4, 4), a.dtype)
    nisa.tensor_copy(dst=part, src=tile[:, 4:8].ap([[4, 4], [1, 4]]))
    nl.store(out, part)
    return out


def from_psum(a: Any) -> Any:
    moved, out = nl.ndarray(a.shape, a.dtype, buffer=nl.psum), out_like(a)
    nisa.tensor_copy(dst=moved, src=nl.load(a))
    nl.store(out, nl.copy(moved))
    return out


@pytest.mark.parametrize(
    ("kernel", "refused", "cured", "expected"), [(pattern, "0.6", "0.4", X[:, 4:8]), (from_psum, "0.5", "0.6", X)]
)
def test_refusals_that_another_version_cures_name_it(kernel: Any, refused: str, cured: str, expected: Any) -> None:
    with environment(NKI_API_VERSION=refused):
        error = rejection(kernel, X)
    assert f"NKI_API_VERSION={cured}" in error.fix
    with environment(NKI_API_VERSION=cured):
        assert (nki.jit(kernel)(X) == expected).all()


def test_a_pattern_that_no_version_takes_names_none() -> None:
    def kernel(a: Any) -> Any:
        return nl.load(a)[:, 4:8].ap([[5, 4], [1, 4]])

    assert "NKI_API_VERSION" not in rejection(kernel, X).fix
