"""Errors of kernels in JAX programs: at the caller, with code and caret, and the process goes on."""

from __future__ import annotations

import ctypes
import gc
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nki.core.errors import ExecutionError, NkiError, TensorError
from tests.interop.jax import kernels
from tests.interop.jax.process import run

jax = pytest.importorskip("jax")
jnp = jax.numpy

A = jnp.arange(32, dtype=jnp.float32).reshape(4, 8)
GOOD = jnp.array([[3], [0], [2], [1]], jnp.int32)
FAR = jnp.array([[3], [0], [9], [1]], jnp.int32)
XLA_ERRORS = (ValueError, RuntimeError)


def fresh(kernel: Any) -> Callable[..., Any]:
    return jax.jit(lambda *arrays: kernel(*arrays) + 0)


def test_a_rejected_kernel_raises_while_jax_traces() -> None:
    with pytest.raises(TensorError) as caught:
        jax.jit(lambda a: kernels.too_wide(a) * 2)(A)
    text = str(caught.value)
    assert "error[tensor.partitions]" in text and "^^^" in text and "kernels.py" in text


def test_an_error_at_run_time_reaches_the_caller_with_code_and_caret() -> None:
    function = fresh(kernels.chosen)
    with pytest.raises(XLA_ERRORS) as caught:
        function(A, FAR).block_until_ready()
    text = str(caught.value)
    assert "error[access.dynamic-out-of-bounds]: row 2 has index 9, but a has 4 rows" in text
    assert "nisa.dma_copy(dst=x, src=a.vector_select(0, index))" in text and "^^^" in text
    np.testing.assert_array_equal(function(A, GOOD), A[GOOD[:, 0]])


def test_the_kernels_own_error_is_behind_that_of_xla() -> None:
    from nki.interop.jax import error_behind, kernel_errors

    function = fresh(kernels.chosen)
    with pytest.raises(ExecutionError) as caught, kernel_errors():
        function(A, FAR).block_until_ready()
    assert caught.value.code == "access.dynamic-out-of-bounds"
    frame = caught.value.location.frame
    assert frame is not None and Path(frame.file).name == "kernels.py"
    assert error_behind(ValueError("[nki failure 123456789]")) is None
    with pytest.raises(ZeroDivisionError), kernel_errors():
        raise ZeroDivisionError
    with pytest.raises(ValueError, match="another"), kernel_errors():
        raise ValueError("another")


def test_vmap_outside_of_jit_raises_the_kernels_own_error() -> None:
    with pytest.raises(ExecutionError, match="row 2 has index 9"):
        jax.vmap(kernels.chosen, in_axes=(None, 0))(A, jnp.stack([GOOD, FAR]))


