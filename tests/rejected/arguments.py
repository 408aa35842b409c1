"""Wrong arguments, calls and launches."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from tests.rejected.support import CALL, INTS, Topic, X, call, edit

TOPIC = Topic(__file__)
refused = TOPIC.refused
FIXED = X.copy()
FIXED.flags.writeable = False


NUMBERS = [[1.0, 2.0], [3.0, 4.0]]


@refused("language.tile", NUMBERS, at="nl.load(a)", cure=call(np.asarray(NUMBERS, np.float32)))
def list_of_numbers(a: Any) -> None:
    nl.load(a)


@refused("argument.no-array", NUMBERS, at="a[0:1, 0:2]", cure=call(np.asarray(NUMBERS, np.float32)))
def list_that_is_sliced(a: Any) -> None:
    nl.load(a[0:1, 0:2])


@nki.jit
def float64_array(a: Any) -> None:
    nl.load(a)


refused("argument.dtype", X.astype(np.float64), at=CALL, cure=call(X.astype(np.float32)))(float64_array)


@nki.jit
def int64_array(a: Any) -> None:
    nl.load(a)


refused("argument.dtype", INTS.astype(np.int64), at=CALL, cure=call(INTS))(int64_array)


@nki.jit
def text_array(a: Any) -> None:
    nl.load(a)


refused("argument.dtype", np.array(["text"]), at=CALL, cure=call(X))(text_array)


@nki.jit
def empty_array(a: Any) -> None:
    nl.load(a)


refused("argument.empty", X[:0], at=CALL, cure=None)(empty_array)


@nki.jit
def missing_argument(a: Any, b: Any) -> None:
    nl.load(b)


refused("call.kernel-arguments", X, at=CALL, cure=call(X, X))(missing_argument)


@nki.jit
def surplus_argument(a: Any) -> None:
    nl.load(a)


refused("call.kernel-arguments", X, X, at=CALL, cure=call(X))(surplus_argument)


@nki.jit
def three_cores(a: Any) -> None:
    nl.load(a)


refused("launch.lnc", X, lnc=3, at=CALL, cure=call(lnc=2))(three_cores)


@nki.jit
def two_cores_on_trn1(a: Any) -> None:
    nl.load(a)


refused("launch.lnc", X, lnc=2, target="trn1", at=CALL, cure=call(lnc=1))(two_cores_on_trn1)


@nki.jit
def returns_number(a: Any) -> int:
    nl.load(a)
    return 3


refused("return.kind", X, at="def returns_number(a: Any) -> int:", cure=edit("return 3", "return None"))(returns_number)


@refused("return.region", X, at="nl.load(a)", cure=edit("return tile", "nl.store(out, tile)\n    return out"))
def returns_sbuf(a: Any) -> Any:
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.store(out, tile)
    return tile


@nki.jit
def writes_a_read_only_array(a: Any) -> None:
    nl.store(a, nl.load(a))


refused(
    "argument.read-only",
    FIXED,
    at=CALL,
    cure=call(X),
)(writes_a_read_only_array)


@refused("call.unknown-argument", X, at="nisa.tensor_copy(dst=tile, scr=tile)", cure=edit("scr=", "src="))
def misspelt_argument(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_copy(dst=tile, scr=tile)


@refused(
    "call.unknown-argument", X, at="nisa.reciprocal(dst=tile, data=tile, rounding=2)", cure=edit(", rounding=2", "")
)
def unknown_argument(a: Any) -> None:
    tile = nl.load(a)
    nisa.reciprocal(dst=tile, data=tile, rounding=2)


@refused("call.missing", X, at="nisa.tensor_copy(dst=tile)", cure=edit("dst=tile", "dst=tile, src=tile"))
def missing_operand(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_copy(dst=tile)


@refused("call.too-many", X, at='nisa.memset(tile, 0, nisa.engine.vector, "fill", 5)', cure=edit(", 5", ""))
def too_many_operands(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile, 0, nisa.engine.vector, "fill", 5)


@refused("call.twice", X, at="nisa.memset(tile, 0, value=1)", cure=edit(", value=1", ""))
def operand_given_twice(a: Any) -> None:
    tile = nl.load(a)
    nisa.memset(tile, 0, value=1)


@refused("call.arguments", X, at="nl.load(a, mask=a)", cure=edit("a, mask=a", "a[0:2]"))
def removed_mask(a: Any) -> None:
    nl.load(a, mask=a)


@refused("operand.kind", X, at="nisa.tensor_copy(dst=tile, src=X)", cure=edit("src=X", "src=nl.load(a)"))
def array_of_the_host(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_copy(dst=tile, src=X)


@refused(
    "operand.kind",
    X,
    at="nisa.tensor_copy(dst=[tile], src=tile)",
    cure=edit("[tile]", "tile"),
)
def list_of_tensors(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_copy(dst=[tile], src=tile)


@refused(
    "operand.kind",
    X,
    at='nisa.tensor_copy(dst=tile, src=tile, engine="vector")',
    cure=edit('"vector"', "nisa.engine.vector"),
)
def engine_as_text(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_copy(dst=tile, src=tile, engine="vector")


@refused(
    "operand.operator",
    X,
    at="nisa.tensor_tensor(tile, tile, tile, op=max)",
    cure=edit("op=max", "op=nl.maximum"),
)
def operator_of_python(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_tensor(tile, tile, tile, op=max)


@refused("operand.operator", X, at='nisa.tensor_tensor(tile, tile, tile, op="add")', cure=edit('"add"', "nl.add"))
def operator_as_text(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_tensor(tile, tile, tile, op="add")


@refused("tensor.numpy", X, at="np.exp(tile)", cure=edit("np.exp", "nl.exp"))
def numpy_function(a: Any) -> None:
    tile = nl.load(a)
    np.exp(tile)


@refused("tensor.truth", X, at="bool(tile[0:1, 0:1])", cure=edit("bool(tile[0:1, 0:1])", "tile is not None"))
def truth_of_an_element(a: Any) -> None:
    tile = nl.load(a)
    if bool(tile[0:1, 0:1]):
        nisa.memset(tile, 0)


@refused(
    "tensor.iteration",
    X,
    at="iter(a)",
    cure=edit("for row in iter(a):", "for i in range(a.shape[0]):", "nl.load(row)", "nl.load(a[i])"),
)
def iteration_over_rows(a: Any) -> None:
    for row in iter(a):
        nl.load(row)


@refused("tensor.assignment", X, at="tile[:, 0:4]", cure=edit("[1.0, 2.0, 3.0, 4.0]", "1.0"))
def assignment_of_a_list(a: Any) -> None:
    tile = nl.load(a)
    tile[:, 0:4] = [1.0, 2.0, 3.0, 4.0]


@refused(
    "tensor.assignment",
    X,
    at="half[...]",
    cure=edit(
        "half[...] = nisa.activation(dst=tile[:, 0:4],",
        "nisa.activation(dst=half[...],",
    ),
)
def assignment_of_an_instruction(a: Any) -> None:
    tile = nl.load(a)
    half = nl.ndarray((4, 4), a.dtype)
    half[...] = nisa.activation(dst=tile[:, 0:4], op=nl.exp, data=tile[:, 4:8])


@refused(
    "tensor.assignment",
    INTS,
    at="tile[0:1, 0:1]",
    cure=edit("tile[0:1, 0:1] = count", "nisa.scalar_store(tile[0:1, 0:1], count)"),
)
def assignment_of_a_register(a: Any) -> None:
    tile = nl.load(a)
    count = nisa.register_alloc(3)
    tile[0:1, 0:1] = count


@refused("tensor_copy.shapes", X, at="tile[:, 0:8]", cure=edit("tile[:, 0:8]", "tile[:, 0:4]"))
def assignment_of_another_size(a: Any) -> None:
    tile = nl.load(a)
    tile[:, 0:8] = nl.exp(tile[:, 4:8])


@refused(
    "tensor.arithmetic",
    X,
    at="tile[:, 0:4] += 1.5",
    cure=edit("tile[:, 0:4] += 1.5", "tile[:, 0:4] = nl.add(tile[:, 0:4], 1.5)"),
)
def sum_in_place(a: Any) -> None:
    tile = nl.load(a)
    tile[:, 0:4] += 1.5


@refused(
    "tensor.arithmetic",
    X,
    at="a[0] -= tile",
    cure=edit("a[0] -= tile", "a[0] = nl.subtract(nl.load(a[0]).reshape((8, 1)), tile)"),
)
def difference_in_place_in_hbm(a: Any) -> None:
    tile = nl.load(a[1])
    a[0] -= tile


@refused(
    "call.destination",
    X,
    at="nisa.tensor_scalar(tile, nl.multiply, 2.0, mask=tile)",
    cure=edit(
        "y = nisa.tensor_scalar(tile, nl.multiply, 2.0, mask=tile)",
        "y = nl.ndarray((4, 8), a.dtype)\n    nisa.tensor_scalar(dst=y, data=tile, op0=nl.multiply, operand0=2.0)",
    ),
)
def scaled_as_before_0_2(a: Any) -> None:
    tile = nl.load(a)
    y = nisa.tensor_scalar(tile, nl.multiply, 2.0, mask=tile)
    nl.store(a, y)


@refused(
    "call.destination",
    X,
    at="nisa.nc_matmul(tile, tile, mask=tile)",
    cure=edit(
        "y = nisa.nc_matmul(tile, tile, mask=tile)",
        "y = nl.ndarray((8, 8), a.dtype, buffer=nl.psum)\n    nisa.nc_matmul(dst=y, stationary=tile, moving=tile)",
    ),
)
def product_as_before_0_2(a: Any) -> None:
    tile = nl.load(a)
    y = nisa.nc_matmul(tile, tile, mask=tile)
    nl.copy(y)


@refused(
    "call.missing",
    X,
    at="nisa.tensor_copy(tile)",
    cure=edit("nisa.tensor_copy(tile)", "nisa.tensor_copy(tile, src=tile)"),
)
def copy_of_what(a: Any) -> None:
    tile = nl.load(a)
    nisa.tensor_copy(tile)
