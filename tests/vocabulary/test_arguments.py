"""Objects as arguments: dataclasses, NKIObject, enumerations, and functions."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.support import both

X = np.arange(24, dtype=np.float32).reshape(4, 6) - 7


class Mode(enum.Enum):
    ADD = "add"
    MULTIPLY = "multiply"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Flags(enum.Flag):
    NEGATE = enum.auto()
    DOUBLE = enum.auto()


@dataclasses.dataclass
class Config:
    scale: float
    mode: Mode = Mode.MULTIPLY


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    scale: float
    mode: Mode = Mode.MULTIPLY


class Plain(nl.NKIObject):
    scale: float
    mode: Mode = Mode.MULTIPLY


@dataclasses.dataclass
class Both(nl.NKIObject):
    scale: float
    mode: Mode = Mode.MULTIPLY


@dataclasses.dataclass(frozen=True)
class FrozenObject(nl.NKIObject):
    scale: float
    mode: Mode = Mode.MULTIPLY


class Weights(nl.NKIObject):
    """Holds a tensor and another object, and computes with them."""

    tensor: Any
    config: Any

    def apply(self, tile: Any) -> None:
        nisa.tensor_tensor(tile, tile, nl.load(self.tensor), nl.add)
        nisa.tensor_scalar(tile, tile, nl.multiply, self.config.scale)


def stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def configured(a: Any, config: Any) -> Any:
    tile = nl.load(a)
    op = nl.add if config.mode == Mode.ADD else nl.multiply
    nisa.tensor_scalar(tile, tile, op, config.scale)
    return stored(tile)


@pytest.mark.parametrize("kind", [Config, Frozen, Plain, Both, FrozenObject], ids=lambda k: k.__name__)
def test_objects_with_numbers(kind: Any) -> None:
    np.testing.assert_array_equal(both(configured, X, kind(scale=3.0)), 3 * X)
    np.testing.assert_array_equal(both(configured, X, kind(scale=3.0, mode=Mode.ADD)), X + 3)


@pytest.mark.parametrize("kind", [Config, Frozen, Plain, Both, FrozenObject], ids=lambda k: k.__name__)
def test_objects_are_part_of_the_key_by_value(kind: Any, capsys: pytest.CaptureFixture[str]) -> None:
    @nki.jit
    def kernel(a: Any, config: Any) -> Any:
        print(config.scale)
        return configured(a, config)

    for scale in (2.0, 2.0, 5.0, 2.0):
        np.testing.assert_array_equal(kernel(X, kind(scale=scale)), scale * X)
    assert capsys.readouterr().out.split() == ["2.0", "5.0"]


@pytest.mark.parametrize("kind", [Config, Frozen, FrozenObject], ids=lambda k: k.__name__)
def test_objects_with_tensors_and_methods(kind: Any) -> None:
    def kernel(a: Any, weights: Any) -> Any:
        tile = nl.load(a)
        weights.apply(tile)
        return stored(tile)

    np.testing.assert_array_equal(both(kernel, X, Weights(tensor=X * 2, config=kind(scale=0.5))), 1.5 * X)


def test_objects_inside_the_kernel() -> None:
    def kernel(a: Any) -> Any:
        weights = Weights(tensor=a, config=Plain(scale=4.0))
        tile = nl.load(a)
        weights.apply(tile)
        return stored(tile)

    np.testing.assert_array_equal(both(kernel, X), 8 * X)


def test_enumerations() -> None:
    def kernel(a: Any, mode: Mode, level: Level, flags: Flags) -> Any:
        tile = nl.load(a)
        op = {Mode.ADD: nl.add, Mode.MULTIPLY: nl.multiply}[mode]
        for _ in range(level):
            nisa.tensor_scalar(tile, tile, op, 2.0)
        if Flags.NEGATE in flags:
            nisa.tensor_scalar(tile, tile, nl.multiply, -1.0)
        return stored(tile)

    made = nki.jit(kernel)
    for mode, level, flags, wanted in (
        (Mode.ADD, Level.LOW, Flags.DOUBLE, X + 2),
        (Mode.ADD, Level.HIGH, Flags.NEGATE, -(X + 6)),
        (Mode.MULTIPLY, Level.HIGH, Flags.NEGATE | Flags.DOUBLE, -8 * X),
        (Mode.MULTIPLY, Level.LOW, Flags(0), 2 * X),
    ):
        np.testing.assert_array_equal(both(made, X, mode, level, flags), wanted)


def test_enumerations_of_nki_and_dtypes() -> None:
    def kernel(a: Any, engine: Any, dtype: Any, region: Any) -> Any:
        tile = nl.ndarray(a.shape, dtype, buffer=region)
        nisa.tensor_copy(tile, nl.load(a), engine=engine)
        return stored(nl.copy(tile))

    for engine, dtype, region in (
        (nisa.engine.vector, nl.int32, nl.psum),
        (nisa.engine.gpsimd, nl.bfloat16, nl.sbuf),
        (nisa.engine.scalar, np.float16, nl.psum),
    ):
        got = both(kernel, X, engine, dtype, region)
        np.testing.assert_array_equal(got.astype(np.float32), X)


def double(tile: Any) -> None:
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)


class Adder:
    def __init__(self, number: float) -> None:
        self.number = number

    def add(self, tile: Any) -> None:
        nisa.tensor_scalar(tile, tile, nl.add, self.number)

    def __call__(self, tile: Any) -> None:
        self.add(tile)


def scaled(factor: float, tile: Any) -> None:
    nisa.tensor_scalar(tile, tile, nl.multiply, factor)


def closure(number: float) -> Callable[[Any], None]:
    def add(tile: Any) -> None:
        nisa.tensor_scalar(tile, tile, nl.add, number)

    return add


FUNCTIONS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "function": (double, lambda x: 2 * x),
    "lambda": (lambda tile: nisa.tensor_scalar(tile, tile, nl.add, 4.0), lambda x: x + 4),
    "closure": (closure(6.0), lambda x: x + 6),
    "method": (Adder(5.0).add, lambda x: x + 5),
    "callable": (Adder(7.0), lambda x: x + 7),
    "partial": (functools.partial(scaled, 3.0), lambda x: 3 * x),
    "kernel": (nki.jit(double), lambda x: 2 * x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, wanted = FUNCTIONS[name]

    def kernel(a: Any, apply: Any) -> Any:
        tile = nl.load(a)
        apply(tile)
        return stored(tile)

    np.testing.assert_array_equal(both(kernel, X, function), wanted(X))


def test_another_function_is_another_kernel() -> None:
    @nki.jit
    def kernel(a: Any, apply: Any) -> Any:
        tile = nl.load(a)
        apply(tile)
        return stored(tile)

    for name in ("function", "closure", "partial", "function"):
        function, wanted = FUNCTIONS[name]
        np.testing.assert_array_equal(kernel(X, function), wanted(X))


@pytest.mark.parametrize(("op", "wanted"), [(nl.add, X + X), (nl.multiply, X * X), (nl.maximum, X)])
def test_operators(op: Any, wanted: np.ndarray) -> None:
    def kernel(a: Any, operator: Any) -> Any:
        tile = nl.load(a)
        nisa.tensor_tensor(tile, tile, tile, operator)
        return stored(tile)

    np.testing.assert_array_equal(both(kernel, X, op), wanted)
