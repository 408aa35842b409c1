"""Kernels under JAX's transformations give what plain JAX gives."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from nki.core.errors import LaunchError, NkiError
from tests.interop.jax import kernels
from tests.support import environment

jax = pytest.importorskip("jax")
pytest.importorskip("jax.export")
jnp = jax.numpy

X = np.arange(32, dtype=np.float32).reshape(4, 8)
A, B = jnp.asarray(X), jnp.asarray(X[::-1] * 3)


def same(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def test_a_kernel_is_part_of_a_jitted_function() -> None:
    same(jax.jit(lambda a, b: kernels.add(a, b) * a * b)(A, B), (A + B) * A * B)


def test_a_kernel_itself_is_jitted_with_its_constants() -> None:
    run = jax.jit(kernels.scaled, static_argnames="scale")
    same(run(A), A * 3)
    same(run(A, scale=0.5), A * 0.5)


def test_results_keep_their_structure() -> None:
    found = jax.jit(lambda a, b: kernels.several({"x": a, "y": b}))(A, B)
    assert isinstance(found, kernels.Both)
    same(found.total, A + B)
    same(found.parts[0], A)
    same(found.parts[1], B)


def test_arrays_of_the_host_take_part() -> None:
    same(jax.jit(lambda a: kernels.add(a, X[::-1].T.copy().T))(A), A + X[::-1])
    same(jax.jit(lambda a: kernels.add(a, B))(A), A + B)


def test_shapes_are_found_by_tracing() -> None:
    found = jax.eval_shape(
        kernels.add, jax.ShapeDtypeStruct((128, 64), jnp.bfloat16), jnp.zeros((128, 64), jnp.bfloat16)
    )
    assert (found.shape, found.dtype) == ((128, 64), jnp.bfloat16)
    with pytest.raises(NkiError) as caught:
        jax.eval_shape(kernels.add, jnp.zeros((129, 8)), jnp.zeros((129, 8)))
    assert caught.value.code == "tensor.partitions"


def test_scalars_have_one_element_as_outside() -> None:
    assert kernels.copied(jnp.float32(2)).shape == jax.jit(kernels.copied)(2.0).shape == (1,)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int32", "uint8", "bool"])
def test_every_dtype_arrives_as_it_is(name: str) -> None:
    values = jnp.asarray(np.arange(24).reshape(4, 6) % 7 - 3 * (name[0] in "bfi")).astype(name)
    same(jax.jit(kernels.copied)(values), values)


def test_a_dtype_that_no_device_has_is_refused() -> None:
    with jax.enable_x64(True), pytest.raises(NkiError, match="float64") as caught:
        jax.jit(kernels.copied)(np.ones((4, 8)))
    assert caught.value.code == "argument.dtype"


def test_arrays_that_are_no_numbers_and_shapes_that_are_none_are_refused() -> None:
    with pytest.raises(NkiError, match="key_data") as caught:
        jax.jit(kernels.copied)(jax.random.split(jax.random.key(0), 4))
    assert caught.value.code == "argument.dtype"
    with pytest.raises(NkiError, match=r"argument\.empty"):
        jax.jit(kernels.copied)(A[:0])
    shape = jax.export.symbolic_shape("n, 8")
    with pytest.raises(NkiError) as caught:
        jax.export.export(jax.jit(kernels.copied))(jax.ShapeDtypeStruct(shape, jnp.float32))
    assert caught.value.code == "jax.symbolic-shape"


def test_results_that_jax_has_no_dtype_for_are_refused() -> None:
    @nki.jit
    def packed(a: Any) -> Any:
        return nl.ndarray((4, 8), nl.float8_e4m3fn_x4, buffer=nl.shared_hbm)

    with pytest.raises(LaunchError) as caught:
        jax.jit(packed)(A)
    assert caught.value.code == "result.dtype"


def test_vmap_calls_the_kernel_for_one_element_after_the_other() -> None:
    batch = jnp.stack([A, B, A * 2], axis=1)
    same(jax.vmap(kernels.add, in_axes=(1, 1))(batch, batch), jnp.moveaxis(batch, 1, 0) * 2)
    same(jax.jit(jax.vmap(kernels.add, in_axes=(1, None)))(batch, B), jnp.moveaxis(batch, 1, 0) + B)
    twice = jax.vmap(jax.vmap(kernels.add, in_axes=(0, None)), in_axes=(None, 0))
    same(twice(jnp.stack([A, B]), jnp.stack([B, A, A])), jnp.stack([jnp.stack([A, B]) + x for x in (B, A, A)]))


def test_scan_and_remat() -> None:
    total, seen = jax.lax.scan(lambda c, x: (kernels.add(c, x), c.sum()), A, jnp.stack([B] * 3))
    same(total, A + B + B + B)
    assert seen.shape == (3,)
    same(jax.checkpoint(kernels.add)(A, B), A + B)


def test_a_gradient_needs_a_derivative() -> None:
    def loss(a: Any) -> Any:
        return kernels.add(a, a).sum()

    for function in (jax.grad(loss), jax.jit(jax.grad(loss)), jax.grad(jax.jit(loss))):
        with pytest.raises(LaunchError) as caught:
            function(A)
        assert caught.value.code == "jax.no-gradient"
        assert "kernels.add(a, a)" in str(caught.value)
    with pytest.raises(LaunchError, match=r"jax\.no-gradient"):
        jax.linear_transpose(lambda a: kernels.add(a, a), A)(A)


def test_a_kernel_without_tangents_needs_none() -> None:
    same(jax.grad(lambda a: (a * kernels.add(B, B)).sum())(A), B * 2)
    same(jax.grad(lambda a: (a * kernels.add(jax.lax.stop_gradient(a), B)).sum())(A), A + B)


def test_custom_vjp() -> None:
    @jax.custom_vjp
    def plus(a: Any, b: Any) -> Any:
        return kernels.add(a, b)

    plus.defvjp(lambda a, b: (plus(a, b), None), lambda _, g: (g, g))
    found = jax.jit(jax.grad(lambda a, b: (plus(a, b) * a * b).sum(), argnums=(0, 1)))(A, B)
    wanted = jax.grad(lambda a, b: ((a + b) * a * b).sum(), argnums=(0, 1))(A, B)
    same(found[0], wanted[0])
    same(found[1], wanted[1])


def test_with_vjp() -> None:
    from nki.interop.jax import with_vjp

    times = with_vjp(kernels.scaled, None, lambda scale, kept, g: (kernels.scaled(g, scale),), constants=("scale",))
    found = jax.jit(jax.grad(lambda a: (times(a, 5.0) * a).sum()))(A)
    same(found, A * 10)
    same(jax.vmap(jax.grad(lambda a: times(a, 2.0).sum()))(jnp.stack([A, B])), jnp.full((2, 4, 8), 2, jnp.float32))
    kept = with_vjp(kernels.add, lambda a, b: (kernels.add(a, b), a * 7), lambda kept, g: (kept, g))
    same(jax.grad(lambda a: kept(a, B).sum())(A), A * 7)


def test_with_vjp_checks_what_it_gets() -> None:
    from nki.interop.jax import with_vjp

    with pytest.raises(LaunchError, match="no parameter factor") as caught:
        with_vjp(kernels.scaled, None, lambda *_: (), constants=("factor",))
    assert caught.value.code == "jax.vjp"
    with pytest.raises(LaunchError, match="decorate"):
        with_vjp(kernels.scaled.func, None, lambda *_: ())  # type: ignore[arg-type]


def test_inputs_that_the_kernel_writes_are_returned_or_refused() -> None:
    before = A + 0
    same(jax.jit(kernels.in_place)(before), A * 2)
    same(before, A)
    with pytest.raises(LaunchError) as caught:
        jax.jit(kernels.lost)(A)
    assert caught.value.code == "argument.immutable"
    frame = caught.value.location.frame
    assert frame is not None and frame.file == __file__
    with pytest.raises(LaunchError, match=r"argument\.immutable"):
        jax.jit(lambda a: kernels.add(a, kernels.lost(X.copy() + a)))(A)


def test_two_cores_and_eager_kernels() -> None:
    same(jax.jit(kernels.add[2])(A, B), A + B)
    eager = nki.simulate(kernels.add)
    same(jax.jit(lambda a, b: eager(a, b) + 1)(A, B), A + B + 1)
    assert eager.report is not None and eager.report.mode == "eager (jax.ffi)"
    with environment(NKI_SIMULATOR="1"):
        same(jax.jit(lambda a, b: kernels.add(a, b) + 2)(A, B), A + B + 2)


def test_concrete_arrays_run_at_once() -> None:
    with jax.disable_jit():
        same(jax.jit(kernels.add)(A, B), A + B)
    assert kernels.add.report is not None and kernels.add.report.mode == "compiled"


def test_the_report_says_how_jax_called() -> None:
    kernel = copy.copy(kernels.add)
    run = jax.jit(lambda a: kernel(a, a) - 1)
    run.lower(A)
    assert kernel.report is not None and "not run yet" in kernel.report.provenance()
    run(A).block_until_ready()
    assert kernel.report.provenance().startswith("compiled (jax.ffi)")
    assert "not run yet" not in kernel.report.provenance()


def test_sharded_arrays_of_one_device_and_donated_ones() -> None:
    donated = A + 0
    same(jax.jit(kernels.in_place, donate_argnums=0)(donated), A * 2)