@pytest.mark.parametrize("problem", [KeyError("key"), SystemExit(3), KeyboardInterrupt(), MemoryError()])
def test_no_exception_passes_the_handler(problem: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    from nki.interop.jax.callee import Callee

    def fail(self: Callee, arrays: Any, way: str) -> None:
        raise problem

    function = fresh(kernels.add)
    function(A, A)
    monkeypatch.setattr(Callee, "run", fail)
    with pytest.raises(XLA_ERRORS, match=type(problem).__name__):
        function(A, A).block_until_ready()


def test_an_error_that_cannot_be_printed_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from nki.interop.jax.callee import Callee

    class Mute(NkiError):
        def __str__(self) -> str:
            raise KeyError("no text")

    def fail(self: Callee, arrays: Any, way: str) -> None:
        raise Mute("a.b", "c")

    function = fresh(kernels.add)
    function(A, A)
    monkeypatch.setattr(Callee, "run", fail)
    with pytest.raises(XLA_ERRORS, match="Mute, which cannot be printed"):
        function(A, A).block_until_ready()


def test_a_call_to_a_kernel_that_is_gone_is_an_error() -> None:
    from nki.interop.jax.callee import CALLEES

    function = fresh(kernels.add)
    function(A, A)
    kept = dict(CALLEES._found)
    CALLEES._found.clear()
    try:
        with pytest.raises(XLA_ERRORS, match=r"jax\.unknown-kernel"):
            function(A, A).block_until_ready()
    finally:
        CALLEES._found.update(kept)


def test_custom_calls_that_others_made_are_refused() -> None:
    from nki.interop.jax import TARGET

    shape = jax.ShapeDtypeStruct(A.shape, A.dtype)
    foreign = jax.jit(lambda a: jax.ffi.ffi_call(TARGET, shape)(a, func_name="x"))
    with pytest.raises(XLA_ERRORS, match=r"jax\.operands.*lacks the attribute klir_binary"):
        foreign(A).block_until_ready()
    many = {name: np.int64(1) for name in ("a", "b", "c", "d", "klir_binary")}
    with pytest.raises(XLA_ERRORS, match=r"jax\.operands"):
        jax.jit(lambda a: jax.ffi.ffi_call(TARGET, shape)(a, **many))(A).block_until_ready()


def test_buffers_of_another_shape_or_dtype_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that refers to a kernel for other operands must not read beyond its own."""
    from nki.interop.common.backend_config import BackendConfig

    function = fresh(kernels.copied)
    function(A)
    (key,) = re.findall(r'binary = "([0-9a-f]{64})"', function.lower(A).as_text())
    encoded = BackendConfig.attributes
    for other in (A[:2], A.astype(jnp.float16)):
        with monkeypatch.context() as patch:
            patch.setattr(BackendConfig, "attributes", lambda config, ir: encoded(replace(config, binary=key), ir))
            wrong = fresh(kernels.copied)
            with pytest.raises(XLA_ERRORS, match=r"jax\.operands.*compiled for \(4, 8\) and 11"):
                wrong(other).block_until_ready()


@pytest.mark.slow
def test_executables_keep_their_kernels_and_nothing_else_does() -> None:
    from nki.interop.jax.callee import CALLEES

    gc.collect()
    jax.clear_caches()
    gc.collect()
    CALLEES.release(0.0)
    before = len(CALLEES)
    function = fresh(kernels.scaled)
    compiled = function.lower(A).compile()
    del function
    jax.clear_caches()
    gc.collect()
    assert len(CALLEES) == before + 1
    np.testing.assert_array_equal(compiled(A), A * 3)
    del compiled
    jax.clear_caches()
    gc.collect()
    CALLEES.release(0.0)
    assert len(CALLEES) == before


def test_a_kernel_outlives_its_executable_for_calls_that_are_on_their_way() -> None:
    from nki.interop.jax.callee import CALLEES

    compiled = fresh(kernels.copied).lower(A).compile()
    (key,) = re.findall(r'binary = "([0-9a-f]{64})"', compiled.as_text())
    CALLEES.release(0.0)
    del compiled
    jax.clear_caches()
    gc.collect()
    CALLEES.release()
    assert CALLEES.find(key) is not None
    CALLEES.release(0.0)
    assert CALLEES.find(key) is None


def test_failures_keep_no_kernel_alive() -> None:
    from nki.interop.jax.callee import CALLEES

    jax.clear_caches()
    gc.collect()
    CALLEES.release(0.0)
    before = len(CALLEES)
    with pytest.raises(XLA_ERRORS):
        fresh(kernels.chosen)(A, FAR).block_until_ready()
    jax.clear_caches()
    gc.collect()
    CALLEES.release(0.0)
    assert len(CALLEES) == before


def test_many_threads_call_at_once() -> None:
    functions = [jax.jit(lambda a, b, k=k: kernels.add(a, b) * k) for k in range(4)]
    wrong: list[Any] = []

    def work(k: int) -> None:
        for i in range(20):
            found = functions[k](A, A * i)
            if not np.array_equal(found, A * (1 + i) * k):
                wrong.append((k, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("version", "size", "words"),
    [(None, 10**6, "does not tell"), ((0, 4), 10**6, r"version 0\.4, known here is 0\.3"), ((0, 3), 8, "8 bytes")],
)
def test_an_interface_that_is_not_known_is_not_used(version: Any, size: int, words: str) -> None:
    from nki.interop.jax.ffi_handler import problem_with

    assert re.search(words, problem_with(version, size))


def test_the_version_is_the_one_that_xla_reports() -> None:
    from nki.interop.jax import ffi_structures as xla
    from nki.interop.jax.ffi_handler import HANDSHAKE, declared_version, problem_with

    fresh(kernels.add)(A, A).block_until_ready()
    assert declared_version() == HANDSHAKE.version
    assert problem_with(declared_version(), ctypes.sizeof(xla.CallFrame)) == HANDSHAKE.problem == ""


UNKNOWN_VERSION = """
import pathlib, tempfile
import jax, jax.numpy as jnp, nki
headers = tempfile.TemporaryDirectory()
header = pathlib.Path(headers.name, "xla/ffi/api/c_api.h")
header.parent.mkdir(parents=True)
header.write_text("#define XLA_FFI_API_MAJOR 9\\n#define XLA_FFI_API_MINOR 9\\n")
jax.ffi.include_dir = lambda: headers.name
from tests.interop.jax import kernels as kernels
a = jnp.ones((4, 8))
print(float(kernels.add(a, a).sum()))
try:
    jax.jit(lambda a: kernels.add(a, a))(a)
except nki.errors.LaunchError as error:
    print(error.code, error.message, error.location.frame.line)
"""


def test_another_version_of_xla_is_refused() -> None:
    found = run(UNKNOWN_VERSION)
    assert found.startswith(
        "64.0\njax.interface XLA cannot call add: XLA's foreign function interface is version 9.9"
    ), found
    assert found.endswith("known here is 0.3 13\n"), found


LIVES = """
import jax, jax.numpy as jnp, numpy as np
from tests.interop.jax import kernels as kernels
a = jnp.ones((4, 8)); far = jnp.full((4, 1), 9, jnp.int32)
for function, arrays in ((kernels.too_wide, (a,)), (kernels.chosen, (a, far))):
    try:
        jax.jit(lambda *arrays: function(*arrays) * 2)(*arrays).block_until_ready()
    except Exception as error:
        print(str(error).split("error[")[1].split("]")[0])
print(float(jax.jit(kernels.add)(a, a).sum()))
slow = jax.jit(lambda a: jax.lax.scan(lambda c, _: (kernels.add(c, a), None), a, None, length=100)[0])
slow(a)  # nobody waits for it
"""


def test_the_process_lives_and_ends_well() -> None:
    assert run(LIVES) == "tensor.partitions\naccess.dynamic-out-of-bounds\n64.0\n"
