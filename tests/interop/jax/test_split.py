"""``compile(function, fallback="host")``: what has no kernel runs in JAX on the CPU, and says so; compared with JAX."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nki
import nki.language as nl
from nki.core.errors import LaunchError, NkiError
from nki.graph.errors import GraphError
from nki.interop.jax import CompiledFunction, compile, forget, provenance, split
from nki.report import NkiWarning
from nki.runtime.spans import recording

HERE = Path(__file__)


@nki.jit
def doubled(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, value=nl.add(tile, tile))
    return out


def matrix(seed: int = 0, size: int = 6) -> np.ndarray:
    """Symmetric and positive definite."""
    root = np.random.default_rng(seed).standard_normal((size, size))
    return (root @ root.T / size + np.eye(size)).astype(np.float32)


def solved(x):
    y = jnp.tanh(x) + 2 * jnp.eye(6)
    root = jnp.linalg.cholesky(y @ y.T)
    z = jax.scipy.linalg.solve_triangular(root, jnp.exp(x), lower=True)
    return {"root": root * 2, "z": z.sum(0), "y": y}


def agrees(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[CompiledFunction, list[NkiWarning]]:
    """Compile and call a function, compare it with JAX; the compiled function, and the warnings."""
    made = compile(function, fallback="host", **options)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = made(*args)
    wanted = jax.jit(function)(*args)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert isinstance(one, jax.Array) and one.dtype == two.dtype
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    return made, [each.message for each in told if isinstance(each.message, NkiWarning)]


def hosted(made: CompiledFunction) -> set[str]:
    """Names of the operations that the reports list."""
    return {name for program in made.executables() for name, _ in program.report.fallbacks}


def test_operations_between_programs_of_the_device_are_told() -> None:
    forget()
    with recording() as recorded:
        made, told = agrees(solved, matrix())
    assert provenance() == {"jax.compile solved: cholesky": 1, "jax.compile solved: triangular_solve": 1}
    assert [each.name for each in recorded.spans if each.category == "host"] == [
        "host cholesky",
        "host triangular_solve",
    ]
    first = solved.__code__.co_firstlineno
    for program in made.executables():
        lines = {name: where.rpartition(":")[0] for name, where in program.report.fallbacks}
        assert lines == {"cholesky": f"{HERE}:{first + 2}", "triangular_solve": f"{HERE}:{first + 3}"}
        assert "cholesky at" in str(program.report) and program.report.kernels
    assert [each.finding.code for each in told] == ["jax.host"] * 2
    assert "cholesky runs on the host" in told[0].finding.message
    assert told[0].finding.location.frame.line == first + 2


def test_a_call_is_counted_each_time_and_compiled_once() -> None:
    made, _ = agrees(solved, matrix())
    programs = made.executables()
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = made(matrix(1))
    np.testing.assert_allclose(found["z"], solved(matrix(1))["z"], rtol=1e-4, atol=1e-5)
    assert made.executables() == programs and set(provenance().values()) == {1}


def test_without_the_option_it_is_an_error_at_the_line() -> None:
    with pytest.raises(GraphError) as caught:
        compile(solved)(matrix())
    assert caught.value.code == "graph.unsupported" and "cholesky(tensor<6x6xfloat32>)" in caught.value.message
    assert caught.value.location.frame.line == solved.__code__.co_firstlineno + 2


def test_nothing_is_left_to_the_host_that_can_be_compiled() -> None:
    forget()
    made, told = agrees(lambda x: jnp.tanh(x) @ x, matrix())
    assert not told and not provenance() and made.executable(matrix()).report.fallbacks == ()


def test_complex_numbers_go_from_the_host_to_programs_and_back() -> None:
    def spectrum(x):
        long = jnp.tile(x * 2, (1, 1000))  # more points than a transform by a matrix may have
        return jnp.tanh(jnp.abs(jnp.fft.ifft(jnp.fft.fft(long) * 1j))[:, :6]) + x

    made, _ = agrees(spectrum, matrix())
    assert len(made.executables()) == 3
    assert hosted(made) == {"fft"}


def test_complex_arguments_and_results() -> None:
    made, _ = agrees(lambda z, x: (z * 2, z.real + 1, jnp.sin(x)), matrix().astype(np.complex64), matrix())
    assert made.executable(matrix().astype(np.complex64), matrix()).report.fallbacks == ()


def test_a_derivative() -> None:
    def loss(x):
        return jnp.log(jnp.diag(jnp.linalg.cholesky(jnp.tanh(x) @ x.T + 9 * jnp.eye(6)))).sum()

    made, _ = agrees(jax.value_and_grad(loss), matrix())
    assert hosted(made) == {"cholesky", "triangular_solve"}
    agrees(jax.grad(jax.checkpoint(loss)), matrix())


@jax.custom_vjp
def _halved(x):
    return jnp.linalg.cholesky(x) / 2


_halved.defvjp(lambda x: (_halved(x), x), lambda x, g: (g * jnp.sin(x),))


def test_functions_that_are_called_are_cut_where_they_need_it() -> None:
    def model(x):
        return _halved(x) + jax.jit(lambda y: jax.nn.relu(jnp.linalg.cholesky(y)))(x + jnp.eye(6))

    made, _ = agrees(model, matrix())
    assert hosted(made) == {"cholesky"}
    lines = {where.rpartition(":")[0] for _, where in made.executables()[0].report.fallbacks}
    assert len(lines) == 2
    agrees(jax.grad(lambda x: _halved(x).sum()), matrix())


def test_a_function_of_jax_that_is_called_twice_has_two_lines() -> None:
    def twice(x):
        one = jnp.linalg.cholesky(x)
        return one + jnp.linalg.cholesky(x + jnp.eye(6))

    made, _ = agrees(twice, matrix())
    first = twice.__code__.co_firstlineno
    lines = [int(where.split(":")[-2]) for _, where in made.executables()[0].report.fallbacks]
    assert lines == [first + 1, first + 2]


def test_a_loop_with_such_an_operation_runs_on_the_host_as_a_whole() -> None:
    def looped(x):
        step = lambda c, _: (jnp.linalg.cholesky(c @ c.T + jnp.eye(6)), c.sum())  # noqa: E731
        last, sums = jax.lax.scan(step, x * 2, None, length=3)
        return jnp.tanh(last), sums + 1

    forget()
    made, (told,) = agrees(looped, matrix())
    assert hosted(made) == {"scan"} and provenance() == {"jax.compile looped: scan": 1}
    assert told.finding.message.startswith("looped: scan runs on the host: cholesky(")
    assert told.finding.location.frame.line == looped.__code__.co_firstlineno + 1


def test_a_branch_and_a_while_loop() -> None:
    def branched(x):
        y = jax.lax.cond(x.sum() > 0, jnp.linalg.cholesky, lambda x: x, x + 1)
        z = jax.lax.while_loop(lambda v: v.sum() < 99, lambda v: v * 2, jnp.abs(y))
        return z, jax.lax.while_loop(lambda v: v.sum() > 1, lambda v: jnp.linalg.cholesky(v) / 9, x)

    made, told = agrees(branched, matrix())
    assert [name for name, _ in made.executables()[0].report.fallbacks] == ["cond", "while"]
    assert len(told) == 2


def test_what_jax_itself_cannot_lower_for_a_device() -> None:
    def model(x):
        values = jnp.linalg.eigvalsh(x @ x)
        called = jax.pure_callback(np.cos, jax.ShapeDtypeStruct(values.shape, values.dtype), values)
        return jnp.exp(-values), called * 2

    made, told = agrees(model, matrix())
    assert {"eigh", "pure_callback"} <= hosted(made)
    assert all(each.finding.location.frame.file == str(HERE) for each in told)


def test_effects_keep_their_order() -> None:
    lines: list[str] = []

    def model(x):
        root = jnp.linalg.cholesky(x)
        jax.debug.callback(lambda v: lines.append(f"first {v.shape}"), jnp.tanh(root), ordered=True)
        jax.debug.callback(lambda v: lines.append(f"second {v.shape}"), x[0], ordered=True)
        return root + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(model, fallback="host")(matrix())
    jax.effects_barrier()
    assert lines == ["first (6, 6)", "second (6,)"]


def test_random_keys_between_parts() -> None:
    def model(seed, x):
        one, two = jax.random.split(jax.random.wrap_key_data(seed))
        root = jnp.linalg.cholesky(x)
        return root, jax.random.bits(one, (4,)), jax.random.bits(jax.random.fold_in(two, root[0, 0] > 0), (4,))

    made, _ = agrees(model, jax.random.PRNGKey(3), matrix())
    assert hosted(made) == {"cholesky"}


def test_kernels_beside_and_inside_of_what_runs_on_the_host() -> None:
    def model(x):
        return doubled(jnp.linalg.cholesky(doubled(x))) + 1

    made, _ = agrees(model, matrix())
    assert hosted(made) == {"cholesky"}
    assert [program.report.kernels["call"] for program in made.executables()] == [1, 1]

    def looped(x):
        return jax.lax.fori_loop(0, 2, lambda _, v: doubled(jnp.linalg.cholesky(v)), x) * 3

    made, _ = agrees(looped, matrix())
    assert hosted(made) == {"scan"}


def test_inside_of_jit_and_vmap() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = compile(solved, fallback="host")
        found = jax.jit(lambda x: made(x)["z"] + 1)(matrix())
        np.testing.assert_allclose(found, solved(matrix())["z"] + 1, rtol=1e-4, atol=1e-5)
        assert "host_cholesky" in jax.jit(lambda x: made(x)["z"]).lower(matrix()).as_text()
        both = np.stack([matrix(), matrix(1)])
        np.testing.assert_allclose(jax.vmap(made)(both)["root"], jax.vmap(solved)(both)["root"], rtol=1e-4, atol=1e-5)
        constant = jax.jit(lambda y: made(matrix())["z"] * y)(2.0)
        np.testing.assert_allclose(constant, solved(matrix())["z"] * 2, rtol=1e-4, atol=1e-5)


def test_static_and_donated_arguments_and_64_bits() -> None:
    x = jnp.asarray(matrix())
    made = compile(lambda x, n: jnp.linalg.cholesky(x) * n, fallback="host", static_argnums=1, donate_argnums=0)
    wanted = jnp.linalg.cholesky(x) * 3
    with pytest.warns(NkiWarning, match=r"jax\.host"):
        np.testing.assert_allclose(made(x, 3), wanted, rtol=1e-5, atol=1e-6)
    assert x.is_deleted()
    with jax.enable_x64(True):
        agrees(lambda x, n: (jnp.linalg.cholesky(x) * 2, n + 1), matrix().astype(np.float64), np.arange(3))


def test_constants_and_arguments_as_results() -> None:
    table = jnp.asarray(matrix(2))
    agrees(lambda x, unused: (x, jnp.linalg.cholesky(x) @ table, table, 3.0), matrix(), np.ones(2))


def test_a_whole_function_on_the_host_has_no_program() -> None:
    made, _ = agrees(lambda x: jax.lax.linalg.svd(x, compute_uv=False), matrix())
    assert made.executables() == []
    with pytest.raises(LaunchError, match=r"jax\.parts.*0 programs"):
        made.executable(matrix())


def test_what_is_refused_when_its_kernel_is_made() -> None:
    def model(x):
        y = x * 2
        return jnp.sort(y) - 1

    long = np.random.default_rng(0).standard_normal(40_000).astype(np.float32)
    with pytest.raises(NkiError, match="does not fit into a partition"):
        compile(model)(long)
    made, (told,) = agrees(model, long)
    assert hosted(made) == {"sort"} and len(made.executables()) == 2
    assert told.finding.location.frame.line == model.__code__.co_firstlineno + 2


def test_a_function_of_jax_is_at_the_line_that_calls_it() -> None:
    long = np.random.default_rng(0).standard_normal(40_000).astype(np.float32)
    made, (told,) = agrees(jnp.sort, long)
    assert made.executables() == [] and told.finding.message.startswith("sort: sort runs on the host: sort(")
    assert told.finding.location.frame.file == __file__


def test_an_error_that_no_line_explains_leaves_the_whole_function_to_the_host(monkeypatch) -> None:
    monkeypatch.setattr(split, "at_line", lambda equations, error: {})
    long = np.random.default_rng(0).standard_normal(40_000).astype(np.float32)
    made, (told,) = agrees(lambda x: jnp.sort(x * 2) - 1, long)
    assert made.executables() == [] and told.finding.message.startswith("<lambda> runs on the host: sort(")


def test_dumps_and_names_of_the_parts(tmp_path: Path) -> None:
    made, _ = agrees(lambda x: jnp.linalg.cholesky(x * 2) + 1, matrix(), dump_dir=str(tmp_path))
    assert [program.name for program in made.executables()] == ["<lambda>.part_0", "<lambda>.part_2"]
    assert sorted(folder.name for folder in tmp_path.iterdir()) == [
        "_lambda__0",
        "_lambda__0.part_0",
        "_lambda__0.part_2",
    ]
    assert all((folder / "model.neff").is_file() for folder in tmp_path.glob("*.part_*"))


def test_what_is_wrong_with_options_is_an_error() -> None:
    with pytest.raises(LaunchError, match=r"launch\.lnc"):
        compile(solved, fallback="host", target="trn1", lnc=2)(matrix())
    with pytest.raises(LaunchError, match=r"jax\.compile-options.*'gpu'"):
        compile(solved, fallback="gpu")
