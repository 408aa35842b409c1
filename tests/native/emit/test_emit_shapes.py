"""Row kernels on rows of all lengths, on strided and permuted views, in place, by parts, and where they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.native.trace.symbolic_execution import Trace, trace
from nki.sim.machine import Machine
from nki.spec.program import Issued
from tests.native.emit.emit_cases import Copies, agree, buffers_of, compared, native
from tests.support import environment

LENGTHS = (*range(1, 10), 15, 16, 17, 31, 32, 33, 40, 511, 512, 513)
SPECIALS = (
    0,
    0x8000_0000,
    0xFFC0_0000,
    0x7F80_0000,
    0xFF80_0000,
    1,
    0x007F_FFFF,
    0x7F7F_FFFF,
    0x477F_F000,
    0x43E8_0000,
)
"""Bits of float32; of two different NaN as operands, the processor may choose either, so that there is only one."""

pytestmark = pytest.mark.filterwarnings("ignore")


def values(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Special values, small numbers, and any bits."""
    r = np.random.default_rng(seed)
    small = r.normal(0, 3, shape).astype(np.float32).view(np.uint32)
    anything = r.integers(0, 2**32, shape, dtype=np.uint32)
    bits = np.choose(r.integers(0, 3, shape), [r.choice(np.array(SPECIALS, np.uint32), shape), small, anything])
    found = bits.astype(np.uint32).view(np.float32)
    return np.where(np.isnan(found), np.uint32(0xFFC0_0000).view(np.float32), found)


def load(array: Any, dtype: Any = None) -> Any:
    tile = nl.ndarray(array.shape, nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=array)
    if dtype in (None, nl.float32):
        return tile
    other = nl.ndarray(array.shape, dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=other, src=tile, engine=nisa.engine.vector)
    return other


