"""Wrong arguments are errors of this toolchain, with a code and a way out, in both modes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from nki.core.errors import ArgumentError, NkiError
from nki.language import python_numbers
from tests.language.support import normal, on_tiles, refused
from tests.together import together

HOST = np.zeros((4, 4), np.float32)
WRONG: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "list": ("language.tile", lambda x: nl.exp([1.0])),
    "numpy array": ("language.tile", lambda x: nl.add(x, HOST)),
    "string": ("language.tile", lambda x: nl.add(x, "1")),
    "complex": ("language.tile", lambda x: nl.add(x, 1j)),
    "two numbers": ("language.two-numbers", lambda x: nl.add(1, 2)),
    "two numbers in mod": ("language.two-numbers", lambda x: nl.mod(1, 2)),
    "number in a function": ("language.tile", lambda x: nl.exp(1.0)),
    "huge number": ("language.number", lambda x: nl.add(x, 10**400)),
    "shapes": ("language.broadcast", lambda x: nl.add(x, nl.zeros((64, 7), nl.float32))),
    "partitions": ("language.broadcast", lambda x: nl.add(x, nl.zeros((32, 1), nl.float32))),
    "unknown dtype": ("dtype.unknown", lambda x: nl.exp(x, dtype="float31")),
    "64-bit dtype": ("dtype.unsupported", lambda x: nl.exp(x, dtype="int64")),
    "mask": ("call.arguments", lambda x: nl.exp(x, mask=None)),  # type: ignore[call-arg]
    "missing": ("call.arguments", nl.add),  # type: ignore[call-arg]
    "misspelt": ("call.arguments", lambda x: nl.add(x, 1, dtpye=nl.float32)),  # type: ignore[call-arg]
    "surplus": ("call.arguments", lambda _: nl.program_ndim(1)),  # type: ignore[call-arg]
    "bits of floats": ("language.bitvec", lambda x: nl.bitwise_and(x, 1)),
    "invert floats": ("language.bitvec", nl.invert),
    "fraction as bits": ("language.bitvec", lambda x: nl.bitwise_and(nl.zeros((4, 4), nl.int32), 0.5)),
    "negative bits": ("language.bitvec", lambda x: nl.bitwise_or(nl.zeros((4, 4), nl.uint8), -1)),
    "wide bits": ("language.bitvec", lambda x: nl.bitwise_or(nl.zeros((4, 4), nl.int8), 200)),
    "axis of partitions": ("language.axis", lambda x: nl.sum(x, axis=0)),
    "axis too large": ("language.axis", lambda x: nl.sum(x, axis=2)),
    "axis too small": ("language.axis", lambda x: nl.max(x, axis=-3)),
    "axis twice": ("language.axis", lambda x: nl.max(x, axis=(1, 1))),
    "no axis": ("language.axis", lambda x: nl.max(x, axis=())),
    "gap in axes": ("language.axis", lambda x: nl.sum(nl.zeros((4, 4, 4), nl.float32), axis=1)),
    "axis kind": ("language.integer", lambda x: nl.sum(x, axis=1.0)),
    "axis text": ("language.integer", lambda x: nl.sum(x, axis="x")),
    "keepdims": ("language.flag", lambda x: nl.sum(x, axis=1, keepdims=1)),  # type: ignore[arg-type]
    "keepdims of var": ("language.flag", lambda x: nl.var(x, axis=1, keepdims="no")),  # type: ignore[arg-type]
    "float shape": ("tensor.shape", lambda x: nl.zeros((64, 40 / 2), nl.float32)),
    "empty shape": ("tensor.empty", lambda x: nl.full((0, 4), 1.0, nl.float32)),
    "fill": ("language.number", lambda x: nl.full((4, 4), "1", nl.float32)),
    "fill fraction": ("memset.value-kind", lambda x: nl.full((4, 4), 0.5, nl.int32)),
    "region": ("tensor.buffer", lambda x: nl.zeros((4, 4), nl.float32, buffer="sbuf")),
    "region question": ("tensor.buffer", lambda x: nl.is_sbuf("sbuf")),
    "like": ("language.tile", lambda x: nl.zeros_like((4, 4))),
    "many partitions": ("tensor.partitions", lambda x: nl.zeros((129, 4), nl.float32)),
    "slice": ("language.integer", lambda x: x[nl.ds(0.0, 4), :]),  # type: ignore[arg-type]
    "new partition axis": ("access.partition-dim", lambda x: nl.expand_dims(x, 0)),
    "new axis beyond": ("access.dimension", lambda x: nl.expand_dims(x, 5)),
    "broadcast rank": ("language.broadcast", lambda x: nl.broadcast_to(x, (64, 2, 40))),
    "broadcast size": ("language.broadcast", lambda x: nl.broadcast_to(x, (64, 80))),
    "load a tile": ("language.region", nl.load),
    "store to a tile": ("language.region", lambda x: nl.store(x, x)),
    "transpose 3-d": ("language.rank", lambda x: nl.transpose(nl.zeros((4, 4, 4), nl.float32))),
    "contraction": ("language.contraction", lambda x: nl.matmul(x, x)),
    "transpose_x": ("language.flag", lambda x: nl.matmul(x, x, transpose_x=1)),  # type: ignore[arg-type]
    "rate": ("language.rate", lambda x: nl.dropout(x, 1.5)),
    "rms count": ("language.count", lambda x: nl.rms_norm(x, x, axis=1, n=0)),
    "rms epsilon": ("language.number", lambda x: nl.rms_norm(x, x, axis=1, n=40, epsilon=x)),
    "seed": ("language.tile", lambda x: nl.random_seed(42)),
    "random integers": ("language.rand", lambda x: nl.rand((4, 4), nl.int32)),
    "gather axis": ("language.axis", lambda x: nl.gather_flattened(x, nl.zeros((64, 4), nl.uint32), axis=1)),
    "gather index": ("language.index", lambda x: nl.gather_flattened(x, x)),
    "identity size": ("language.integer", lambda x: nl.shared_identity_matrix(8.0)),  # type: ignore[arg-type]
    "constant": ("constant.kind", lambda x: nl.shared_constant([1, 2])),
    "constant dtype": ("dtype.unsupported", lambda x: nl.shared_constant(np.zeros(4))),
    "constant file": ("constant.file", lambda x: nl.shared_constant("/nonexistent.npy")),
    "empty constant": ("constant.empty", lambda x: nl.shared_constant(HOST[:0])),
    "prefix": ("operand.kind", lambda x: nl.device_print(3, x)),  # type: ignore[arg-type]
    "grid axis": ("grid.axis", lambda x: nl.program_id(1)),
    "grid axes": ("grid.axis", lambda x: nl.num_programs((0, 1))),
    "packed": ("language.packed", lambda x: nl.exp(nl.zeros((4, 4), nl.float8_e4m3fn_x4))),
}


@pytest.mark.parametrize(("code", "function"), WRONG.values(), ids=WRONG)
def test_wrong_argument_is_an_error_with_a_fix(code: str, function: Callable[[Any], Any]) -> None:
    error = refused(lambda x: function(x) or x, normal((64, 40)))
    assert error.code == code
    assert error.fix
    assert error.location.frames and error.location.frames[0].file == __file__


def test_tensor_in_hbm_is_refused_with_the_way_to_load_it() -> None:
    def kernel(a: Any) -> Any:
        return nl.exp(a)

    with pytest.raises(NkiError) as caught:
        nki.simulate(kernel)(normal((4, 4)))
    assert caught.value.code == "language.region"
    assert "nl.load(x)" in caught.value.fix


def test_outside_a_kernel() -> None:
    for call in (lambda: nl.zeros((4, 4), nl.float32), nl.program_id, nl.no_reorder):
        with pytest.raises(NkiError) as caught:
            call()
        assert caught.value.code == "kernel.outside"


def test_misspelt_argument_names_the_right_one() -> None:
    with pytest.raises(ArgumentError) as caught:
        nl.add(1, 2, dtpye=None)  # type: ignore[call-arg]
    assert caught.value.fix == "write dtype="
    assert "nl.add(x, y, dtype=None)" in str(caught.value)


def test_errors_of_the_kernel_itself_pass_through() -> None:
    def body(index: Any) -> None:
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        nki.simulate(lambda a: nl.fori_loop(0, 1, body))(normal((4, 4)))


NUMBERS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("abs", "ceil", "exp", "floor", "negative", "relu", "sigmoid"), (-1.25,)),
    **dict.fromkeys(("square", "tanh", "trunc"), (-1.25,)),
    **dict.fromkeys(("arctan", "cos", "erf", "log", "reciprocal", "rsqrt", "sin", "sqrt", "tan"), (0.75,)),
    **dict.fromkeys(("add", "divide", "maximum", "minimum", "multiply", "subtract"), (-2.5, 4.0)),
    **dict.fromkeys(("fmod", "mod", "power"), (7.5, 2.0)),
    **dict.fromkeys(("equal", "greater", "greater_equal", "less", "less_equal", "not_equal"), (-3, 2)),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"), (13, 2)),
    **dict.fromkeys(("logical_and", "logical_or"), (0, 2)),
    "logical_not": (0,),
}


@together("name", sorted(python_numbers._IN_PYTHON))
def test_what_python_computes_of_numbers_is_what_the_function_computes_of_tiles(name: str) -> None:
    function, values = getattr(nl, name), NUMBERS[name]
    fix = refused(lambda x: function(*values), normal((1, 1))).fix
    found = re.fullmatch(r"(?:for a number )?write (.*?)(?:; for a tensor, .*)?", fix)
    assert found is not None
    dtype = np.int32 if all(isinstance(value, int) for value in values) else np.float32
    tiles = [np.full((1, 1), value, dtype) for value in values]
    np.testing.assert_allclose(float(eval(found[1], {"math": math})), on_tiles(function, *tiles).item(), rtol=2e-6)


def test_a_number_where_python_has_no_such_function() -> None:
    fix = "make a tile of it with nl.full((1, 1), 2.0, nl.float32)"
    assert refused(lambda x: nl.gelu(2.0), normal((4, 4))).fix == fix
    assert refused(lambda x: nl.where(2.0, x, x), normal((4, 4))).fix == fix
