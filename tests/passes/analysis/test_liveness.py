"""Live ranges against the definition, asked position by position."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

import nki.isa as nisa
from nki.core.errors import VerificationError
from nki.core.register import VirtualRegister
from nki.core.source import UNKNOWN
from nki.core.tensor import ScalarOffset, whole
from nki.passes.allocation.registers import check_registers
from nki.passes.analysis.liveness import liveness
from nki.spec.engine import engine
from nki.spec.program import Block, ForLoop, Issued, WhileLoop
from nki.target.load import load_target
from tests.passes.allocation.support import blocks, buffer, lives, loop, program, use


@given(blocks())
def test_it_equals_the_definition(block: Block) -> None:
    found = {each.buffer.id: set(range(each.first, each.last + 1)) for each in liveness(program(block)).buffers}
    assert found == {key: positions for key, (_, positions) in lives(block).items()}


@given(blocks())
def test_ranges_come_in_order_and_positions_are_counted(block: Block) -> None:
    live = liveness(program(block))
    assert live.positions == sum(1 for _ in block.walk())
    assert [each.first for each in live.buffers] == sorted(each.first for each in live.buffers)


def test_an_index_tensor_lives_until_it_is_used() -> None:
    data, index = buffer(0, 8), buffer(1, 8)
    dynamic = whole(data)._replace(dynamic=ScalarOffset(whole(index), 1))
    read = nisa.tensor_copy.arguments(dst=dynamic, src=dynamic, engine=engine.vector, name=None)
    items: list[Any] = [use(index), use(data), Issued(nisa.tensor_copy, read, UNKNOWN, engine.vector)]
    ranges = {each.buffer.id: each[1:] for each in liveness(program(Block([data, index], items))).buffers}
    assert ranges == {0: (1, 2), 1: (0, 2)}


# --- registers


def move(dst: VirtualRegister, src: VirtualRegister | int) -> Issued:
    return Issued(nisa.register_move, nisa.register_move.arguments(dst=dst, src=src), UNKNOWN, engine.sync)


def ranges_of(block: Block) -> dict[int, tuple[int, int]]:
    return {each.register.id: (each.first, each.last) for each in liveness(program(block)).registers}


def test_a_register_lives_from_its_first_to_its_last_use() -> None:
    a, b = VirtualRegister(0), VirtualRegister(1)
    assert ranges_of(Block([], [move(a, 1), move(b, 2), move(b, a), move(b, 3)])) == {0: (0, 2), 1: (1, 3)}


def test_a_register_from_outside_lives_during_a_whole_loop() -> None:
    a, b, index = VirtualRegister(0), VirtualRegister(1), VirtualRegister(2)
    body = Block([], [move(b, 1), move(b, a), move(b, 2)])
    found = ranges_of(Block([], [move(a, 1), ForLoop(0, 3, 1, index, body, UNKNOWN), move(VirtualRegister(3), 1)]))
    assert found == {0: (0, 3), 1: (1, 3), 2: (1, 3), 3: (4, 4)}


def test_bounds_are_needed_until_the_loop_begins_and_conditions_until_it_ends() -> None:
    bound, condition = VirtualRegister(0), VirtualRegister(1)
    body = Block([], [move(VirtualRegister(3), 1), move(VirtualRegister(4), 1)])
    items: list[Any] = [move(bound, 4), ForLoop(0, bound, 1, VirtualRegister(2), body, UNKNOWN)]
    assert ranges_of(Block([], items))[0] == (0, 1)
    assert ranges_of(Block([], [move(condition, 4), WhileLoop(condition, body, UNKNOWN)]))[1] == (0, 2)


def test_a_register_as_an_offset_is_a_use() -> None:
    offset, data = VirtualRegister(0), buffer(0, 8)
    view = whole(data)._replace(dynamic=ScalarOffset(offset, 1))
    copy = nisa.tensor_copy.arguments(dst=view, src=view, engine=engine.vector, name=None)
    items: list[Any] = [move(offset, 1), use(data), Issued(nisa.tensor_copy, copy, UNKNOWN, engine.vector)]
    assert ranges_of(Block([data], items)) == {0: (0, 2)}


def test_too_many_registers() -> None:
    unit = load_target("unit")  # 8 registers
    registers = [VirtualRegister(number) for number in range(9)]

    def needing(count: int) -> Block:
        return Block([], [*(move(r, 0) for r in registers[:count]), *(move(r, r) for r in registers[:count])])

    check_registers(program(needing(8)), liveness(program(needing(8))), unit)
    with pytest.raises(VerificationError) as caught:
        check_registers(program(needing(9)), liveness(program(needing(9))), unit)
    assert caught.value.code == "memory.registers"
    assert caught.value.facts == {"needed": 9, "capacity": 8, "position": 8}
    assert caught.value.message.splitlines()[0] == "9 registers are live at once"
    assert caught.value.message.splitlines()[-1] == "  1 more"


def test_many_registers_one_after_the_other() -> None:
    unit = load_target("unit")
    block = Block([], [move(r, 0) for r in map(VirtualRegister, range(100))])
    check_registers(program(block), liveness(program(block)), unit)


def test_an_empty_loop_needs_nothing() -> None:
    made = buffer(0, 8)
    assert liveness(program(Block([made], [loop(Block([buffer(1, 8)], [])), use(made)]))).buffers == ((made, 0, 0),)
