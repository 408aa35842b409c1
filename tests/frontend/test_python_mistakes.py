"""What Python lets happen in kernels: names without values, calls without end, lists that a traced body fills."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ArgumentError, FrontendError, NkiError
from nki.report import NkiWarning

A = np.ones((128, 8), np.float32)
Kernel = Callable[..., Any]


def copied(a: Any) -> Any:
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    return tile


def in_a_branch(a: Any) -> Any:
    if a.shape[0] > 128:
        tile = copied(a)
    return tile.shape


def in_a_loop(a: Any) -> Any:
    for start in range(128, a.shape[0], 128):
        tile = copied(a[start : start + 128])
    return tile.shape


def before_it_is_bound(a: Any) -> Any:
    shape = tile.shape  # noqa: F821, F841
    tile = copied(a)
    return tile


def misspelt(a: Any) -> Any:
    tile = copied(a)
    return tlie, tile  # type: ignore[name-defined] # noqa: F821


def not_imported(a: Any) -> Any:
    return math.sqrt(a.shape[0])  # type: ignore[name-defined] # noqa: F821


def without_end(a: Any, depth: int = 0) -> Any:
    return without_end(a, depth + 1)


@nki.jit
def of_two(a: Any, b: Any) -> Any:
    return a, b


def calls_a_kernel(a: Any) -> Any:
    return of_two(a)


@pytest.mark.parametrize("run", [nki.jit, nki.simulate])
@pytest.mark.parametrize(
    ("kernel", "code", "message", "fix"),
    [
        (in_a_branch, "python.unbound", "reads tile, and line", "bind tile on every way to line"),
        (in_a_loop, "python.unbound", "which binds it, has not run", "bind tile on every way to line"),
        (before_it_is_bound, "python.unbound", "reads tile, and line", "bind tile on every way to line"),
        (misspelt, "python.undefined", "'tlie' is not defined", "write tile"),
        (not_imported, "python.undefined", "'math' is not defined", "add import math at the top of the file"),
        (without_end, "python.recursion", "without_end calls itself without end", "end the recursion by a condition"),
        (calls_a_kernel, "call.kernel-arguments", "of_two(a, b) needs b", "pass b"),
    ],
)
def test_errors_of_python(run: Kernel, kernel: Kernel, code: str, message: str, fix: str) -> None:
    with pytest.raises((FrontendError, ArgumentError)) as caught:
        run(kernel)(A)
    error = caught.value
    assert error.code == code and message in error.message and error.fix.startswith(fix)
    frame = error.location.frame
    assert frame is not None and frame.file == __file__ and frame.function == kernel.__name__


def test_errors_of_other_kinds_stay_what_they_are() -> None:
    def kernel(a: Any) -> Any:
        raise KeyError("size")

    with pytest.raises(KeyError, match="size"):
        nki.jit(kernel)(A)


# --- lists, dictionaries and sets


def looped(fill: Callable[[Any, Any, Any], None], container: Any, loop: Callable[..., Any]) -> Kernel:
    def kernel(a: Any) -> Any:
        out, tile = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm), copied(a)
        held = container()

        def body(i: Any) -> None:
            fill(held, i, tile)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

        loop(body)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return kernel


def on_the_device(body: Callable[[Any], None]) -> None:
    nl.fori_loop(0, 4, body)


def in_python(body: Callable[[Any], None]) -> None:
    for i in range(4):
        body(i)


def codes(kernel: Kernel) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", NkiWarning)
        kernel(A)
    return [item.message.finding.code for item in seen if isinstance(item.message, NkiWarning)]


FILLS = [
    (lambda held, i, tile: held.append(i), list),
    (lambda held, i, tile: held.append(1.0), list),
    (lambda held, i, tile: held.add(len(held)), set),
    (lambda held, i, tile: held.update(count=held.get("count", 0) + 1), dict),
    (lambda held, i, tile: held.pop(), lambda: [1, 2, 3, 4]),
]


@pytest.mark.parametrize(("fill", "container"), FILLS)
def test_a_list_that_a_traced_body_fills_is_told(fill: Any, container: Any) -> None:
    assert codes(nki.jit(looped(fill, container, on_the_device))) == ["loop.filled"]


@pytest.mark.parametrize(("fill", "container"), FILLS)
def test_lists_that_are_filled_in_each_trip_are_not_told(fill: Any, container: Any) -> None:
    assert codes(nki.simulate(looped(fill, container, on_the_device))) == []
    assert codes(nki.jit(looped(fill, container, in_python))) == []


@pytest.mark.parametrize("fill", [lambda held, i, tile: held.append(tile), lambda held, i, tile: len(held)])
def test_tensors_may_be_kept_in_lists(fill: Any) -> None:
    assert codes(nki.jit(looped(fill, list, on_the_device))) == []


# --- what gets a kernel, and what gets its arguments


@pytest.mark.parametrize("function", [nki.simulate, nki.profile, nki.benchmark])
def test_arguments_in_the_wrong_parentheses(function: Callable[..., Any]) -> None:
    name = f"nki.{function.__name__}"
    with pytest.raises(NkiError) as caught:
        function(of_two, A, A)
    assert caught.value.code == "jit.called" and caught.value.fix.startswith(f"write {name}(of_two)(...)")
    with pytest.raises(NkiError) as caught:
        function(A)
    assert caught.value.code == "jit.function" and caught.value.fix.startswith("pass the kernel without calling it")


def test_autotune_without_configurations() -> None:
    with pytest.raises(NkiError) as caught:
        nki.autotune(of_two)
    assert caught.value.code == "tune.config" and "above of_two" in caught.value.fix
    with pytest.raises(NkiError, match="configs is empty"):
        nki.autotune()(of_two)


@pytest.mark.filterwarnings("ignore:.timing.unmeasured.")
def test_configurations_that_all_fail_are_told() -> None:
    def kernel(a: Any, rows: int = 128) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((rows, a.shape[1]), a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a)
        nisa.dma_copy(dst=out, src=tile)
        return out

    tuned = nki.autotune(configs=[{"rows": 256}, {"rows": 300}], processes=1)(kernel)
    with pytest.warns(NkiWarning, match="none can run but the default.*256 partitions") as seen:
        tuned(A)
    assert seen[0].message.finding.code == "tune.all-failed"  # type: ignore[union-attr]
    assert codes(nki.autotune(configs=[{"rows": 128}, {"rows": 300}], processes=1)(kernel)) == []


# --- arguments


class Layer:
    @nki.jit
    def forward(self: Any, a: Any) -> Any:
        return a


def scaled(a: Any, scale: Any) -> Any:
    tile = copied(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale)
    return tile


@pytest.mark.parametrize(
    ("call", "fix"),
    [
        (lambda: Layer().forward(A), "remove self and define the kernel outside of the class"),
        (lambda: nki.jit(scaled)(A, np.array(2.0)), "pass scale.item(), a Python number"),
        (lambda: nki.jit(scaled)(A, np.float32(2.0) * np.ones(1, np.float32)), "call the kernel with a Python number"),
        (lambda: nki.jit(scaled)([A], 2.0), "pass the array itself: a[0]"),
        (lambda: nki.jit(scaled)({"x": A}, 2.0), "pass the array itself: a['x']"),
        (lambda: nki.jit(scaled)([A, A], 2.0), "pass one of its arrays, for example a[0]"),
    ],
)
def test_arguments_that_are_meant_otherwise(call: Callable[[], Any], fix: str) -> None:
    with pytest.raises(NkiError) as caught:
        call()
    assert caught.value.fix.startswith(fix)


def test_sparse_tensors_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError) as caught:
        nki.jit(copied)(torch.eye(4).to_sparse())
    assert (caught.value.code, caught.value.fix) == ("argument.device", "pass a.to_dense()")


def test_an_error_that_the_kernel_catches_is_told() -> None:
    def kernel(a: Any, width: int) -> Any:
        out, tile = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm), copied(a)
        with contextlib.suppress(Exception):
            nisa.tensor_tensor(dst=tile[:, 0:width], data1=tile[:, 0:4], data2=tile[:, 0:4], op=nl.add)
        nisa.dma_copy(dst=out, src=tile)
        return out

    assert codes(lambda a: nki.jit(kernel)(a, 4)) == []
    with pytest.warns(NkiWarning, match="dst has 128 x 3") as seen:
        nki.jit(kernel)(A, 3)
    (finding,) = [item.message.finding for item in seen]  # type: ignore[union-attr]
    assert (finding.code, finding.facts["error"]) == ("kernel.swallowed", "tensor_tensor.shapes")


def test_a_module_that_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(nki, "experimental", raising=False)
    with pytest.raises(AttributeError, match="no attribute 'experimental' before `import"):
        getattr(nki, "experimental")  # noqa: B009


def test_what_a_profiler_is_for() -> None:
    assert repr(nki.profile(of_two)) == "<nki.profile(of_two): call it with the arguments of the kernel>"
