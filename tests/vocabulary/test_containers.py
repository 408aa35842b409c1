"""Lists, tuples and dicts of tensors and numbers: inside kernels, as arguments, and as results."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.support import both, rejection

A, B, C = (np.random.default_rng(seed).integers(-9, 9, (4, 6)).astype(np.float32) for seed in (1, 2, 3))
RUNS = [pytest.param(nki.jit, id="compiled"), pytest.param(nki.simulate, id="eager")]

Pair = namedtuple("Pair", "left right")


def stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def total(tiles: Any) -> Any:
    result = nl.zeros(tiles[0].shape, tiles[0].dtype, buffer=nl.sbuf)
    for tile in tiles:
        nisa.tensor_tensor(result, result, tile, nl.add)
    return result


def test_a_list_that_grows() -> None:
    def kernel(a: Any) -> Any:
        tiles: list[Any] = []
        for i in range(3):
            tiles.append(nl.multiply(nl.load(a), float(i + 1)))
        tiles.extend([tiles[0], tiles[-1]])
        tiles.insert(0, tiles.pop(1))
        scales = [2.0 * i for i in range(len(tiles))]
        return stored(total([nl.multiply(tile, scale) for tile, scale in zip(tiles, scales, strict=True)]))

    factors = [2, 1, 3, 1, 3]
    np.testing.assert_array_equal(both(kernel, A), A * sum(2 * i * f for i, f in enumerate(factors)))


def test_a_dict_of_tensors_and_numbers() -> None:
    def kernel(a: Any, b: Any) -> Any:
        parts: dict[str, Any] = {"a": nl.load(a), "scale": 3.0}
        parts["b"] = nl.load(b)
        parts.update(more=[parts["a"], parts["b"]])
        tiles = [value for key, value in sorted(parts.items()) if key in ("a", "b")]
        assert len(parts) == 4 and "scale" in parts and parts.get("none") is None
        return stored(nl.multiply(total([*tiles, *parts["more"]]), parts["scale"]))

    np.testing.assert_array_equal(both(kernel, A, B), 6 * (A + B))


def test_nested_containers_inside() -> None:
    def kernel(a: Any, b: Any) -> Any:
        grid = [[nl.load(a), nl.load(b)], [nl.load(b), nl.load(a)]]
        table = {"weights": (1.0, [2.0, {"last": 4.0}]), "grid": grid}
        first, (second, last) = table["weights"]
        (top, _), (_, bottom) = table["grid"]
        scaled = [nl.multiply(top, first), nl.multiply(grid[0][1], second), nl.multiply(bottom, last["last"])]
        return stored(total(scaled))

    np.testing.assert_array_equal(both(kernel, A, B), 5 * A + 2 * B)


def test_tuples_are_taken_apart_and_passed_on() -> None:
    def helper(first: Any, *others: Any, **options: Any) -> tuple[Any, Any]:
        return nl.subtract(first, total(others)), options["scale"]

    def kernel(a: Any, b: Any, c: Any) -> Any:
        tiles = tuple(nl.load(x) for x in (a, b, c))
        result, scale = helper(*tiles, **{"scale": 0.5})
        return stored(nl.multiply(result, scale))

    np.testing.assert_array_equal(both(kernel, A, B, C), (A - B - C) / 2)


ARGUMENTS: dict[str, tuple[Any, Any]] = {
    "tuple": ((A, B, 2.0), lambda x: x),
    "dict": ({"a": A, "b": B, "scale": 2.0}, lambda x: (x["a"], x["b"], x["scale"])),
    "ordered": (OrderedDict(a=A, b=B, scale=2.0), lambda x: (x["a"], x["b"], x["scale"])),
    "list-in-tuple": (([A, B], [2.0]), lambda x: (*x[0], x[1][0])),
    "list-in-dict": ({"tensors": [A, B], "n": {"scale": 2.0}}, lambda x: (*x["tensors"], x["n"]["scale"])),
    "named-tuple": (Pair(A, Pair(B, 2.0)), lambda x: (x.left, x.right.left, x.right.right)),
    "deep": (({"x": ((A,), {"y": [B, (2.0, None)]})},), lambda x: (x[0]["x"][0][0], x[0]["x"][1]["y"][0], 2.0)),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_containers_as_arguments(name: str) -> None:
    argument, take = ARGUMENTS[name]

    def kernel(container: Any) -> Any:
        a, b, scale = take(container)
        return stored(nl.multiply(nl.add(nl.load(a), nl.load(b)), scale))

    np.testing.assert_array_equal(both(kernel, argument), 2 * (A + B))


@pytest.mark.parametrize("run", RUNS)
def test_numbers_in_containers_are_constants_of_the_kernel(run: Any) -> None:
    @run
    def kernel(a: Any, options: Any) -> Any:
        tile = nl.load(a)
        for _ in range(options["times"]):
            nisa.tensor_scalar(tile, tile, nl.multiply, options["scale"])
        return stored(tile)

    for times, scale in ((1, 2.0), (3, 2.0), (1, 3.0), (1, 2.0)):
        np.testing.assert_array_equal(kernel(A, {"times": times, "scale": scale}), A * scale**times)


@pytest.mark.parametrize("run", RUNS)
def test_an_array_that_stands_twice_is_one_tensor(run: Any) -> None:
    def kernel(pair: Any) -> None:
        tile = nl.load(pair[0])
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        nl.store(pair[1]["again"], tile)

    array = A.copy()
    run(kernel)((array, {"again": array}))
    np.testing.assert_array_equal(array, A + 1)


@pytest.mark.parametrize("run", RUNS)
def test_containers_as_results(run: Any) -> None:
    def kernel(a: Any, b: Any) -> Any:
        first, second = stored(nl.load(a)), stored(nl.load(b))
        return {"pair": Pair(first, second), "list": [second, (first, None)], "one": first}

    got = run(kernel)(A, B)
    assert isinstance(got["pair"], Pair) and isinstance(got["list"], list)
    for found, wanted in (
        (got["pair"].left, A),
        (got["pair"].right, B),
        (got["list"][0], B),
        (got["list"][1][0], A),
        (got["one"], A),
    ):
        np.testing.assert_array_equal(found, wanted)
    assert got["list"][1][1] is None


def test_a_list_of_arrays_is_one_of_tensors() -> None:
    def kernel(tensors: Any) -> Any:
        return stored(nl.load(tensors[0]))

    np.testing.assert_array_equal(both(kernel, [A, B]), A)
    np.testing.assert_array_equal(both(kernel, (A, B)), A)


@pytest.mark.parametrize("make", [set, frozenset, bytearray, bytes], ids=lambda kind: kind.__name__)
def test_other_containers_count_by_what_is_in_them(make: Any) -> None:
    """Each is gone before the next one is made, which may lie at the same address."""

    @nki.jit
    def kernel(a: Any, members: Any) -> Any:
        return stored(nl.multiply(nl.load(a), float(len(members))))

    for size in (1, 2, 3, 1):
        np.testing.assert_array_equal(kernel(A, make(range(size))), A * size)


@pytest.mark.parametrize("view", [slice(1, 3), (slice(0, 2), slice(1, 5, 2)), ..., (..., slice(2, 4))], ids=str)
def test_indices_are_arguments(view: Any) -> None:
    def kernel(a: Any, index: Any) -> Any:
        return stored(nl.load(a[index]))

    np.testing.assert_array_equal(both(kernel, A, view), A[view])


@pytest.mark.parametrize("kind", ["list", "dict", "object"])
def test_what_contains_itself_is_refused(kind: str) -> None:
    holder: Any = {"list": [A], "dict": {"a": A}, "object": nl.NKIObject()}[kind]
    if kind == "list":
        holder.append(holder)
    elif kind == "dict":
        holder["self"] = [holder]
    else:
        holder.inner = holder

    def kernel(a: Any, _: Any) -> Any:
        return stored(nl.load(a))

    assert rejection(kernel, A, (holder,)).code == "argument.recursive"
