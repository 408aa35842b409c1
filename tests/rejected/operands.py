"""Operands in the wrong memory, dtype or shape, and engines that cannot run an instruction."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import INTS, WIDE, Topic, X, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused


@refused("operand.region", X, at="nisa.tensor_copy(dst=tile, src=a)", cure=edit("src=a", "src=nl.load(a)"))
def hbm_in_an_engine(a: Any) -> None:
    tile = nl.ndarray((4, 8), nl.float32)
    nisa.tensor_copy(dst=tile, src=a)


@refused(
    "operand.region",
    X,
    at="nisa.dma_copy(dst=bank, src=a)",
    cure=edit("dst=bank, src=a)", "dst=tile, src=a)\n    nisa.tensor_copy(dst=bank, src=tile)"),
)
def psum_by_dma(a: Any) -> None:
    tile = nl.ndarray((4, 8), nl.float32)
    bank = nl.ndarray((4, 8), nl.float32, buffer=nl.psum)
    nisa.memset(tile, 0)
    nisa.dma_copy(dst=bank, src=a)


@refused(
    "operand.region", X, at="nisa.nc_n_gather(dst=bank, data=tile, indices=index)", cure=edit(", buffer=nl.psum", "")
)
def psum_in_a_gather(a: Any) -> None:
    tile = nl.load(a)
    index = nl.zeros((4, 8), nl.uint32)
    bank = nl.ndarray((4, 8), nl.float32, buffer=nl.psum)
    nisa.nc_n_gather(dst=bank, data=tile, indices=index)


@refused(
    "operand.dtype",
    X,
    at="nisa.nc_n_gather(dst=tile, data=tile, indices=index)",
    cure=edit("nl.int32", "nl.uint32"),
)
def signed_gather_index(a: Any) -> None:
    tile = nl.load(a)
    index = nl.zeros((4, 8), nl.int32)
    nisa.nc_n_gather(dst=tile, data=tile, indices=index)


@refused(
    "operand.column",
    X,
    at="nisa.activation(dst=tile, op=nl.exp, data=tile, bias=bias)",
    cure=edit("bias=bias", "bias=bias[:, 0:1]"),
)
def bias_with_many_columns(a: Any) -> None:
    tile = nl.load(a)
    bias = nl.zeros((4, 8), nl.float32)
    nisa.activation(dst=tile, op=nl.exp, data=tile, bias=bias)


@refused("operand.start-partition", WIDE, at="nisa.memset(tile[8:40], 0.0)", cure=edit("8:40", "32:64"))
def start_inside_a_quadrant(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile[8:40], 0.0)


@refused(
    "operand.start-partition",
    WIDE,
    at="nisa.tensor_copy(dst=tile[0:64], src=tile[32:96])",
    cure=edit("tile[32:96]", "tile[64:128]"),
)
def sixty_four_partitions_from_thirty_two(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_copy(dst=tile[0:64], src=tile[32:96])


@refused(
    "operand.start-partition",
    WIDE,
    at="nisa.memset(tile, 0.0)",
    cure=edit("address=(48, 0)", "address=(32, 0)"),
)
def explicit_address_inside_a_quadrant(a: Any) -> None:
    tile = nl.ndarray((32, 16), nl.float32, address=(48, 0))
    nisa.memset(tile, 0.0)


@refused(
    "operand.rank",
    WIDE,
    at="nisa.tensor_copy(dst=copy, src=tile)",
    cure=edit(
        "copy = nl.load(a)",
        "copy = nl.zeros((128, 32), nl.float32)",
        "reshape((128, 2, 2, 2, 2, 2)).permute((0, 5, 4, 3, 2, 1))",
        "reshape((128, 2, 2, 2, 4)).permute((0, 4, 3, 2, 1))",
    ),
)
def five_free_dimensions(a: Any) -> None:
    copy = nl.load(a)
    tile = nl.load(a).reshape((128, 1, 16)).broadcast(1, 2).reshape((128, 2, 2, 2, 2, 2)).permute((0, 5, 4, 3, 2, 1))
    nisa.tensor_copy(dst=copy, src=tile)


@refused(
    "instruction.engine",
    X,
    at="nisa.tensor_copy(dst=tile, src=tile, engine=nisa.engine.tensor)",
    cure=edit(", engine=nisa.engine.tensor", ""),
)
def copy_on_the_tensor_engine(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_copy(dst=tile, src=tile, engine=nisa.engine.tensor)


@refused(
    "operand.gpsimd-psum",
    X,
    at="nisa.tensor_copy(dst=bank, src=tile, engine=nisa.engine.gpsimd)",
    cure=edit(", engine=nisa.engine.gpsimd", ""),
)
def psum_on_gpsimd(a: Any) -> None:
    tile = nl.load(a)
    bank = nl.ndarray((4, 8), nl.float32, buffer=nl.psum)
    nisa.tensor_copy(dst=bank, src=tile, engine=nisa.engine.gpsimd)


@refused(
    "operand.gpsimd-psum",
    X,
    at="nisa.tensor_tensor(dst=bank, data1=tile, data2=tile, op=nl.power)",
    cure=edit(", buffer=nl.psum", ""),
)
def power_into_psum(a: Any) -> None:
    tile = nl.load(a)
    bank = nl.ndarray((4, 8), nl.float32, buffer=nl.psum)
    nisa.tensor_tensor(dst=bank, data1=tile, data2=tile, op=nl.power)


@refused(
    "tensor_tensor.shapes",
    X,
    at="nisa.tensor_tensor(dst=tile, data1=tile, data2=tile[:, 0:1], op=nl.add)",
    cure=edit("tile[:, 0:1]", "tile[:, 0:1].broadcast(1, 8)"),
)
def broadcast_by_shape(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile[:, 0:1], op=nl.add)


@refused(
    "tensor_tensor.both-psum",
    X,
    at="nisa.tensor_tensor(dst=tile, data1=bank, data2=bank, op=nl.add)",
    cure=edit("data1=bank", "data1=nl.copy(bank)"),
)
def both_inputs_in_psum(a: Any) -> None:
    tile = nl.load(a)
    bank = nl.zeros((4, 8), nl.float32, buffer=nl.psum)
    nisa.tensor_tensor(dst=tile, data1=bank, data2=bank, op=nl.add)


@refused(
    "tensor_tensor.operator",
    X,
    at="nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.exp)",
    cure=edit(
        "tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.exp)", "activation(dst=tile, op=nl.exp, data=tile)"
    ),
)
def function_as_operator(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.exp)


@refused(
    "tensor_tensor.bitvec-dtype",
    X,
    at="nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.bitwise_and)",
    cure=edit("tile = nl.load(a)", "tile = nl.load(a).view(nl.int32)"),
)
def bits_of_floats(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.bitwise_and)


@refused("memset.value-range", INTS, at="nisa.memset(tile, 300)", cure=edit("nl.uint8", "nl.uint16"))
def value_too_large(a: Any) -> None:
    tile = nl.ndarray((4, 8), nl.uint8)
    nisa.memset(tile, 300)


@refused("memset.value-kind", INTS, at="nisa.memset(tile, 0.5)", cure=edit("0.5", "1"))
def fraction_into_integers(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile, 0.5)


@refused("operand.kind", X, at='nisa.memset(tile, "0")', cure=edit('"0"', "0"))
def text_as_value(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile, "0")


@refused(
    "tensor_scalar.operand1",
    X,
    at="nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0, op1=nl.multiply)",
    cure=edit("op1=nl.multiply", "op1=nl.multiply, operand1=2.0"),
)
def operator_without_operand(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0, op1=nl.multiply)


@refused(
    "tensor_scalar.operand-partitions",
    X,
    at="nisa.tensor_scalar(dst=tile[0:2], data=tile[0:2], op0=nl.add, operand0=tile[:, 0:1])",
    cure=edit("tile[:, 0:1]", "tile[0:2, 0:1]"),
)
def column_of_other_partitions(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile[0:2], data=tile[0:2], op0=nl.add, operand0=tile[:, 0:1])


@refused(
    "tensor_tensor.shapes",
    X,
    at="nisa.tensor_tensor(dst=tile, data1=tile, data2=tile[0:1], op=nl.add)",
    cure=edit("tile[0:1]", "nl.broadcast_to(tile[0:1], (4, 8))"),
)
def broadcast_a_row_by_shape(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile[0:1], op=nl.add)


@refused(
    "tensor_tensor.shapes",
    X,
    at="nisa.tensor_tensor(dst=part, data1=part, data2=tile, op=nl.add)",
    cure=edit("data2=tile", "data2=tile[0:3]"),
)
def more_rows_than_the_destination(a: Any) -> None:
    tile, part = nl.load(a), nl.load(a[0:3])
    nisa.tensor_tensor(dst=part, data1=part, data2=tile, op=nl.add)


@refused(
    "tensor_tensor.shapes",
    X,
    at="nisa.tensor_tensor(dst=part, data1=tile, data2=tile, op=nl.add)",
    cure=edit("data1=tile, data2=tile", "data1=tile[:, 0:5], data2=tile[:, 0:5]"),
)
def more_columns_than_the_destination(a: Any) -> None:
    tile, part = nl.load(a), nl.ndarray((4, 5), nl.float32)
    nisa.tensor_tensor(dst=part, data1=tile, data2=tile, op=nl.add)
