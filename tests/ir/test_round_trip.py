"""Reading gives back what was built, in memory, through text and through bytecode."""

from __future__ import annotations

import inspect
import math
import struct
from collections.abc import Callable
from typing import Any

import pytest

from nki.core.dtypes import BY_NAME
from nki.core.tensor import Buffer, MemoryRegion, whole
from nki.ir.build import build
from nki.ir.context import new_context
from nki.ir.mlir import Module
from nki.ir.read import read
from nki.ir.text import from_bytecode, from_text, to_bytecode, to_text
from nki.spec.instruction import REGISTRY
from nki.spec.program import ForLoop, Program, WhileLoop
from nki.testing.equality import differences
from tests.ir.kernels import array, dynamic_program, looped, scaled_sum, traced
from tests.isa.test_registry import LEGAL
from tests.together import together

Way = Callable[[Module], Module]
WAYS: dict[str, Way] = {
    "memory": lambda module: module,
    "text": lambda module: from_text(to_text(module)),
    "bytecode": lambda module: from_bytecode(to_bytecode(module)),
}

# One target for each example is enough: targets differ in rules and not in how a program is written.
EXAMPLES = list({id(example): (example, target) for example, target in LEGAL}.values())


def assert_survives(programs: list[Program], way: Way) -> None:
    for program, back in zip(programs, read(way(build(programs))), strict=True):
        assert differences(program, back) == []


@together("example, target", EXAMPLES, by=lambda example, _: example.instruction)
def test_every_legal_example_survives(example: Any, target: str) -> None:
    programs = traced(example.kernel, *example.arguments(), target=target, lnc=example.lnc)
    for way in WAYS.values():
        assert_survives(programs, way)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_loops_survive(way: Way) -> None:
    (program,) = traced(looped, array())
    assert_survives([program], way)
    (back,) = read(way(build([program])))
    outer, loop = back.body.items[0], back.body.items[1]
    assert isinstance(outer, ForLoop) and isinstance(loop, WhileLoop)
    inner = outer.body.items[0]
    assert isinstance(inner, ForLoop)
    assert (outer.lower, outer.upper, outer.step) == (0, 4, 2)
    assert inner.lower is outer.index and inner.index is not outer.index
    assert [buffer.name for buffer in inner.body.buffers] == ["tile"]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_dynamic_views_survive_and_share_their_register(way: Way) -> None:
    program = dynamic_program()
    assert_survives([program], way)
    (back,) = read(way(build([program])))
    first, second = back.body.items[:2]
    assert first.arguments.src.dynamic.indices is second.arguments.src.dynamic.indices


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_two_cores_survive(way: Way) -> None:
    programs = traced(scaled_sum, array(), array(), lnc=2)
    assert [program.core for program in programs] == [0, 1]
    assert_survives(programs, way)


def test_a_buffer_is_one_object_after_reading() -> None:
    (back,) = read(build(traced(scaled_sum, array(), array())))
    copy, _, scale, add, store = back.body.items
    assert copy.arguments.dst.buffer is scale.arguments.data.buffer is add.arguments.data1.buffer
    assert back.outputs[0].buffer is store.arguments.dst.buffer is back.body.buffers[-1]
    assert copy.arguments.src.buffer is back.inputs[0]


QUIET_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_DEAD_BEEF))[0]
NUMBERS = [0.0, -0.0, 0, 1, True, False, 1.0, math.inf, -math.inf, math.nan, QUIET_NAN, -math.nan, 5e-324, 0.1, 1e308]
NUMBERS += [2**63 - 1, -(2**63), 2**63, -(2**200)]


@together("way", WAYS.values())
@together("number", NUMBERS)
def test_numbers_are_exact(number: float, way: Way) -> None:
    (program,) = traced(scaled_sum, array(), array())
    scale = program.body.items[2]
    program.body.items[2] = scale._replace(arguments=scale.arguments._replace(operand0=number))
    (back,) = read(way(build([program])))
    result = back.body.items[2].arguments.operand0
    assert type(result) is type(number)
    assert struct.pack("<d", result) == struct.pack("<d", number) if isinstance(number, float) else result == number
    assert differences(program, back) == []


@together("way", WAYS.values())
@together("name", [None, "", "unit", 'é \\ " \n % \\FF ☃', "5"])
def test_texts_are_exact(name: str | None, way: Way) -> None:
    (program,) = traced(scaled_sum, array(), array())
    copy = program.body.items[0]
    program.body.items[0] = copy._replace(arguments=copy.arguments._replace(name=name))
    (back,) = read(way(build([program])))
    assert back.body.items[0].arguments.name == name


@together("region", MemoryRegion)
@together("dtype", BY_NAME.values())
def test_every_dtype_and_region_survives(dtype: Any, region: MemoryRegion) -> None:
    address = (32, 64) if region.on_chip else None
    buffer = Buffer(7, "t", region, (4, 2, 3), dtype, address, "constant")
    program = Program("k", "trn2", 1, 2, inputs=[buffer], outputs=[whole(buffer)])
    for way in WAYS.values():
        assert_survives([program], way)


def test_a_second_context_works() -> None:
    programs = traced(scaled_sum, array(), array())
    first, second = new_context(), new_context()
    for context in (first, second):
        module = build(programs, context)
        assert differences(programs[0], read(module)[0]) == []
        again = from_text(to_text(module), second)
        assert differences(programs[0], read(again)[0]) == []


def test_an_instruction_that_is_declared_later_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    build(traced(scaled_sum, array(), array()))
    declared = REGISTRY["tensor_copy"]
    clone = object.__new__(type(declared))
    vars(clone).update(vars(declared))
    clone.name = "tensor_copy_of_the_test"
    monkeypatch.setitem(REGISTRY, clone.name, clone)
    (program,) = traced(scaled_sum, array(), array())
    add = program.body.items[3]
    values = {"dst": add.arguments.dst, "src": add.arguments.data1}
    defaults = {n: p.default for n, p in declared.__signature__.parameters.items() if p.default is not inspect._empty}
    arguments = declared.arguments(**{**defaults, **values})
    program.body.items[3] = add._replace(instruction=clone, arguments=arguments)
    (back,) = read(build([program]))
    assert back.body.items[3].instruction is clone
    assert differences(program, back) == []
