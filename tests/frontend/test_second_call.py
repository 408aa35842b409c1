"""What a call of a remembered kernel leaves out: it must not be seen in results, errors, or what is noticed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import ArgumentError
from nki.frontend.dependencies.identity_checks import Probes
from nki.frontend.host import take
from nki.frontend.values import Arguments, Parameters, _as_it_is, _bound_at_once, bind
from tests.frontend.dependencies.remembering import load


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return outer


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "plain": lambda a, b: None,
    "default": lambda a, b=2: None,
    "all defaults": lambda a=1, b=2: None,
    "keyword only": lambda a, *, b: None,
    "keyword only with default": lambda a, *, b=2: None,
    "keyword only, first with default": lambda a=0, *, b=1, c: None,
    "position only": lambda a, /, b: None,
    "collecting": lambda a, *b: None,
    "collecting names": lambda a, **b: None,
    "cell": lambda a, b=1: lambda: a + b,
    "wrapped": _wrapped(lambda a, b=5: None),
    "none": lambda: None,
}  # fmt: skip
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((1,), {}), ((1, 2), {}), ((1, 2, 3), {}), ((1,), {"b": 2}), ((), {"b": 1, "a": 2}), ((1,), {"a": 2}),
    ((1,), {"d": 2}), ((1, 2), {"b": 2}), ((), {"c": 3}), ((1,), {"c": 3}), ((1,), {"b": 2, "c": 3}), ((1,), {"C": 3}),
]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_binding_is_that_of_the_interpreter(name: str) -> None:
    function = FUNCTIONS[name]
    signature = inspect.signature(function)
    for args, kwargs in CALLS:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            assert _bound_at_once(function, args, kwargs) is None
            if name == "position only":
                continue  # only the quick way is under test
            with pytest.raises(ArgumentError, match=r"call\.kernel-arguments"):
                bind(function, args, kwargs, "kernel")
            continue
        bound.apply_defaults()
        found = bind(function, args, kwargs, "kernel")
        assert list(found.items()) == list(bound.arguments.items())
        if name in ("plain", "default", "all defaults", "keyword only", "keyword only with default", "cell", "none"):
            assert _bound_at_once(function, args, kwargs) == found, "the quick way is not taken"


def test_changed_defaults_are_seen() -> None:
    def kernel(a: int, b: int = 2, *, c: int = 3) -> None: ...

    assert bind(kernel, (1,), {}, "kernel") == {"a": 1, "b": 2, "c": 3}
    kernel.__defaults__ = (4,)
    kernel.__kwdefaults__["c"] = 5
    assert bind(kernel, (1,), {}, "kernel") == {"a": 1, "b": 4, "c": 5}


def test_parameters_are_those_of_the_signature() -> None:
    for function in FUNCTIONS.values():
        assert dict(Parameters(function)) == dict(inspect.signature(function).parameters)
        assert len(Parameters(function)) == len(inspect.signature(function).parameters)


_BASE = np.arange(24, dtype=np.float32).reshape(4, 6)
ARRAYS: dict[str, np.ndarray] = {
    "float32": _BASE,
    "bfloat16": _BASE.astype(ml_dtypes.bfloat16),
    "float8": _BASE.astype(ml_dtypes.float8_e4m3fn),
    "int8": _BASE.astype(np.int8),
    "part": _BASE[1:3],
    "columns": _BASE[:, 1:3],
    "transposed": _BASE.T,
    "swapped bytes": _BASE.astype(">f4"),
    "scalar": np.array(1.0, np.float32),
    "int64": _BASE.astype(np.int64),
    "float64": _BASE.astype(np.float64),
    "text": np.array(["a"]),
    "nothing": np.zeros((0, 3), np.float32),
    "subclass": _BASE.view(np.recarray),
    "packed": np.zeros((2, 2), nl.float8_e4m3fn_x4.numpy),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_is_taken_as_it_is_is_what_take_makes_of_it(name: str) -> None:
    array = ARRAYS[name]
    quick = _as_it_is(array)
    assert (quick is not None) == (name in ("float32", "bfloat16", "float8", "int8", "part"))
    if quick is not None:
        careful = take(array, "numpy", "x")
        assert (quick.kind, quick.dtype, quick.shared) == (careful.kind, careful.dtype, careful.shared)
        assert quick.original is array and np.shares_memory(quick.array, careful.array)
        assert (quick.array.shape, quick.array.strides) == (careful.array.shape, careful.array.strides)


def test_a_read_only_array_is_not_written_through() -> None:
    array = _BASE.copy()
    array.flags.writeable = False
    assert _as_it_is(array) is None


def test_keys_tell_arguments_apart() -> None:
    def of(*args: Any) -> Any:
        def kernel(a: Any, b: Any, c: Any = None) -> None: ...

        return Arguments(bind(kernel, args, {}, "kernel"), Parameters(kernel)).key()

    x, y = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    different = [
        of(x, y), of(x, x), of(x, 0), of(x, False), of(x, 0.0), of(x, -0.0), of(x, "0"), of(x, None), of(x, nl.float32),
        of(x, "float32"), of(x, (0,)), of(x, ("", 0)), of(x, x.T), of(x, x.astype(np.int32)), of(0, x), of(x, y, x),
        of(x, y, y),
    ]  # fmt: skip
    assert len(set(different)) == len(different)
    assert of(x, y) == of(y, x), "values do not count"


def test_names_are_probed_in_every_way_they_can_change() -> None:
    touches: dict[str, Callable[[dict[str, Any]], Any]] = {
        "replaced": lambda names: names.update(a=2),
        "replaced by an equal value": lambda names: names.update(b=[]),
        "removed": lambda names: names.pop("b"),
        "appeared": lambda names: names.update(c=1),
    }
    for name, touch in touches.items():
        names: dict[str, Any] = {"a": 1, "b": []}
        probes = Probes()
        probes.name(names, "a")
        assert probes.untouched()
        probes.name(names, "b")
        probes.name(names, "c")
        assert probes.untouched()
        touch(names)
        assert not probes.untouched(), name


@nki.jit
def outputs(x: Any) -> Any:
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return x, out, out, out[0:2], out.reshape((x.shape[1], x.shape[0]))


@pytest.mark.parametrize("native", ["0", "always"])
@pytest.mark.parametrize("kernel", [outputs, nki.simulate(outputs)], ids=["compiled", "eager"])
def test_results_have_memory_of_their_own(kernel: Any, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_NATIVE", native)
    x = np.arange(128 * 8, dtype=np.float32).reshape(128, 8)
    results = [x, *kernel(x), *kernel(x), *kernel(x)]
    for i, one in enumerate(results):
        assert one.flags.writeable and one.flags.c_contiguous
        assert not any(np.shares_memory(one, other) for other in results[:i])
    for result in results[1:]:
        assert (result.reshape(-1) == x.reshape(-1)[: result.size]).all()
        result[...] = -1
    assert (x.reshape(-1) == np.arange(x.size)).all()


def test_a_constant_that_is_no_array_is_seen(tmp_path: Path) -> None:
    """The quick answer is only for arrays and constants: what is behind other arguments is looked at every time."""
    module = load(
        tmp_path,
        "import dataclasses\n@dataclasses.dataclass\nclass Config:\n    tile: int = 1\n\n\n"
        "@nki.jit\ndef kernel(x, config, factor=2):\n    return fill(config.tile * factor)",
    )
    x = np.zeros((2, 2), np.float32)
    config = module.Config()

    def call(*more: Any) -> tuple[float, str]:
        return float(module.kernel(x, config, *more)[0, 0]), module.kernel.report.compiled

    assert [call()[0], call()] == [2.0, (2.0, "memory")]
    config.tile = 3
    assert call()[0] == 6.0
    module.kernel.func.__defaults__ = (5,)
    assert call()[0] == 15.0
    assert [call(1.5)[0], call(1)[0], call(True)[0]] == [4.5, 3.0, 3.0]
