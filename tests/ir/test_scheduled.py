"""Schedules, placements and fences in IR: they survive, and damaged ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.errors import IRError
from nki.ir.build import build
from nki.ir.read import read
from nki.ir.text import from_bytecode, from_text, to_bytecode, to_text
from nki.spec.program import Block, ForLoop, Issued, Program, Sync, Wait, WhileLoop
from nki.testing.equality import differences
from tests.ir.kernels import array, looped, scaled_sum, traced

WAYS: list[Callable[[Any], Any]] = [
    lambda m: m,
    lambda m: from_text(to_text(m)),
    lambda m: from_bytecode(to_bytecode(m)),
]


def schedule(block: Block) -> None:
    """Some queue for every instruction; what it says need not make sense."""
    block.sync = []
    for number, item in enumerate(block.items):
        if isinstance(item, ForLoop | WhileLoop):
            schedule(item.body)
            block.sync.append(None)
        else:
            waits = (Wait("dma3", number), Wait("tensor", 2)) if number else ()
            block.sync.append(Sync(item.engine.name, waits, number % 2 == 0))


def placed(program: Program) -> Program:
    """The program with everything that a compiler adds."""
    schedule(program.body)
    program.placement = {b.id: (0, 64 * b.id) for b in program.body.all_buffers() if b.on_chip and b.address is None}
    program.fences = [(0, 2)]
    program.passed = ("allocate_and_schedule", "schedule")
    return program


@pytest.mark.parametrize("way", WAYS, ids=["memory", "text", "bytecode"])
@pytest.mark.parametrize("kernel", [scaled_sum, looped])
def test_a_compiled_program_survives(kernel: Any, way: Callable[[Any], Any]) -> None:
    arguments = (array(), array()) if kernel is scaled_sum else (array(),)
    (program,) = traced(kernel, *arguments)
    (back,) = read(way(build([placed(program)])))
    assert differences(program, back) == []
    assert back.placement == program.placement
    assert back.placement
    assert back.body.sync == program.body.sync


def test_an_unscheduled_program_has_no_schedule() -> None:
    (program,) = traced(scaled_sum, array(), array())
    (back,) = read(build([program]))
    assert back.body.sync is None
    assert back.placement is None


@pytest.mark.parametrize(
    ("code", "old", "new", "message"),
    [
        ("ir.value", '"dma3:1,tensor:2"', '"dma3,tensor:2"', "dma3,tensor:2"),
        ("ir.value", '"dma3:1,tensor:2"', '"dma3:0,tensor:2"', "dma3:0"),
        ("ir.attribute", 'nki.queue = "', 'nki.qeue = "', "nki.qeue"),
        ("ir.value", "fences = array<i64: 0, 2>", "fences = array<i64: 2, 2>", "ranges of positions"),
        ("ir.value", "fences = array<i64: 0, 2>", "fences = array<i64: 0>", "ranges of positions"),
        ("ir.value", "allocated = true, ", "", "an allocated kernel"),
        ("ir.value", "placement = array<i64: 0, ", "placement = array<i64: -1, ", "(partition, byte)"),
    ],
)
def test_damage_is_refused(code: str, old: str, new: str, message: str) -> None:
    (program,) = traced(scaled_sum, array(), array())
    text = to_text(build([placed(program)]))
    assert old in text
    with pytest.raises(IRError) as caught:
        read(from_text(text.replace(old, new, 1)))
    assert caught.value.code == code
    assert message in str(caught.value)


def test_half_a_schedule_is_refused() -> None:
    (program,) = traced(scaled_sum, array(), array())
    placed(program)
    assert program.body.sync is not None
    program.body.sync[-1] = None
    with pytest.raises(IRError, match="have a queue"):
        read(build([program]))


def test_no_reorder_is_noted() -> None:
    def kernel(a: Any) -> Any:
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        with nl.no_reorder():
            nisa.tensor_scalar(tile, tile, nl.add, 1.0)
            with nl.no_reorder():
                nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
            nisa.tensor_scalar(tile, tile, nl.add, 1.0)
        nl.store(out, tile)
        return out

    (program,) = traced(kernel, array())
    names = [item.instruction.name for item in program.body.items if isinstance(item, Issued)]
    first = names.index("tensor_scalar")
    assert program.fences == [(first, first + 3)]
    (back,) = read(build([program]))
    assert back.fences == program.fences
