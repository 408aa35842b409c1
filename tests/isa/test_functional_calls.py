"""Calls without `dst`: they run where they have one meaning; others are told apart from those that lack something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from nki.core.names.removed_table import MIGRATE
from nki.report import NkiWarning
from tests.support import rejection

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def error_of(call: Callable[[Any, Any], Any]) -> NkiError:
    def kernel(a: Any) -> None:
        call(nl.load(a), a)

    return rejection(kernel, X)


OLD: list[tuple[Callable[[Any, Any], Any], str]] = [
    (
        lambda x, a: nisa.tensor_scalar(x, nl.multiply, 2.0),
        "nisa.tensor_scalar(dst=result, data=x, op0=nl.multiply, operand0=2.0)",
    ),
    (
        lambda x, a: nisa.tensor_scalar(x, nl.multiply, 2.0, False, nl.add, 1.0),
        "nisa.tensor_scalar(dst=result, data=x, op0=nl.multiply, operand0=2.0, reverse0=False, op1=nl.add, "
        "operand1=1.0)",
    ),
    (lambda x, a: nisa.activation(nl.exp, x), "nisa.activation(dst=result, op=nl.exp, data=x)"),
    (lambda x, a: nisa.activation(nl.exp, x[0:2], mask=None), "nisa.activation(dst=result, op=nl.exp, data=x[0:2])"),
    (lambda x, a: nisa.activation(data=x, op=nl.exp), "nisa.activation(dst=result, op=nl.exp, data=x)"),
    (
        lambda x, a: nisa.tensor_reduce(nl.maximum, x, axis=[1]),
        "nisa.tensor_reduce(dst=result, op=nl.maximum, data=x, axis=[1])",
    ),
    (
        lambda x, a: nisa.tensor_tensor(x, x, nl.add, dtype=nl.float32),
        "nisa.tensor_tensor(dst=result, data1=x, data2=x, op=nl.add)",
    ),
    (lambda x, a: nisa.nc_matmul(x, x), "nisa.nc_matmul(dst=result, stationary=x, moving=x)"),
    (
        lambda x, a: nisa.tensor_tensor(*[x, x, nl.add]),
        "nisa.tensor_tensor(dst=result, data1=..., data2=..., op=nl.add)",
    ),
    # here only the use of the result tells
    (lambda x, a: [nisa.tensor_copy(x)], "nisa.tensor_copy(dst=result, src=x)"),
    (
        lambda x, a: len(str(nisa.tensor_tensor(x, x, op=nl.add))),
        "nisa.tensor_tensor(dst=result, data1=x, data2=x, op=nl.add)",
    ),
]


@pytest.mark.parametrize(("call", "written"), OLD, ids=lambda value: value if isinstance(value, str) else "")
def test_without_a_destination_it_writes_to_a_new_tile(call: Callable[[Any, Any], Any], written: str) -> None:
    def kernel(a: Any) -> Any:
        call(nl.load(a), a)
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(a))
        return out

    made = nki.jit(kernel)
    with pytest.warns(NkiWarning, match="is called without dst, and writes to a new tile"):
        made(X)
    (note,) = (each for each in made.report.findings if each.code == "call.implicit-destination")
    place = ", buffer=nl.psum)" if "matmul" in written else ", nl.float32)"
    assert place in note.fix and note.fix.endswith(f"and {written}")


@pytest.mark.parametrize(
    ("call", "written"),
    [
        (lambda x, a: nisa.tensor_copy(a[0]), "nisa.tensor_copy(dst=result, src=a[0])"),
        (lambda x, a: nisa.activation(nl.exp, x, mask=x), "nisa.activation(dst=result, op=nl.exp, data=x)"),
        (
            lambda x, a: nisa.tensor_tensor(x, nl.copy(x, dtype=nl.bfloat16), nl.add),
            "nisa.tensor_tensor(dst=result, data1=x, data2=nl.copy(x, dtype=nl.bfloat16), op=nl.add)",
        ),
    ],
    ids=["from HBM", "a mask", "two dtypes"],
)
def test_what_has_two_meanings_needs_its_destination(call: Callable[[Any, Any], Any], written: str) -> None:
    error = error_of(call)
    assert error.code == "call.destination"
    assert error.rule == "since NKI 0.2 dst comes first, and instructions write into it: they return no tensor"
    assert error.fix == f"allocate the result with nl.ndarray, and write {written}"


def _stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


TILES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "number": (lambda x: nisa.tensor_scalar(x, nl.multiply, 2.0), 2 * X),
    "dtype": (lambda x: nisa.tensor_scalar(x, nl.multiply, 2.0, dtype=nl.int32), (2 * X).astype(np.int32)),
    "no mask": (lambda x: nisa.tensor_tensor(x, x, nl.add, mask=None), 2 * X),
    "rows": (lambda x: nisa.tensor_reduce(nl.max, x, axis=[1]), X.max(1, keepdims=True)),
    "kept": (lambda x: nisa.tensor_reduce(nl.min, x, axis=1, keepdims=True), X.min(1, keepdims=True)),
    "product": (lambda x: [nisa.tensor_copy(nisa.nc_matmul(x, x))][0], X.T @ X),
    "turned": (lambda x: [nisa.tensor_copy(nisa.nc_transpose(x))][0], X.T),
    "turned by Vector": (lambda x: [nisa.nc_transpose(x, engine=nisa.engine.vector)][0], X.T),
    "in two steps": (
        lambda x: nisa.scalar_tensor_tensor(
            data=x, op0=nl.multiply, operand0=3.0, op1=nl.add, operand1=nisa.activation(op=nl.square, data=x)
        ),
        3 * X + X * X,
    ),
}


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("name", TILES)
def test_the_new_tile_has_shape_dtype_and_values(name: str, eager: bool) -> None:
    call, wanted = TILES[name]

    def kernel(a: Any) -> Any:
        return _stored(call(nl.load(a)))

    made = nki.simulate(kernel) if eager else nki.jit(kernel)
    with pytest.warns(NkiWarning):
        found = made(X)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_function_of_the_language_as_an_operator_is_told() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.max, operand0=3.0)
        return _stored(tile)

    made = nki.jit(kernel)
    with pytest.warns(NkiWarning, match="op0 is nl.max, which is a function; pass nl.maximum"):
        np.testing.assert_array_equal(made(X), np.maximum(X, 3))
    assert [each.code for each in made.report.findings] == ["operand.older-operator"]


REGISTERS: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda x, a: nisa.register_move(src=42), "write result = nisa.register_alloc(42), a new register that holds it"),
    (lambda x, a: nisa.register_move(6 * 7), "write result = nisa.register_alloc(6 * 7), a new register that holds it"),
    (lambda x, a: nisa.register_move(imm=42), "write result = nisa.register_alloc(42), a new register that holds it"),
    (
        lambda x, a: nisa.register_load(src=a[0:1, 0:1]),
        "allocate the result with nisa.register_alloc(), and write nisa.register_load(dst=result, src=a[0:1, 0:1])",
    ),
]


@pytest.mark.parametrize(("call", "fix"), REGISTERS, ids=lambda value: value if isinstance(value, str) else "")
def test_registers_without_a_destination(call: Callable[[Any, Any], Any], fix: str) -> None:
    error = error_of(call)
    assert (error.code, error.fix) == ("call.destination", fix)


def test_a_statement_of_its_own_may_lack_a_source_or_a_destination() -> None:
    def copied(x: Any, a: Any) -> None:
        nisa.tensor_copy(x)

    def added(x: Any, a: Any) -> None:
        if a is not None: nisa.tensor_tensor(x, x, op=nl.add)  # fmt: skip # noqa: E701

    error = error_of(copied)
    assert (error.code, error.message) == ("call.missing", "nisa.tensor_copy needs src")
    assert error.fix == "add src=...; or if no argument is dst, write nisa.tensor_copy(dst=result, src=x)"
    assert error_of(added).fix.startswith(
        "add data2=...; or if no argument is dst, write nisa.tensor_tensor(dst=result, "
    )


@pytest.mark.parametrize(
    ("call", "code", "fix"),
    [
        (lambda x, a: nisa.tensor_copy(dst=x), "call.missing", "add src=..."),
        (lambda x, a: nisa.tensor_copy(x, 3), "operand.kind", "allocate with nl.ndarray and pass the tensor"),
        (lambda x, a: nisa.memset((4, 8), 0), "operand.kind", "allocate with nl.ndarray and pass the tensor"),
        (lambda x, a: nisa.tensor_copy([x], x), "operand.kind", "pass the tensors of dst one by one"),
        (lambda x, a: nisa.activation(x, max, x), "operand.operator", "pass for example nl.exp"),
        (
            lambda x, a: nisa.tensor_copy(dst=x, src=x, mask=None),
            "call.unknown-argument",
            f"slice the tensors instead; mask= was removed: {MIGRATE}",
        ),
        (lambda x, a: nisa.core_barrier(), "call.missing", "add data=..."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_wrong_calls_say_what_they_lack(call: Callable[[Any, Any], Any], code: str, fix: str) -> None:
    error = error_of(call)
    assert (error.code, error.fix) == (code, fix)
