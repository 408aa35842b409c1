"""Grids of tiles and blocks address what NumPy slices address."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError
from tests.support import both
from tests.together import together

X = np.arange(300 * 70, dtype=np.float32).reshape(300, 70)


def seen(function: Callable[[Any], Any], *arrays: Any) -> Any:
    """What a function of tensors returns while a kernel is traced."""
    found: list[Any] = []

    def kernel(*tensors: Any) -> Any:
        found.append(function(*tensors))
        return tensors[0]

    nki.simulate(kernel)(*(arrays or (X,)))
    return found[0]


def refused(function: Callable[[Any], Any], *arrays: Any) -> str:
    with pytest.raises(NkiError) as caught:
        seen(function, *arrays)
    assert caught.value.fix
    return caught.value.code


def facts(grid: Any) -> tuple[Any, ...]:
    return grid.shape, grid.element_shape, grid.index_step_elements, grid.is_remainder, grid.is_data_representable


def test_geometry_of_tiles() -> None:
    assert seen(lambda a: facts(nl.tiles(a, tile_shape=(128, 32)))) == ((3, 3), (300, 70), (128, 32), True, True)
    assert seen(lambda a: facts(nl.tiles(a, tile_shape=(100, 35)))) == ((3, 2), (300, 70), (100, 35), False, True)
    assert seen(lambda a: facts(nl.tiles(a, tile_shape=(128, 32))[0, 1])) == ((), (128, 32), (), False, True)
    assert seen(lambda a: facts(nl.tiles(a, tile_shape=(128, 32))[2, -1])) == ((), (44, 6), (), True, True)
    assert seen(lambda a: facts(nl.tiles(a, tile_shape=(128, 32))[1:, 0])) == ((2,), (172, 32), (128,), True, True)
    assert seen(lambda a: facts(nl.tiles(a, tile_shape=(128, 32))[range(1, 3), 0])) == (
        (2,),
        (172, 32),
        (128,),
        True,
        True,
    )
    assert seen(lambda a: nl.tiles(a, tile_shape=(128, 32))[0].tile_shape) == (128, 32)


def test_geometry_of_blocks() -> None:
    def grid(a: Any) -> Any:
        return nl.blocks(a, tile_shape=(64, 16), block_shape=(2, 3))

    assert seen(lambda a: facts(grid(a))) == ((3, 2), (300, 70), (128, 48), True, True)
    assert seen(lambda a: facts(grid(a)[2, 1])) == ((), (44, 22), (), True, True)
    assert seen(lambda a: grid(a).block_shape) == (2, 3)
    assert seen(lambda a: facts(nl.tiles(grid(a)[2, 1]))) == ((1, 2), (44, 22), (64, 16), True, True)
    assert seen(lambda a: facts(nl.blocks(nl.tiles(grid(a)[0]), block_shape=(1, 2)))) == (
        (2, 3), (128, 70), (64, 32), True, True,
    )  # fmt: skip


def test_classes() -> None:
    kinds = seen(lambda a: (nl.tiles(a, tile_shape=(1, 1)), nl.blocks(a, tile_shape=(1, 1), block_shape=(1, 1))))
    assert [type(kind) for kind in kinds] == [nl.NkiTileGrid, nl.NkiBlockGrid]
    assert all(isinstance(kind, nl.NkiGrid) and isinstance(kind, nl.NKIObject) for kind in kinds)
    assert (kinds[0].dtype, kinds[0].buffer) == (nl.float32, nl.private_hbm)


@pytest.mark.parametrize("tile", [(128, 32), (100, 70), (77, 33)])
def test_tiles_cover_the_tensor(tile: tuple[int, int]) -> None:
    """Copy tile by tile, each times a number of its own, and compare with NumPy."""

    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        source, target = nl.tiles(a, tile_shape=tile), nl.tiles(out, tile_shape=tile)
        for i, j in itertools.product(*map(range, source.shape)):
            nl.store(target[i, j].data, nl.multiply(nl.load(source[i, j].data), float(i * 10 + j + 1)))
        return out

    number = np.array([[(p // tile[0]) * 10 + f // tile[1] + 1 for f in range(70)] for p in range(300)], np.float32)
    np.testing.assert_array_equal(both(kernel, X), X * number)


def test_leading_dimensions_count_element_by_element() -> None:
    y = np.arange(3 * 20 * 10, dtype=np.float32).reshape(3, 20, 10)
    assert seen(lambda a: facts(nl.tiles(a, tile_shape=(8, 4))), y) == (
        (3, 3, 3), (3, 20, 10), (1, 8, 4), True, True,
    )  # fmt: skip

    def kernel(a: Any) -> Any:
        grid = nl.tiles(a, tile_shape=(8, 4))
        assert grid[1].element_shape == (20, 10)
        assert grid[1:3, 0, 0].element_shape == (2, 8, 4)
        out = nl.ndarray((4, 2), a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(grid[2, 2, 2].data))
        return out

    np.testing.assert_array_equal(both(kernel, y), y[2, 16:, 8:])


@pytest.mark.parametrize("region", ["sbuf", "psum", "shared_hbm"])
def test_allocated_tiles_hold_more_rows_than_there_are_partitions(region: str) -> None:
    def kernel(a: Any) -> Any:
        source = nl.tiles(a, tile_shape=(128, 32))
        held = nl.alloc_tiles(
            tile_shape=(128, 32), element_shape=a.shape, buffer=getattr(nl, region), dtype=a.dtype, name="held"
        )
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        target = nl.tiles(out, tile_shape=(128, 32))
        places = list(itertools.product(*map(range, held.shape)))
        for i, j in places:
            move(held[i, j].data, nl.load(source[i, j].data))
        for i, j in reversed(places):
            nl.store(target[i, j].data, nl.load(held[i, j].data) if region == "shared_hbm" else held[i, j].data)
        return out

    def move(dst: Any, tile: Any) -> None:
        if dst.buffer.on_chip:
            nisa.tensor_copy(dst=dst, src=tile)
        else:
            nl.store(dst, tile)

    np.testing.assert_array_equal(both(kernel, X), X)


def on_chip(tile: tuple[int, ...], elements: tuple[int, ...], block: tuple[int, ...] | None = None) -> Any:
    more = {"tile_shape": tile, "element_shape": elements, "buffer": nl.sbuf, "dtype": nl.float32}
    return nl.alloc_blocks(**more, block_shape=block) if block else nl.alloc_tiles(**more)


def test_storage_on_chip_is_tile_after_tile() -> None:
    def look(a: Any) -> list[tuple[Any, ...]]:
        grid = on_chip((128, 32), (300, 70))
        return [(t.shape, t.strides, t.offset) for t in (grid[0, 0].data, grid[0, 2].data, grid[2, 1].data)]

    row = 9 * 32
    assert seen(look) == [((128, 32), (row, 1), 0), ((128, 6), (row, 1), 64), ((44, 32), (row, 1), 7 * 32)]


def test_rows_of_tiles_are_one_operand_and_columns_are_not() -> None:
    assert seen(lambda a: on_chip((128, 32), (300, 70))[1, :].data.shape) == (128, 70)
    assert seen(lambda a: on_chip((128, 32), (300, 70))[:, 1].is_data_representable) is False
    assert refused(lambda a: on_chip((128, 32), (300, 70)).data) == "grid.data"
    assert seen(lambda a: on_chip((16, 4, 8), (16, 8, 8))[0].is_data_representable) is True
    assert seen(lambda a: on_chip((16, 4, 8), (16, 8, 16))[0].is_data_representable) is False


def test_blocks_on_chip_have_the_storage_of_tiles() -> None:
    def look(a: Any) -> Any:
        blocks = on_chip((128, 32), (300, 128), (1, 2))
        return blocks.shape, nl.tiles(blocks[1, 1])[0, 1].data.offset, blocks[1, 1].data.shape

    assert seen(look) == ((3, 2), (1 * 4 + 3) * 32, (128, 64))


def test_a_tensor_is_its_own_data() -> None:
    assert seen(lambda a: a.data is a)


@together(
    "code, call",
    [
        ("grid.tile-shape", lambda a: nl.tiles(a, tile_shape=(128,))),
        ("grid.tile-shape", lambda a: nl.tiles(a, tile_shape=(2, 128, 32))),
        ("grid.tile-shape", lambda a: nl.tiles(a, tile_shape=(0, 32))),
        ("grid.tile-shape", lambda a: nl.blocks(a, tile_shape=(8, 8), block_shape=(2,))),
        ("grid.tile-shape", lambda a: nl.tiles(nl.tiles(a, tile_shape=(8, 8)), tile_shape=(4, 4))),
        ("grid.tile-shape", lambda a: on_chip((8, 8), (2, 8, 8))),
        ("grid.shape", nl.tiles),
        ("grid.shape", lambda a: nl.tiles(a, tile_shape=[8, 8])),
        ("grid.shape", lambda a: nl.tiles(a, tile_shape=(8, True))),
        ("grid.shape", lambda a: nl.tiles("a", tile_shape=(8, 8))),
        ("grid.index", lambda a: nl.tiles(a, tile_shape=(128, 32))[3]),
        ("grid.index", lambda a: nl.tiles(a, tile_shape=(128, 32))[-4]),
        ("grid.index", lambda a: nl.tiles(a, tile_shape=(128, 32))[0, 0, 0]),
        ("grid.index", lambda a: nl.tiles(a, tile_shape=(128, 32))[0, 2:5]),
        ("grid.index", lambda a: nl.tiles(a, tile_shape=(128, 32))[0, ::2]),
        ("grid.index", lambda a: nl.tiles(a, tile_shape=(128, 32))[0, range(2, 5)]),
        ("grid.index", lambda a: nl.tiles(a, tile_shape=(128, 32))[0, range(0, 3, 2)]),
        ("grid.index", lambda a: nl.tiles(a, tile_shape=(128, 32))[0, range(-2, 0)]),
        ("grid.index", lambda a: nl.tiles(a, tile_shape=(128, 32))[0, range(1, -1)]),
        ("grid.index", lambda a: nl.tiles(a, tile_shape=(128, 32))[nisa.register_alloc(0)]),
        ("grid.index", lambda a: nl.tiles(a, tile_shape=(128, 32))[0][0][0]),
        ("grid.iteration", lambda a: list(nl.tiles(a, tile_shape=(128, 32)))),
        ("grid.construct", lambda a: nl.NkiTileGrid()),
        ("call.arguments", lambda a: nl.tiles(a, (128, 32))),
    ],
)
def test_refused(code: str, call: Callable[[Any], Any]) -> None:
    assert refused(call) == code
