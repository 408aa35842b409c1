"""``nki.interop.jax.compile``: whole functions, trees, kernels in them, donated arguments, and use inside of jit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import nki
import nki.interop.jax
import nki.isa as nisa
import nki.jax
import nki.language as nl
from nki.core.errors import ArgumentError, LaunchError
from nki.graph.errors import GraphError
from nki.interop.jax import compile


@nki.jit
def add(a, b):
    left = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(b.shape, b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.add)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=left)
    return out


def model(p, x, unused=None):
    return {"y": jnp.tanh(x * p["scale"]) + p["shift"], "n": jax.nn.softmax(x, -1)}


P = {"scale": jnp.arange(8.0), "shift": np.float32(0.5)}
X = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)


def test_trees_of_jax_and_numpy_arrays() -> None:
    found, wanted = compile(model)(P, X), jax.jit(model)(P, X)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert isinstance(one, jax.Array)
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)


def test_the_short_name() -> None:
    assert nki.jax.compile is nki.interop.jax.compile
    assert set(nki.jax.__all__) == set(nki.interop.jax.__all__)
    assert np.array_equal(nki.jax.compile(lambda x: x + 1)(np.ones(4, np.float32)), np.full(4, 2, np.float32))


def test_one_program_for_each_set_of_shapes() -> None:
    function = compile(model)
    function(P, X)
    function(P, X + 1)
    assert len(function.executables()) == 1
    function(P, X[:3])
    assert [executable.outputs[0].shape[0] for executable in function.executables()] == [6, 3]


def test_arguments_that_nothing_reads_are_left_out() -> None:
    function = compile(model)
    executable = function.executable(P, X, jnp.ones(3))
    assert len(executable.arguments) == 3
    np.testing.assert_allclose(function(P, X, jnp.ones(3))["n"], jax.nn.softmax(X, -1), rtol=1e-5, atol=1e-6)


def test_shapes_are_enough_to_compile() -> None:
    executable = compile(model).executable(P, jax.ShapeDtypeStruct((4, 8), jnp.float32))
    assert executable.report.model == "model"


def test_inside_of_jit_and_vmap() -> None:
    function = compile(lambda x: jnp.exp(x) * 2)
    np.testing.assert_allclose(jax.jit(lambda x: function(x) + 1)(X), np.exp(X) * 2 + 1, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(function)(X), np.exp(X) * 2, rtol=1e-5)


def test_a_gradient_is_compiled_like_any_function() -> None:
    loss = lambda x: (jax.nn.softmax(x, -1) ** 2).sum()  # noqa: E731
    np.testing.assert_allclose(compile(jax.grad(loss))(X), jax.grad(loss)(X), rtol=1e-4, atol=1e-6)


def test_kernels_are_linked_into_the_program() -> None:
    function = compile(lambda a, b: add(a * 2, b) - 1)
    a, b = jnp.full((128, 4), 3.0), jnp.ones((128, 4))
    assert (function(a, b) == 6).all()
    assert function.executables()[0].report.kernels["call"] == 1


def test_static_arguments_are_constants() -> None:
    function = compile(lambda x, power, name="": x**power if name else x, static_argnums=1, static_argnames="name")
    np.testing.assert_allclose(function(X, 2, name="a"), X**2, rtol=1e-6)
    np.testing.assert_allclose(function(X, 2), X)
    assert len(function.executables()) == 2


def test_donated_arguments_are_gone() -> None:
    x = jnp.ones((4, 8))
    function = compile(lambda x: x + 1, donate_argnums=0)
    assert (function(x) == 2).all()
    assert x.is_deleted()
    assert function.executables()[0].aliases == {0: 0}


def test_decorated_with_options(tmp_path) -> None:
    @compile(dump_dir=str(tmp_path))
    def step(x):
        return x + 1

    assert (step(X) == X + 1).all()
    assert (tmp_path / "step_0" / "model.neff").is_file()


def test_64_bit_integers_that_fit(tmp_path) -> None:
    with jax.enable_x64(True):
        function = compile(lambda x: x + 1)
        found = function(np.array([1, 2], np.int64))
        assert found.dtype == np.int64
        assert found.tolist() == [2, 3]
        with pytest.raises(ArgumentError, match=r"graph\.range"):
            function(np.array([1 << 40, 2], np.int64))


def _scattered(operand: tuple[int, ...], indices: tuple[int, ...], updates: tuple[int, ...]):
    window = tuple(range(len(indices) - 1, len(updates)))
    numbers = jax.lax.ScatterDimensionNumbers(window, (), ())
    places = jnp.zeros(indices, jnp.int32)
    x = jnp.arange(float(np.prod(operand))).reshape(operand)
    return (lambda x, y: jax.lax.scatter_add(x, places, y, numbers)), x, jnp.ones(updates)


@pytest.mark.parametrize(
    "shapes", [((2, 3), (0,), (2, 3)), ((2, 3), (0,), (1, 2)), ((2, 3), (4, 0), (4, 2, 3)), ((), (0,), ())]
)
def test_scatters_whose_indices_have_no_numbers_write_at_the_origin(shapes) -> None:
    function, *arrays = _scattered(*shapes)
    np.testing.assert_array_equal(compile(function)(*arrays), jax.jit(function)(*arrays))


def test_factors_of_a_matrix_whose_steps_are_such_scatters() -> None:
    x = X[:, :6] @ X[:, :6].T + np.eye(6, dtype=np.float32)
    for one, two in zip(compile(jax.lax.linalg.lu)(x), jax.lax.linalg.lu(x), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def noisy(key, x, *, scale=1.0):
    key, other = jax.random.split(key)
    return {"key": key, "keys": jax.random.split(other, 3), "y": x + scale * jax.random.normal(other, x.shape)}


def test_keys_are_arguments_and_results() -> None:
    key = jax.random.key(3)
    function = compile(noisy)
    for found, wanted in (
        (function(key, X), noisy(key, X)),
        (jax.jit(function)(key, X), noisy(key, X)),
    ):
        assert found["key"].dtype == wanted["key"].dtype and found["keys"].shape == (3,)
        for name in ("key", "keys"):
            np.testing.assert_array_equal(jax.random.key_data(found[name]), jax.random.key_data(wanted[name]))
        np.testing.assert_allclose(found["y"], wanted["y"], atol=1e-6)
    function(jax.random.key(4), X)
    function(jax.random.key(4, impl="rbg"), X)
    assert len(function.executables()) == 2


def test_keys_go_to_the_host_and_come_back() -> None:
    def whitened(key):
        key, other = jax.random.split(key)
        matrix = jax.random.normal(other, (4, 4))
        root = jnp.linalg.cholesky(matrix @ matrix.T + jnp.eye(4))
        return key, jnp.tanh(root)

    with pytest.warns(match="cholesky"):
        key, found = compile(whitened, fallback="host")(jax.random.key(0))
    other, wanted = whitened(jax.random.key(0))
    np.testing.assert_array_equal(jax.random.key_data(key), jax.random.key_data(other))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_places_on_one_device_change_nothing() -> None:
    place = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("x",)), PartitionSpec("x"))

    def placed(x):
        return jax.lax.scan(lambda c, _: (jax.lax.with_sharding_constraint(c * 2, place), None), x, None, length=3)[0]

    np.testing.assert_array_equal(compile(placed)(jax.device_put(X, place)), X * 8)


def test_what_cannot_be_compiled() -> None:
    with pytest.raises(LaunchError, match=r"jax\.compile"):
        compile(3)
    with pytest.raises(GraphError) as caught:
        compile(lambda x: jnp.linalg.cholesky(x @ x.T))(X)
    assert caught.value.location.frame is not None


def test_programs_that_were_not_used_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nki.interop.jax.compiled_function._MOST_KEPT", 2)
    made = nki.interop.jax.compile(lambda x: x + 1)
    first, *_ = entries = [made.entry(jnp.zeros(n)) for n in (1, 2)]
    assert made.entry(jnp.zeros(1)) is first
    made.entry(jnp.zeros(3))
    assert made.entry(jnp.zeros(1)) is first and made.entry(jnp.zeros(2)) is not entries[1]
    assert len(made.executables()) == 2
