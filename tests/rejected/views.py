"""Views and access patterns that reach outside, move partitions, or need a copy."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import INTS, WIDE, Topic, X, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused


@refused("access.out-of-bounds", X, at="tile[0:5]", cure=edit("tile[0:5]", "tile[0:min(5, 4)]"))
def slice_beyond_the_end(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile[0:5], 0)


@refused("access.out-of-bounds", X, at="tile[:, 8]", cure=edit("8]", "7]"))
def index_beyond_the_end(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile[:, 8], 0)


@refused("access.out-of-bounds", X, at="a[nl.ds(3, 2)]", cure=edit("ds(3, 2)", "ds(3, 1)"))
def ds_beyond_the_end(a: Any) -> None:
    nl.load(a[nl.ds(3, 2)])


@refused("access.empty", X, at="tile[:, 4:4]", cure=edit("4:4", "4:5"))
def empty_slice(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile[:, 4:4], 0)


@refused(
    "access.partition-step",
    X,
    at="tile[0:4:2]",
    cure=edit("nisa.memset(tile[0:4:2], 0)", "nisa.dma_copy(tile[0:2], a[0:4:2])"),
)
def every_other_partition(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile[0:4:2], 0)


@refused("access.step", X, at="a[::-1]", cure=edit("a[::-1]", "a[::1]"))
def reversed_rows(a: Any) -> None:
    nl.load(a[::-1])


@refused("access.index-count", X, at="tile[0, 1, 2]", cure=edit("[0, 1, 2]", "[0, 1]"))
def too_many_indices(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile[0, 1, 2], 0)


@refused("access.index-count", X, at="tile[:, None, :]", cure=edit("tile[:, None, :]", "tile.expand_dim(1)"))
def new_axis(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile[:, None, :], 0)


@refused("access.index-kind", X, at="tile[:, 8 / 2]", cure=edit("8 / 2", "8 // 2"))
def fractional_index(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile[:, 8 / 2], 0)


@refused("access.index-kind", X, at="tile[[0, 2]]", cure=edit("tile[[0, 2]]", "tile[0]"))
def list_as_index(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile[[0, 2]], 0)


@refused(
    "access.dynamic-index",
    X,
    INTS,
    at="a[index]",
    cure=edit("a[index]", "a.select(0, index)"),
)
def tensor_as_index(a: Any, rows: Any) -> None:
    index = nl.load(rows[0:1, 0:1])
    nl.load(a[index])


@refused("access.dimension", X, at="tile.slice(2, 0, 4)", cure=edit("slice(2,", "slice(1,"))
def missing_dimension(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.slice(2, 0, 4), 0)


@refused("call.method-arguments", X, at="tile.slice(1, 4)", cure=edit("slice(1, 4)", "slice(1, 0, 4)"))
def missing_end_of_a_slice(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.slice(1, 4), 0)


@refused(
    "access.partition-dim",
    X,
    at="tile.permute((1, 0))",
    cure=edit(
        "nisa.memset(tile.permute((1, 0)), 0)", "nisa.nc_transpose(nl.ndarray((8, 4), nl.float32, nl.psum), tile)"
    ),
)
def transposed_view(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.permute((1, 0)), 0)


@refused("access.partition-dim", X, at="tile.reshape((8, 4))", cure=edit("(8, 4)", "(4, 2, 4)"))
def reshape_over_partitions(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.reshape((8, 4)), 0)


@refused("access.element-count", X, at="tile.reshape((4, 9))", cure=edit("(4, 9)", "(4, -1)"))
def reshape_to_another_size(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.reshape((4, 9)), 0)


@refused(
    "access.reshape",
    WIDE,
    at="corner.reshape((128, 4))",
    cure=edit("corner.reshape", "nl.copy(corner).reshape"),
)
def flattened_corner(a: Any) -> None:
    tile = nl.load(a).reshape((128, 4, 4))
    corner = tile[:, 0:2, 0:2]
    nisa.memset(corner.reshape((128, 4)), 0)


@refused(
    "access.broadcast",
    X,
    at="tile.broadcast(1, 16)",
    cure=edit("tile.broadcast(1, 16)", "tile.expand_dim(2).broadcast(2, 2)"),
)
def broadcast_of_many(a: Any) -> None:
    tile = nl.load(a)
    nl.copy(tile.broadcast(1, 16))


@refused(
    "access.squeeze", X, at="tile.squeeze_dim(1)", cure=edit("tile.squeeze_dim(1)", "tile.select(1, 0).expand_dim(1)")
)
def squeeze_of_many(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.squeeze_dim(1), 0)


@refused("access.permute", X, at="a.permute((0, 0))", cure=edit("(0, 0)", "(1, 0)"))
def permutation_with_a_repeat(a: Any) -> None:
    nl.load(a.permute((0, 0)))


@refused(
    "access.view",
    X,
    at="halves[:, 0:3].view(nl.float32)",
    cure=edit("0:3", "0:4"),
)
def view_of_an_odd_count(a: Any) -> None:
    halves = nl.load(a).view(nl.bfloat16)
    nisa.memset(halves[:, 0:3].view(nl.float32), 0)


@refused(
    "access.rearrange",
    X,
    at='tile.rearrange(("p", ("h", "w")), ("p", "w"), {"h": 2})',
    cure=edit('("p", "w"),', '("p", "w", "h"),'),
)
def rearrange_that_drops_a_name(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.rearrange(("p", ("h", "w")), ("p", "w"), {"h": 2}), 0)


@refused("access.partition-stride", X, at="tile.ap([[4, 4], [1, 4]])", cure=edit("[4, 4]", "[8, 4]"))
def pattern_with_a_short_partition_stride(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.ap([[4, 4], [1, 4]]), 0)


@refused("access.out-of-bounds", X, at="tile.ap([[8, 4], [2, 5]])", cure=edit("[2, 5]", "[2, 4]"))
def pattern_beyond_the_row(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.ap([[8, 4], [2, 5]]), 0)


@refused("access.out-of-bounds", X, at="tile.ap([[8, 5], [1, 8]])", cure=edit("[8, 5]", "[8, 4]"))
def pattern_beyond_the_partitions(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.ap([[8, 5], [1, 8]]), 0)


@refused(
    "access.pattern-rank",
    X,
    at="tile.ap([[8, 4], [4, 2], [2, 2], [1, 2], [0, 1], [0, 1]])",
    cure=edit(", [0, 1], [0, 1]", ""),
)
def pattern_with_six_pairs(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.ap([[8, 4], [4, 2], [2, 2], [1, 2], [0, 1], [0, 1]]), 0)


@refused("access.pattern", X, at="tile.ap([8, 4])", cure=edit("[8, 4]", "[[8, 4], [1, 8]]"))
def pattern_without_pairs(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.ap([8, 4]), 0)


@refused(
    "access.scalar-offset",
    X,
    at="a.ap([[1, 8]], scalar_offset=tile)",
    cure=edit("scalar_offset=tile", "scalar_offset=nisa.register_alloc(1)"),
)
def tile_as_scalar_offset(a: Any) -> None:
    tile = nl.load(a)
    nl.load(a.ap([[1, 8]], scalar_offset=tile))


@refused("access.index-kind", X, at="tile[True]", cure=edit("[True]", "[0]"))
def bool_as_index(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile[True], 0)


@refused("access.out-of-bounds", X, at="a[nl.ds(-1, 2)]", cure=edit("ds(-1, 2)", "ds(0, 2)"))
def ds_before_the_start(a: Any) -> None:
    nl.load(a[nl.ds(-1, 2)])


@refused(
    "access.rearrange",
    X,
    at='tile.rearrange(("p", ("h", "w")), ("p", "w", "h"), {"h": 2, "z": 2})',
    cure=edit(', "z": 2', ""),
)
def rearrange_with_a_foreign_size(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.rearrange(("p", ("h", "w")), ("p", "w", "h"), {"h": 2, "z": 2}), 0)


@refused(
    "access.argument",
    X,
    at='tile.rearrange(("p", ("h", "w")), ("p", "w", "h"), [2])',
    cure=edit("[2]", '{"w": 4}'),
)
def rearrange_with_a_list_of_sizes(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile.rearrange(("p", ("h", "w")), ("p", "w", "h"), [2]), 0)


@refused("access.dynamic-index", X, INTS[0:1, 1:2], at="tile[index]", cure=edit("tile[index]", "a.select(0, index)"))
def partition_chosen_by_a_tensor(a: Any, b: Any) -> None:
    tile, index = nl.load(a), nl.load(b)
    row = nl.ndarray((1, 8), nl.float32)
    nisa.dma_copy(dst=row, src=tile[index])


@refused(
    "access.partition-stride",
    X,
    at="tile[:, 3:7].ap([[4, 4], [1, 4]])",
    cure=edit("tile[:, 3:7].ap([[4, 4], [1, 4]])", "tile.ap([[8, 4], [1, 4]], offset=3)"),
)
def pattern_that_counts_in_a_slice(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile[:, 3:7].ap([[4, 4], [1, 4]]), 0)


@refused(
    "access.partition-stride",
    WIDE,
    at="blocks[:, 0:2, 4:6].ap([[4, 128], [2, 2], [1, 2]])",
    cure=edit(
        "blocks[:, 0:2, 4:6].ap([[4, 128], [2, 2], [1, 2]])",
        "tile.ap([[16, 128], [8, 2], [1, 2]], offset=4)",
    ),
)
def pattern_that_counts_in_a_block(a: Any) -> None:
    tile = nl.load(a)
    blocks = tile.reshape((128, 2, 8))
    nisa.memset(blocks[:, 0:2, 4:6].ap([[4, 128], [2, 2], [1, 2]]), 0)


@refused(
    "access.out-of-bounds",
    X,
    at="row[0:4]",
    cure=edit("row[0:4]", "nl.broadcast_to(row, (4, 8))"),
)
def rows_of_a_tile_with_one(a: Any) -> None:
    tile, row = nl.load(a), nl.load(a[0:1])
    nisa.tensor_tensor(dst=tile, data1=tile, data2=row[0:4], op=nl.add)


@refused(
    "access.out-of-bounds",
    X,
    at="column[:, 0:8]",
    cure=edit("column[:, 0:8]", "column.broadcast(1, 8)"),
)
def columns_of_a_tile_with_one(a: Any) -> None:
    tile, column = nl.load(a), nl.load(a[:, 0:1])
    nisa.tensor_tensor(dst=tile, data1=tile, data2=column[:, 0:8], op=nl.add)


@refused(
    "access.out-of-bounds",
    X,
    at="a[0:1][0:4]",
    cure=edit("a[0:1][0:4]", "a[0:1].broadcast(0, 4)"),
)
def rows_of_a_tensor_with_one(a: Any) -> None:
    nisa.dma_copy(dst=nl.ndarray((4, 8), nl.float32), src=a[0:1][0:4])
