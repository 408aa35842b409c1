"""What kernels write out of habit from NumPy, torch, Triton and older NKI: the error says what to write here."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.core.errors import NkiError, RemovedError
from nki.core.names import removed_table as removed
from tests.support import both, rejection
from tests.together import together

pytestmark = pytest.mark.filterwarnings("ignore:.*return.nothing:nki.report.NkiWarning")  # kernels for one line

X = np.arange(32, dtype=np.float32).reshape(4, 8)

TRUTH = (
    "choose with nl.where(mask, a, b), combine masks with nl.logical_and, or loop with nl.while_loop on a register; "
    "test `tensor is None` for options"
)
NO_DIVIDE = (
    "no engine divides: pass nl.multiply, and as the operand 1 / number, "
    "or the tile that nisa.reciprocal(dst=tile, data=divisor) writes"
)

HABITS: list[tuple[str, str, Callable[[Any, Any], Any]]] = [
    ("tensor.attribute", "write nl.sum(tensor, ...)", lambda x, a: x.sum(axis=1)),
    ("tensor.attribute", "write nl.max(nl.load(tensor), ...)", lambda x, a: a.max()),
    ("tensor.attribute", "write nl.copy(tensor, dtype=...)", lambda x, a: x.astype(nl.bfloat16)),
    ("tensor.attribute", "write nl.transpose(tensor), or tensor.permute(dims) for a view of it", lambda x, a: x.T),
    (
        "tensor.attribute",
        "load it with nisa.scalar_load(tensor): values are known when the kernel runs",
        lambda x, a: a[0, 0].item(),
    ),
    (
        "access.dynamic-index",
        "choose between values with nl.where(mask, value, tensor): a mask is no index",
        lambda x, a: x[nl.greater(x, 3)],
    ),
    (
        "access.dynamic-index",
        "choose between values with nl.where(mask, value, tensor): a mask is no index",
        lambda x, a: x.__setitem__(nl.greater(x, 3), 0),
    ),
    ("tensor.buffer", "write buffer=nl.hbm", lambda x, a: nl.ndarray((4, 8), nl.float32, buffer="hbm")),
    ("tensor.buffer", "write buffer=nl.psum", lambda x, a: nl.ndarray((4, 8), nl.float32, buffer="psum")),
    ("tensor.buffer", "write buffer=nl.sbuf", lambda x, a: nl.ndarray((4, 8), nl.float32, buffer=["hbm"])),
    ("tensor.shape", "write (4, 8), dtype=...", lambda x, a: nl.ndarray(4, 8)),
    ("tensor.shape", "write (4, 8), dtype=...", lambda x, a: nl.zeros(4, 8)),
    (
        "language.tile",
        "pass the dst of the instruction: it wrote there, and returned no tensor",
        lambda x, a: nl.store(a, nisa.memset(x, 0)),
    ),
    (
        "operand.kind",
        "pass the dst of the instruction: it wrote there, and returned no tensor",
        lambda x, a: nisa.dma_copy(dst=a, src=nisa.memset(x, 0)),
    ),
    ("tensor.assignment", "copy what is needed to a tensor of its own", lambda x, a: x.__delitem__(0)),
    ("language.region", "exchange the two to write the tensor in HBM, or write dst[...] = value to read it", nl.store),
    ("language.region", "write dst[...] = value", lambda x, a: nl.store(x, x)),
    ("tensor.truth", TRUTH, lambda x, a: bool(x[0:1, 0:1])),
    ("operand.operator", NO_DIVIDE, lambda x, a: nisa.tensor_tensor(x, x, x, op=nl.divide)),
    (
        "register.python-value",
        "write nl.dynamic_range(register) in place of range(register)",
        lambda x, a: range(nisa.register_alloc(3)),
    ),
    (
        "register.python-value",
        "use tensor.select(dim, register), after tensor.reshape((blocks, rows, columns)) if it counts blocks, "
        "or scalar_offset of tensor.ap(...)",
        lambda x, a: a[nisa.register_alloc(1) :],
    ),
    (
        "operand.kind",
        "load one element with nisa.register_load(dst, src=tensor)",
        lambda x, a: nisa.register_move(nisa.register_alloc(), x),
    ),
    (
        "operand.kind",
        "round it in Python: registers hold 32-bit integers",
        lambda x, a: nisa.register_move(nisa.register_alloc(), 4.5),
    ),
    (
        "operand.kind",
        "make one with nisa.register_alloc(); one that holds 3 is nisa.register_alloc(3)",
        lambda x, a: nisa.register_move(3, 42),
    ),
    (
        "tensor.assignment",
        "keep the blocks as a Python list of tiles, or put the partitions first and write tensor[:, block]",
        lambda x, a: nl.ndarray((2, 4, 8), nl.float32).__setitem__(1, x),
    ),
]


@together("code, fix, habit", HABITS)
def test_what_to_write_instead(code: str, fix: str, habit: Callable[[Any, Any], Any]) -> None:
    def kernel(a: Any) -> None:
        habit(nl.load(a), a)

    error = rejection(kernel, X)
    assert (error.code, error.fix) == (code, fix)


def test_that_works() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.load(a)
        blocks = nl.ndarray((4, 2, 8), a.dtype)
        blocks[:, 0] = nl.where(nl.greater(tile, 3), 0, tile)
        blocks[:, 1] = nl.divide(tile, nl.sum(tile, axis=1, keepdims=True))
        out = nl.ndarray(blocks.shape, a.dtype, buffer=nl.shared_hbm)
        out[...] = blocks
        return out

    got = both(kernel, X)
    np.testing.assert_array_equal(got[:, 0], np.where(X > 3, 0, X))
    np.testing.assert_allclose(got[:, 1], X / X.sum(1, keepdims=True), rtol=1e-6)


@together("name", removed.TENSOR)
def test_attributes_of_arrays(name: str) -> None:
    def kernel(a: Any) -> None:
        tile = nl.load(a)
        assert not hasattr(tile, name)
        with pytest.raises(RemovedError) as caught:
            getattr(tile, name)
        assert caught.value.fix == removed.TENSOR[name]
        functions = re.findall(r"\bnl\.(\w+)", caught.value.fix)
        assert all(hasattr(nl, each) for each in functions)
        methods = re.findall(r"tensor\.(\w+)", caught.value.fix)
        assert all(hasattr(tile, each) for each in methods)
        others = ("nisa.scalar_load", "functions of nki.language", "tensor[...] =")
        assert functions or methods or any(each in caught.value.fix for each in others)

    nki.simulate(kernel)(X)


def test_other_attributes_are_plain_errors() -> None:
    def kernel(a: Any) -> None:
        tile = nl.load(a)
        for name, told in (
            ("bufer", "; did you mean buffer?"),
            ("nonsense", ""),
            ("_private", ""),
            ("__wrapped__", ""),
        ):
            with pytest.raises(AttributeError) as caught:
                getattr(tile, name)
            assert not isinstance(caught.value, NkiError)
            assert str(caught.value) == f"'NkiTensor' object has no attribute {name!r}{told}"
        assert copy.copy(tile).shape == tile.shape

    nki.simulate(kernel)(X)


@pytest.mark.parametrize("grid", [(2, 4), "2", 0, None, 2.0])
def test_grids(grid: Any) -> None:
    with pytest.raises(NkiError) as caught:
        nki.jit(lambda a: a)[grid]
    assert caught.value.code == "launch.grid"
    assert caught.value.fix == "write kernel[2](...), and loop over tiles in the kernel"


@pytest.mark.parametrize(
    ("region", "instruction"), [("hbm", "dma_copy"), ("sbuf", "tensor_copy"), ("psum", "tensor_copy")]
)
def test_a_tensor_that_a_loop_binds_again_is_written_by_what_reaches_it(region: str, instruction: str) -> None:
    def kernel(a: Any) -> None:
        kept = nl.ndarray((4, 8), a.dtype, buffer=getattr(nl, region))

        def body(_: Any) -> None:
            nonlocal kept
            kept = nl.ndarray((4, 8), a.dtype, buffer=getattr(nl, region))

        nl.fori_loop(0, 2, body)
        kept[...] = 0

    error = rejection(kernel, X)
    assert error.code == "loop.carried"
    assert error.fix.endswith(f"write into it: nisa.{instruction}(dst=kept, src=...)")