def empty(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def run(body: Callable[..., None], *arrays: np.ndarray) -> dict[str, int]:
    """Run a kernel; every instruction of it is compared. How many there were, by name."""
    counts: dict[str, int] = {}
    with compared({}, counts):
        nki.simulate(nki.jit(_finished(body)))(*arrays)
    return counts


def _finished(body: Callable[..., None]) -> Callable[..., Any]:
    """A kernel that does this and returns something."""

    def kernel(*tensors: Any) -> Any:
        body(*tensors)
        out = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        last = empty((1, 1))
        nisa.memset(dst=last, value=0.0)
        nisa.dma_copy(dst=out, src=last)
        return out

    return kernel


def _work(a: Any, b: Any, column: Any, dtype: Any) -> None:
    shape = a.shape
    first, second, bias = load(a, dtype), load(b, dtype), load(column)
    single = (shape[0], 1)
    nisa.tensor_tensor(empty(shape, dtype), first, second, nl.add)
    nisa.tensor_scalar(empty(shape, dtype), first, nl.subtract, bias, reverse0=True, op1=nl.maximum, operand1=0.25)
    for op in (nl.add, nl.subtract, nl.multiply, nl.maximum, nl.minimum, nl.logical_and, nl.logical_xor):
        nisa.tensor_reduce(empty(single), op, first, axis=1)
    nisa.activation_reduce(empty(shape, dtype), nl.exp, first, nl.add, empty(single), bias=bias)
    nisa.tensor_scalar_reduce(empty(shape, dtype), first, nl.multiply, 2.0, nl.add, empty(single))
    nisa.tensor_tensor_scan(empty(shape, dtype), first, second, bias, nl.multiply, nl.add)
    nisa.tensor_scalar_cumulative(empty(shape, dtype), first, nl.add, nl.maximum, 1.0)
    if shape[1] <= 512:
        nisa.bn_stats(empty((shape[0], 6)), first)


@pytest.mark.parametrize("partitions", [1, 3, 128])
def test_all_lengths(partitions: int) -> None:
    lengths = LENGTHS if partitions == 3 else LENGTHS[::6]
    for seed, count in enumerate(lengths):
        dtype = nl.bfloat16 if seed % 2 else nl.float32
        arrays = [values(3 * seed + i, (partitions, extent)) for i, extent in enumerate((count, count, 1))]
        counts = run(lambda a, b, c, dtype=dtype: _work(a, b, c, dtype), *arrays)
        assert counts["tensor_reduce"] == 7
        assert counts["tensor_tensor_scan"] == counts["tensor_scalar_cumulative"] == 1


DTYPES = (
    "float32",
    "bfloat16",
    "float16",
    "tfloat32",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e5m2",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "bool_",
)


@pytest.mark.parametrize("source", DTYPES)
def test_casts(source: str) -> None:
    bits = np.random.default_rng(7).integers(0, 2**32, (4, 999), dtype=np.uint32)
    bits[:, : len(SPECIALS)] = SPECIALS

    def body(a: Any) -> None:
        data = load(a, getattr(nl, source))
        for name in DTYPES:
            nisa.tensor_copy(empty(a.shape, getattr(nl, name)), data, engine=nisa.engine.vector)

    assert run(body, bits.view(np.float32))["tensor_copy"] >= len(DTYPES)


def test_strided_permuted_and_repeated_views() -> None:
    def body(a: Any, b: Any) -> None:
        for dtype in (nl.float32, nl.bfloat16, nl.uint8):
            first, second, result = load(a, dtype), load(b, dtype), load(a, dtype)
            nisa.tensor_tensor(result[:, 0:40:2], first[:, 1:40:2], second[:, 10:30], nl.add)
            cube, other = first.reshape((5, 4, 10)), result.reshape((5, 10, 4))
            nisa.tensor_tensor(other, cube.permute((0, 2, 1)), second.reshape((5, 10, 4)), nl.multiply)
            nisa.tensor_reduce(result[:, 0:40:4], nl.maximum, cube.permute((0, 2, 1)), axis=2)
            nisa.tensor_copy(result[0:3, 3:20], first[0:3, 3:20])

    counts = run(body, values(1, (5, 40)), values(2, (5, 40)))
    assert (counts["tensor_tensor"], counts["tensor_reduce"]) == (6, 3)


def test_groups() -> None:
    def body(a: Any) -> None:
        for groups in (2, 3, 5, 12):
            data = load(a).reshape((7, groups, 60 // groups))
            for op in (nl.add, nl.minimum, nl.logical_or):
                nisa.tensor_reduce(empty((7, groups), nl.bfloat16), op, data, axis=2)

    assert run(body, values(3, (7, 60)))["tensor_reduce"] == 12


def test_in_place() -> None:
    def body(a: Any) -> None:
        for count in (1, 5, 40, 300):
            tile = load(a)[:, 0:count]
            nisa.tensor_scalar(tile, tile, nl.multiply, 1.5, op1=nl.add, operand1=tile[:, 0:1])
            nisa.activation_reduce(tile, nl.square, tile, nl.add, empty((6, 1)), bias=tile[:, count - 1 : count])
            nisa.tensor_tensor_scan(tile, tile, tile, 0.5, nl.multiply, nl.add)

    assert run(body, values(4, (6, 300)))["tensor_scalar"] == 4


def _executed(
    body: Callable[[Any], None], array: np.ndarray, check: Callable[[Machine, Issued], None], name: str = "activation"
) -> None:
    """Call `check` before each instruction of a name."""
    original = Machine.run

    def run_checked(machine: Machine, issued: Issued) -> None:
        machine.engine = issued.engine
        if issued.instruction.name == name:
            check(machine, issued)
        original(machine, issued)

    with pytest.MonkeyPatch.context() as patch, environment(NKI_NATIVE="0"):
        patch.setattr(Machine, "run", run_checked)
        nki.simulate(nki.jit(_finished(body)))(array)


@pytest.mark.parametrize(("step", "status"), [(1, 0), (2, 1)])
def test_rows_longer_than_scratch_memory(step: int, status: int) -> None:
    """Dense rows need none of it; where strided ones do not fit, the kernel refuses."""
    seen: list[int] = []

    def check(machine: Machine, issued: Issued) -> None:
        if issued.arguments.dst.dtype == nl.bfloat16:
            seen.append(native(trace(issued, machine.target), Copies(machine, buffers_of(machine, issued))))

    def body(a: Any) -> None:
        result = nl.ndarray((1, 300_000), nl.bfloat16, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=result, src=a[:, 0 : 300_000 * step : step])

    _executed(body, np.ones((1, 300_000 * step), np.float32), check, "dma_copy")
    assert seen == [status]


def test_partitions_may_be_executed_by_parts() -> None:
    seen: list[Trace] = []

    def check(machine: Machine, issued: Issued) -> None:
        traced = trace(issued, machine.target)
        whole, parts = (Copies(machine, buffers_of(machine, issued)) for _ in range(2))
        assert native(traced, whole) == 0
        for first, last in ((5, 9), (0, 5), (9, 9)):
            assert native(traced, parts, first, last) == 0
        for number, expected in whole.guarded.items():
            assert (parts.guarded[number] == expected).all()
        assert parts.registers["accumulator"].tobytes() == whole.registers["accumulator"].tobytes()
        seen.append(traced)

    def body(a: Any) -> None:
        nisa.activation(
            empty((9, 50)), nl.exp, load(a), reduce_op=nl.add, reduce_res=empty((9, 1)),
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )  # fmt: skip

    _executed(body, values(5, (9, 50)), check)
    assert len(seen) == 1


@pytest.mark.parametrize(("value", "refused"), [(4.0, False), (-1.0, True), (0.0, False)])
def test_a_kernel_that_would_warn_writes_nothing(value: float, refused: bool) -> None:
    seen: list[int] = []

    def check(machine: Machine, issued: Issued) -> None:
        copies = Copies(machine, buffers_of(machine, issued))
        before = {number: array.copy() for number, array in copies.guarded.items()}
        status = native(trace(issued, machine.target), copies)
        same = all((copies.guarded[number] == array).all() for number, array in before.items())
        assert same == refused
        seen.append(status)

    array = np.full((4, 70), 2.0, np.float32)
    array[3, 69] = value

    def body(a: Any) -> None:
        result = empty((4, 70))
        nisa.memset(dst=result, value=-7.0)
        nisa.activation(result, nl.sqrt, load(a))

    _executed(body, array, check)
    assert seen == [int(refused)]


def test_a_wrong_kernel_is_noticed() -> None:
    def check(machine: Machine, issued: Issued) -> None:
        traced = trace(issued, machine.target)
        copies = Copies(machine, buffers_of(machine, issued))
        status = native(traced, copies)
        with pytest.raises(AssertionError, match="bytes differ"):
            agree(machine, issued, traced, copies, status, False)

    def body(a: Any) -> None:
        result = empty((4, 8))
        nisa.memset(dst=result, value=0.0)
        nisa.activation(result, nl.square, load(a))

    _executed(body, np.full((4, 8), 3.0, np.float32), check)
