"""Traces: what becomes a slot, what an immediate, what decides the signature, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.native.trace.expression import F32, ROW, Graph, MixedDomains
from nki.native.trace.symbolic_execution import NotTraceable, Trace, trace
from nki.sim.machine import Machine
from nki.spec.program import Issued
from nki.target.load import load_target
from tests.support import environment

Call = Callable[[], Any]


def tile(shape: tuple[int, ...] = (8, 32), dtype: Any = nl.float32, value: float = 1) -> Any:
    made = nl.ndarray(shape, dtype, buffer=nl.sbuf)
    nisa.memset(dst=made, value=value)
    return made


def issued(call: Call, name: str) -> Issued:
    """The last instruction of that name that a kernel with this call executes."""
    found: list[Issued] = []
    original = Machine.run

    def run(machine: Machine, record: Issued) -> None:
        found.append(record)
        original(machine, record)

    def kernel(a: Any) -> Any:
        call()
        out = nl.ndarray((1, 1), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile((1, 1)))
        return out

    with pytest.MonkeyPatch.context() as patch, environment(NKI_NATIVE="0"):
        patch.setattr(Machine, "run", run)
        nki.simulate(nki.jit(kernel))(np.zeros((1, 1), np.float32))
    return [record for record in found if record.instruction.name == name][-1]


def traced(call: Call, name: str) -> Trace:
    return trace(issued(call, name), load_target("trn2"))


def scaled(factor: float, shape: tuple[int, ...] = (8, 32), dtype: Any = nl.float32) -> Trace:
    def call() -> None:
        nisa.tensor_scalar(
            tile(shape, dtype), tile(shape, dtype), nl.multiply, factor, op1=nl.add, operand1=tile((8, 1))
        )

    return traced(call, "tensor_scalar")


def test_slots_and_immediates_of_tensor_scalar() -> None:
    made = scaled(2.5)
    assert [(slot.path, slot.mode, slot.row) for slot in made.slots] == [
        ("data", "read", True),
        ("operand1", "read", False),
        ("dst", "write", True),
    ]
    assert made.immediates == (int(np.float32(2.5).view(np.uint32)),)
    assert (made.partitions, made.count) == (8, 32)
    assert made.streaming


def test_signature_depends_on_dtypes_and_ranks_only() -> None:
    plain = scaled(2.5)
    assert scaled(-1.0).signature == plain.signature
    assert scaled(2.5, (8, 4, 16)).signature == plain.signature
    assert scaled(2.5, (8, 1)).signature != plain.signature
    assert scaled(2.5, dtype=nl.bfloat16).signature != plain.signature


def test_registers_are_slots() -> None:
    def call() -> None:
        nisa.activation_reduce(tile(), nl.exp, tile(), nl.add, tile((8, 1)))

    paths = [(slot.path, slot.mode) for slot in traced(call, "activation_reduce").slots]
    assert paths == [
        ("data", "read"),
        ("accumulator", "write"),
        ("defined", "write"),
        ("dst", "write"),
        ("reduce_res", "write"),
    ]


def test_parts_of_rows_are_slots_of_their_argument() -> None:
    made = traced(lambda: nisa.bn_stats(tile((8, 6)), tile()), "bn_stats")
    data = [slot.view for slot in made.slots if slot.path == "data" and slot.view is not None]
    assert [(view.shape, view.strides[1], view.offset - data[0].offset) for view in data] == [
        ((8, 32), 1, 0),
        ((8, 16), 2, 0),
        ((8, 16), 2, 1),
    ]


def test_equal_expressions_are_one_node() -> None:
    graph = Graph()
    a, b = (graph.leaf("load", number, F32, ROW, 0) for number in (0, 1))
    total = graph.node("add", (a, b), F32)
    assert graph.node("add", (graph.leaf("load", 0, F32, ROW, 0), b), F32) is total
    assert graph.node("add", (b, a), F32) is not total
    assert (total.rank, total.domain, len(graph.nodes)) == (ROW, 0, 4)
    with pytest.raises(MixedDomains):
        graph.node("add", (a, graph.leaf("load", 2, F32, ROW, 1)), F32)


@pytest.mark.parametrize(
    ("call", "name", "reason"),
    [
        (lambda: nisa.nc_transpose(tile((32, 32)), tile((32, 32)), nisa.engine.vector), "nc_transpose", "transpose"),
        (lambda: nisa.rng(tile(dtype=nl.uint32)), "rng", "random_bits"),
        (lambda: nisa.max8(tile((8, 8)), tile()), "max8", "computed by NumPy"),
    ],
)
def test_what_is_no_row_kernel_says_why(call: Call, name: str, reason: str) -> None:
    with pytest.raises(NotTraceable, match=reason):
        traced(call, name)


def test_tracing_is_cheap() -> None:
    def call() -> None:
        nisa.tensor_scalar(tile(), tile(), nl.multiply, 2.0, op1=nl.add, operand1=tile((8, 1)))

    record, target = issued(call, "tensor_scalar"), load_target("trn2")
    best = min([_seconds(record, target) for _ in range(30)])
    assert best < 500e-6, f"{best * 1e6:.0f} us; 30 to 50 us where nothing else runs"


def _seconds(record: Issued, target: Any) -> float:
    start = time.perf_counter()
    trace(record, target)
    return time.perf_counter() - start
