"""A second front end, made here in ten lines: its kernels are functions of tiles that only call `nki.isa`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ArgumentError, NkiError
from nki.core.source import of_traceback
from nki.driver.launch import Launch
from nki.frontend.nki import NkiFrontEnd
from nki.kernel import Kernel


class Tiles(NkiFrontEnd):
    def trace(self, function: Any, tracer: Any, arguments: Any, place: Any) -> Any:
        def whole(*tensors: Any) -> Any:
            tiles = [nl.ndarray(each.shape, each.dtype, buffer=nl.sbuf) for each in tensors]
            for tile, tensor in zip(tiles, tensors, strict=True):
                nisa.dma_copy(dst=tile, src=tensor)
            function(*tiles)
            result = nl.ndarray(tiles[0].shape, tiles[0].dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=result, src=tiles[0])
            return result

        return super().trace(whole, tracer, arguments, place)

    def bind(self, function: Any, args: Any, kwargs: Any, see: Any) -> Any:
        return super().bind(function, (np.zeros_like(args[0]), *args), kwargs, see)

    def spell(self, problem: Exception, function: Any, args: Any, kwargs: Any) -> Exception:
        if isinstance(problem, ZeroDivisionError):
            where = of_traceback(problem.__traceback__)
            return ArgumentError(
                "tiles.division", "a tile is divided by nothing", fix="divide by something", location=where
            )
        return super().spell(problem, function, args, kwargs)


def tiles(function: Callable[..., Any]) -> Kernel:
    return Kernel(Launch(function, front_end=Tiles()))


@tiles
def plus(out: Any, a: Any, b: Any) -> None:
    nisa.tensor_tensor(dst=out, data1=a, data2=b, op=nl.add)


@tiles
def narrow(out: Any, a: Any, b: Any) -> None:
    nisa.tensor_tensor(dst=out[:, :3], data1=a, data2=b, op=nl.add)  # too narrow


@tiles
def divided(out: Any, a: Any) -> None:
    nisa.tensor_scalar(dst=out, data=a, op0=nl.multiply, operand0=1 / 0)


A, B = (np.arange(128 * 8, dtype=np.float32).reshape(128, 8) * scale for scale in (1, 3))


def test_it_compiles_and_remembers() -> None:
    assert np.array_equal(plus(A, B), A + B)
    assert plus.report.mode == "compiled"
    assert np.array_equal(plus(B, 2 * A), B + 2 * A)
    assert plus.report.compiled == "memory"


def test_it_runs_eagerly() -> None:
    kernel = nki.simulate(plus)
    assert np.array_equal(kernel(A, B), A + B)
    assert kernel.report.mode == "eager"


@pytest.mark.parametrize("kernel", [narrow, nki.simulate(narrow)], ids=["compiled", "eager"])
def test_an_error_has_the_line_of_the_kernel(kernel: Kernel) -> None:
    with pytest.raises(NkiError) as caught:
        kernel(A, B)
    assert caught.value.location.frames[0].function == "narrow"
    assert "# too narrow" in str(caught.value)


def test_errors_of_the_body_are_told_in_its_words() -> None:
    with pytest.raises(ArgumentError, match=r"tiles.division") as caught:
        divided(A)
    assert caught.value.location.frames[0].function == "divided"


def test_it_has_a_profile() -> None:
    profile = nki.profile(plus)(A, B)
    assert profile.about.kernel == "plus" and profile.makespan_ns > 0
    assert {"dma_copy", "tensor_tensor"} <= {each.instruction.name for each in plus.report.programs[0].body.walk()}


def test_what_the_front_end_does_is_part_of_the_key_on_disk(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_CACHE", "1")
    monkeypatch.setenv("NKI_CACHE_DIR", str(tmp_path))
    found = []
    for scale in (1.0, 1.0, 2.0):

        class Scaled(Tiles):
            factor = scale

            def trace(self, function: Any, tracer: Any, arguments: Any, place: Any) -> Any:
                def body(out: Any, *tensors: Any) -> None:
                    function(out, *tensors)
                    nisa.tensor_scalar(dst=out, data=out, op0=nl.multiply, operand0=Scaled.factor)

                return super().trace(body, tracer, arguments, place)

        kernel = Kernel(Launch(plus.func, front_end=Scaled()))
        assert np.array_equal(kernel(A, B), (A + B) * scale)
        found.append(kernel.report.compiled)
    assert found == ["compiled", "disk", "compiled"]


def test_a_launch_from_another_process_is_the_same() -> None:
    for launch in (Launch(len), Launch(len, front_end=Tiles())):
        copied = pickle.loads(pickle.dumps(launch))
        assert copied == launch and copied.references == launch.references
    assert Launch(len).references == () != Launch(len, front_end=Tiles()).references
