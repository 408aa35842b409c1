"""Where a reader needs the tile, or the copy is not one, or something else happens in between, everything stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.language.memory import copied_tile
from nki.passes import copy_propagation
from nki.passes.allocation import addresses
from nki.passes.context import Context
from nki.target.load import load_target
from tests.ir.kernels import traced
from tests.passes.broadcasts import (
    COLUMNS,
    COPY,
    ROW,
    ROWS,
    Use,
    X,
    around,
    by_hand,
    counted,
    multiplied,
    product,
    psum,
    sbuf,
    times,
    wide,
)
from tests.passes.kernels import passed, results
from tests.together import together


def _narrow(x: Any, row: Any, out: Any) -> None:
    narrow = sbuf((1, COLUMNS), nl.bfloat16)
    nisa.tensor_copy(dst=narrow, src=row)
    times(x, wide(narrow))


def _written_again(x: Any, row: Any, out: Any) -> None:
    tile = wide(row)
    nisa.memset(dst=tile[:, 0:8], value=2.0)
    times(x, tile)


def _part_of_the_tile(x: Any, row: Any, out: Any) -> None:
    tile = copied_tile((ROWS, 2 * COLUMNS), nl.float32)
    nisa.activation(dst=tile[:, 0:COLUMNS], op=nl.copy, data=product(row))
    times(x, tile[:, 0:COLUMNS])


def _part_of_the_source(x: Any, row: Any, out: Any) -> None:
    tile = copied_tile((ROWS, 32), nl.float32)
    nisa.activation(dst=tile, op=nl.copy, data=product(row)[:, 0:32])
    times(x[:, 0:32], tile)


def _turned(x: Any, row: Any, out: Any) -> None:
    tile = copied_tile((ROWS, COLUMNS), nl.float32)
    turned = tile.ap([[COLUMNS, ROWS], [1, 8], [8, 8]])
    nisa.activation(dst=turned, op=nl.copy, data=product(row).reshape((ROWS, 8, 8)))
    times(x, tile)


def _source_written_after(x: Any, row: Any, out: Any) -> None:
    found, tile = product(row), copied_tile((ROWS, COLUMNS), nl.float32)
    nisa.activation(dst=tile, op=nl.copy, data=found)
    nisa.tensor_copy(dst=found, src=x)
    times(x, tile)


def _another_product(x: Any, row: Any, out: Any) -> None:
    """The source is added to before the tile is read."""
    ones, found, tile = sbuf((1, ROWS)), psum((ROWS, COLUMNS)), copied_tile((ROWS, COLUMNS), nl.float32)
    nisa.memset(dst=ones, value=1.0)
    nisa.nc_matmul(dst=found, stationary=ones, moving=row)
    nisa.activation(dst=tile, op=nl.copy, data=found)
    nisa.nc_matmul(dst=found, stationary=ones, moving=row)
    times(x, tile)


def _integers(x: Any, row: Any, out: Any) -> None:
    """The copy rounds, and the reader sees the bits as float32."""
    tile = copied_tile((ROWS, COLUMNS), nl.int32)
    nisa.activation(dst=tile, op=nl.copy, data=product(row))
    times(x, tile.view(nl.float32))


def _source_of_vector(x: Any, row: Any, out: Any) -> None:
    found, tile = psum((ROWS, COLUMNS)), copied_tile((ROWS, COLUMNS), nl.float32)
    nisa.tensor_copy(dst=found, src=x)
    nisa.activation(dst=tile, op=nl.copy, data=found)
    times(x, tile)


def _from_sbuf(x: Any, row: Any, out: Any) -> None:
    tile = copied_tile((ROWS, COLUMNS), nl.float32)
    nisa.activation(dst=tile, op=nl.copy, data=x)
    times(x, tile)


def _of_the_user(x: Any, row: Any, out: Any) -> None:
    tile = sbuf((ROWS, COLUMNS))
    nisa.activation(dst=tile, op=nl.copy, data=product(row))
    times(x, tile)


def _read_in_a_loop(x: Any, row: Any, out: Any) -> None:
    tile = wide(row)
    nl.fori_loop(0, 2, lambda i: times(x, tile))


def _in_order(x: Any, row: Any, out: Any) -> None:
    tile = wide(row)
    with nl.no_reorder():
        times(x, tile)
        nisa.memset(sbuf((1, 8)), 0.0)


def _copied_in_order(x: Any, row: Any, out: Any) -> None:
    with nl.no_reorder():
        tile = wide(row)
    times(x, tile)


def _behind_another(x: Any, row: Any, out: Any) -> None:
    first = nisa.memset(sbuf((1, 8)), 0.0)
    times(x, wide(row)).depends_on(first)


def _dynamic(x: Any, row: Any, out: Any) -> None:
    tile, start = wide(row), nisa.register_alloc(8)
    times(x[:, 0:8], tile.ap([[COLUMNS, ROWS], [1, 8]], scalar_offset=start, indirect_dim=1))


def _other_dtype(x: Any, row: Any, out: Any) -> None:
    bits = nl.ndarray((ROWS, COLUMNS), nl.uint32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=bits, data1=wide(row).view(nl.uint32), data2=x.view(nl.uint32), op=nl.bitwise_or)
    nisa.tensor_copy(dst=x, src=bits.view(nl.float32))


def _at_an_address(x: Any, row: Any, out: Any) -> None:
    nisa.tensor_copy(dst=psum((ROWS, COLUMNS), address=(0, 0)), src=x)
    times(x, wide(row))


def _several_banks(x: Any, row: Any, out: Any) -> None:
    nisa.memset(dst=psum((ROWS, 1024)), value=0.0)
    times(x, wide(row))


STAYS: dict[str, Use] = {
    "bfloat16": _narrow,
    "a matmul": multiplied,
    "a transfer": lambda x, row, out: nisa.dma_copy(dst=x, src=wide(row)),
    "printed": lambda x, row, out: nl.device_print("row", wide(row)),
    "GpSimd": lambda x, row, out: times(x, wide(row), engine=nisa.engine.gpsimd),
    "two writers": _written_again,
    "a part of the tile": _part_of_the_tile,
    "a part of the source": _part_of_the_source,
    "another arrangement": _turned,
    "the source changes": _source_written_after,
    "another product": _another_product,
    "integers": _integers,
    "a source that Vector wrote": _source_of_vector,
    "a source in SBUF": _from_sbuf,
    "the kernel's own copy": _of_the_user,
    "scaled": lambda x, row, out: times(x, by_hand(row, scale=2.0)),
    "with a bias": lambda x, row, out: times(x, by_hand(row, bias=x[:, 0:1])),
    "scaled by a tensor": lambda x, row, out: times(x, by_hand(row, scale=x[:, 0:1])),
    "another function": lambda x, row, out: times(x, by_hand(row, op=nl.exp)),
    "summed": lambda x, row, out: times(
        x,
        by_hand(row, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_res=sbuf((ROWS, 1))),
    ),
    "a reader in a loop": _read_in_a_loop,
    "a reader in an order": _in_order,
    "a copy in an order": _copied_in_order,
    "a reader with an edge": _behind_another,
    "a dynamic view": _dynamic,
    "another dtype": _other_dtype,
    "an address in PSUM": _at_an_address,
    "several banks": _several_banks,
    "no reader": lambda x, row, out: wide(row),
}


@together("name", STAYS)
def test_stays(name: str) -> None:
    before, after = passed(around(STAYS[name]), [X, ROW], copy_propagation.PASS)
    assert after is before
    assert results(before, [X, ROW])  # it is a kernel that runs


def test_longer_rows_stay() -> None:
    """Their products are in several banks, and one copy each goes to the tile."""
    row = np.linspace(0.5, 2.5, 600, dtype=np.float32).reshape(1, 600)
    before, after = passed(
        around(lambda x, row, out: times(x, wide(row)[:, 0:COLUMNS]), 600), [X, row], copy_propagation.PASS
    )
    assert counted(before)[COPY] == 2
    assert after is before


@pytest.mark.parametrize(("target", "copies"), [("trn1", 0), ("trn2", 1), ("trn3", 1)])
def test_a_slower_reader_keeps_it(target: str, copies: int) -> None:
    """From trn2 on, Vector reads SBUF at twice the rate if there is one operand, unless that is small."""
    row = np.linspace(0.5, 2.5, 256, dtype=np.float32).reshape(1, 256)

    def use(x: Any, row: Any, out: Any) -> None:
        for columns in (8, 256):
            tile = wide(row)
            times(x[:, 0:8], tile[:, 0:8])
            nisa.tensor_scalar(dst=sbuf((ROWS, columns)), data=tile[:, 0:columns], op0=nl.add, operand0=1.0)

    (before,) = traced(around(use, 256), X, row, target=target)
    assert counted(copy_propagation.PASS.run(before, Context(load_target(target))))[COPY] == copies


def test_a_row_of_one_bank_goes() -> None:
    row = np.linspace(0.5, 2.5, 512, dtype=np.float32).reshape(1, 512)
    _, after = passed(
        around(lambda x, row, out: times(x, wide(row)[:, 0:COLUMNS]), 512), [X, row], copy_propagation.PASS
    )
    assert counted(after)[COPY] == 0


def test_readers_before_the_copy_keep_it() -> None:
    """They would read what was there before."""
    (program,) = traced(around(lambda x, row, out: times(x, wide(row))), X, ROW)
    items = program.body.items
    items[4], items[5] = items[5], items[4]
    assert copy_propagation.PASS.run(program, Context(load_target("trn2"))) is program


def test_tiles_with_addresses_keep_them() -> None:
    (program,) = traced(around(lambda x, row, out: times(x, wide(row))), X, ROW)
    context = Context(load_target("trn2"))
    placed = addresses.PASS.run(program, context)
    assert copy_propagation.PASS.run(placed, context) is placed
