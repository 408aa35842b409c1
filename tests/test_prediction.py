"""``nki.predict``: the time that a profile has, from shapes alone."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from benchmarks.kernels.products import matmul
from torch._subclasses.fake_tensor import FakeTensorMode

import nki
import nki.isa as nisa
import nki.language as nl
from nki.compiler import CompileConfig
from nki.core.errors import NkiError
from nki.report import NkiWarning
from tests.profiling.support import LOOPING, PIPELINE, looping, pipeline
from tests.profiling.test_invariants import gpsimd_too, halves
from tests.tune.kernels import scale


@pytest.fixture(autouse=True)
def fixed_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def spec(array: Any) -> Any:
    return nki.ShapeDtype(array.shape, array.dtype) if isinstance(array, np.ndarray) else array


def until(a: Any, n: Any) -> Any:
    """A loop whose trips only the data knows, and a prediction that says so."""
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    count = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=count, src=n)
    register = nisa.register_alloc()
    nisa.register_load(dst=register, src=count)
    for _ in nl.dynamic_range(register):
        nisa.activation(dst=tile, op=nl.exp, data=tile)
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


A = np.zeros((128, 2048), np.float32)
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int | None]] = {
    "pipeline": (pipeline, PIPELINE, None),
    "loops": (looping, LOOPING, None),
    "cores that meet": (halves, (np.zeros((2, 128, 512), np.float32),), 2),
    "cores that do not": (scale, (A, 512), 2),
    "engines that share memory": (gpsimd_too, (np.zeros((128, 512), np.float32),), None),
    "a product": (matmul, (np.zeros((512, 256), nl.bfloat16), np.zeros((512, 1024), nl.bfloat16)), None),
    "small tiles": (scale, (A, 128), None),
    "large tiles": (scale, (A, 1024), None),
    "unknown trips": (until, (np.zeros((128, 512), np.float32), np.zeros((1, 1), np.int32)), None),
}


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", CALLS)
def test_it_is_what_the_profile_says(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, arguments, cores = CALLS[name]
    if cores and target == "trn1":
        with pytest.raises(NkiError, match=r"launch\.lnc"):
            nki.predict(kernel, target=target)[cores](*map(spec, arguments))
        return
    predictor, profiler = nki.predict(kernel, target=target), nki.profile(kernel)
    found = (predictor[cores] if cores else predictor)(*map(spec, arguments))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    about = (profiler[cores] if cores else profiler)(*arguments).about
    slowest = max(about.totals, key=lambda core: core["makespan_ns"])
    assert found.ns == about.makespan_ns
    assert found.cores_ns == tuple(core["makespan_ns"] for core in about.totals)
    assert found.busy_ns == slowest["units"]
    assert (found.target, found.kernel, found.launch_ns) == (target, about.kernel, about.launch_ns)
    assert (found.bound_by, found.instructions) == (slowest["bound_by"], slowest["instructions"])
    assert found.dma_bytes == pytest.approx(slowest["dma_bytes"])
    assert found.assumed == any(core["assumed_loops"] for core in about.totals) == (name == "unknown trips")
    assert f"{found.ns / 1000:.2f} µs, bound by {found.bound_by}" in str(found)
    assert found.bound_by in found._repr_html_()


def test_everything_that_stands_for_an_array_will_do() -> None:
    with FakeTensorMode():
        fake = torch.empty(128, 512)
    shape = (128, 512)
    stand = [
        np.zeros(shape, np.float32),
        nki.ShapeDtype(shape, nl.float32),
        nki.ShapeDtype(shape, "float32"),
        nki.ShapeDtype(shape, torch.float32),
        torch.empty(shape, device="meta"),
        fake,
        jax.ShapeDtypeStruct(shape, jnp.float32),
        jnp.zeros(shape),
    ]
    found = [nki.predict(scale)(each, tile=256) for each in stand]
    assert all(each == found[0] for each in found)
    assert found[0] != nki.predict(scale)(nki.ShapeDtype(shape, nl.bfloat16), tile=256)


def test_arrays_in_trees_are_found() -> None:
    @dataclasses.dataclass
    class Pair:
        a: Any
        scales: list[Any]

    def kernel(pair: Any) -> Any:
        return scale(pair.a), scale(pair.scales[0])

    a = nki.ShapeDtype((128, 512), nl.float32)
    expected = nki.profile(kernel)(Pair(A[:, :512].copy(), [A[:, :512].copy()])).makespan_ns
    assert nki.predict(kernel)(Pair(a, [a])).ns != 0.0
    b = nki.ShapeDtype((128, 512), nl.float32)
    assert nki.predict(kernel)(Pair(a, [b])).ns == expected


def test_settings_of_the_kernel_count() -> None:
    def kernel(a: Any) -> Any:
        unused = nl.ndarray((128, 2048), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=unused, src=a)
        return scale(a, 2048)

    less = nki.jit(kernel, compile_config=CompileConfig(dead_code_elim=True))
    assert nki.predict(less)(spec(A)).ns == nki.profile(less)(A).makespan_ns < nki.predict(kernel)(spec(A)).ns


def too_large(a: Any) -> Any:
    part = nl.ndarray((128, 1 << 20), dtype=a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=part, value=0.0)
    return a


def too_much(a: Any) -> Any:
    """All tiles are needed for the sum, and again after it."""
    parts = [nl.ndarray((128, 2048), dtype=a.dtype, buffer=nl.sbuf) for _ in range(40)]
    total = nl.ndarray((128, 2048), dtype=a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for number, part in enumerate(parts):
        nisa.memset(dst=part, value=float(number))
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    for part in parts:
        nisa.tensor_tensor(dst=part, data1=total, data2=part, op=nl.multiply)
        nisa.dma_copy(dst=a, src=part)
    return a


def out_of_bounds(a: Any) -> Any:
    return scale(a, 3000)


def raises(a: Any) -> Any:
    raise ZeroDivisionError("no such tile")


@pytest.mark.parametrize("kernel", [too_large, too_much, out_of_bounds, raises])
def test_what_a_call_refuses_is_refused_with_the_same_error(kernel: Any) -> None:
    with pytest.raises(Exception) as called:
        nki.jit(kernel)(A.copy())
    with pytest.raises(Exception) as asked:
        nki.predict(kernel)(spec(A))
    assert type(asked.value) is type(called.value)
    assert str(asked.value) == str(called.value)


@pytest.mark.parametrize(
    "shape,dtype,code",
    [
        ((128, 512), np.float64, "argument.dtype"),
        ((128, 512), np.int64, "argument.dtype"),
        ((0, 4), "float32", "argument.empty"),
    ],
)
def test_arrays_that_no_kernel_takes_are_refused_as_ever(shape: tuple[int, ...], dtype: Any, code: str) -> None:
    said = []
    for call, argument in (
        (nki.jit(scale), np.zeros(shape, dtype)),
        (nki.predict(scale), nki.ShapeDtype(shape, dtype)),
    ):
        with pytest.raises(NkiError) as error:
            call(argument)
        assert error.value.code == code
        said.append(error.value.message)
    assert said[0] == said[1]


def test_a_call_needs_data() -> None:
    for stand in (nki.ShapeDtype((128, 512), nl.float32), jax.ShapeDtypeStruct((128, 512), jnp.float32)):
        with pytest.raises(NkiError) as error:
            nki.jit(scale)(stand)
        assert error.value.code == "argument.no-data"
    with pytest.raises(NkiError) as error:
        nki.profile(scale, run=True)(nki.ShapeDtype((128, 512), nl.float32))
    assert error.value.code == "argument.no-data"


def test_a_profile_needs_none() -> None:
    assert nki.profile(scale)(spec(A)).makespan_ns == nki.profile(scale)(A).makespan_ns


def test_an_unknown_target_and_a_call_in_the_wrong_place() -> None:
    with pytest.raises(NkiError) as error:
        nki.predict(scale, target="trn9")(spec(A))
    assert error.value.code == "target.unknown"
    with pytest.raises(NkiError) as error:
        nki.predict(scale, spec(A))
    assert error.value.code == "jit.called"


def test_neither_mlir_nor_native_code_nor_the_disk_is_needed(tmp_path: Any) -> None:
    """In a process in which none of them can be used, with a tensor that no machine has memory for."""
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("torch_mlir", "nki.native", "nki.ir")):
            raise ImportError("refused: " + name)
sys.meta_path.insert(0, Refuse())
import nki, nki.language as nl
from tests.tune.kernels import scale
def kernel(a):
    return scale(a.select(0, 0))
found = nki.predict(kernel, target="trn2")(nki.ShapeDtype((1 << 26, 128, 2048), nl.float32))
assert found.ns > 0
"""
    environment = {"PYTHONPATH": ":".join(sys.path), "NKI_CACHE_DIR": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert not (tmp_path / "cache").exists()


def test_passes_can_be_watched(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch that asks for the IR after every pass is obeyed; the proof and what follows it are left out."""
    monkeypatch.setenv("NKI_DUMP_IR", str(tmp_path))
    nki.predict(scale)(spec(A))
    names = [file.stem.partition("-")[2] for file in sorted((tmp_path / "scale").iterdir())]
    assert names[0] == "trace" and names[-1] == "schedule" and "cse" in names


def test_warnings_are_for_calls() -> None:
    """A result that is never written is told when the kernel is called; its time can be asked for in silence."""

    def kernel(a: Any) -> Any:
        scale(a)
        return nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)

    with pytest.warns(NkiWarning):
        nki.jit(kernel)(A.copy())
    assert nki.predict(kernel)(spec(A)).ns > 0.0
