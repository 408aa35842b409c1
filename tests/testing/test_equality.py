"""The comparison that the other tests rely on sees every difference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from nki.core.source import Frame, Location
from nki.core.tensor import Buffer
from nki.ir.build import build
from nki.ir.read import read
from nki.spec.engine import engine
from nki.spec.program import Block, ForLoop, Program, Sync, WhileLoop
from nki.testing.equality import differences, same_program
from tests.ir.kernels import array, looped, scaled_sum, traced
from tests.together import together

HERE = Location((Frame("f.py", "f", 1),))


def _item(number: int, **changes: Any) -> Callable[[Program], None]:
    def change(program: Program) -> None:
        program.body.items[number] = program.body.items[number]._replace(**changes)

    return change


def _argument(number: int, **changes: Any) -> Callable[[Program], None]:
    def change(program: Program) -> None:
        item = program.body.items[number]
        program.body.items[number] = item._replace(arguments=item.arguments._replace(**changes))

    return change


def _view(**changes: Any) -> Callable[[Program], None]:
    def change(program: Program) -> None:
        _argument(0, dst=program.body.items[0].arguments.dst._replace(**changes))(program)

    return change


def _other_buffer(program: Program) -> None:
    other = program.body.items[1].arguments.dst
    _argument(0, dst=other)(program)


CHANGES: dict[str, Callable[[Program], Any]] = {
    "name": lambda p: setattr(p, "name", "other"),
    "target": lambda p: setattr(p, "target", "trn1"),
    "core": lambda p: setattr(p, "core", 1),
    "cores": lambda p: setattr(p, "cores", 2),
    "program location": lambda p: setattr(p, "location", HERE),
    "input": lambda p: p.inputs.pop(),
    "output": lambda p: p.outputs.pop(),
    "item": lambda p: p.body.items.pop(),
    "buffer": lambda p: p.body.buffers.pop(),
    "engine": _item(3, engine=engine.gpsimd),
    "location": _item(3, location=HERE),
    "argument": _argument(2, operand0=0.25),
    "type of an argument": _argument(2, operand0=True),
    "None": _argument(2, operand0=None),
    "offset": _view(offset=1),
    "strides": _view(strides=(64, 2)),
    "shape": _view(shape=(64, 64)),
    "other buffer": _other_buffer,
    "fences": lambda p: p.fences.append((0, 2)),
    "passed": lambda p: setattr(p, "passed", ("allocate_and_schedule",)),
    "placement": lambda p: setattr(p, "placement", {}),
    "sync": lambda p: setattr(p.body, "sync", [Sync("vector")] * len(p.body.items)),
}


@together("change", CHANGES.values())
def test_a_change_is_seen(change: Callable[[Program], Any]) -> None:
    (program,) = traced(scaled_sum, array(), array())
    (back,) = read(build([program]))
    assert same_program(program, back)
    change(back)
    assert not same_program(program, back)
    assert len(differences(program, back)) >= 1


@pytest.mark.parametrize("field", ["id", "name", "region", "shape", "dtype", "address", "role", "location", "data"])
def test_a_field_of_a_buffer_is_seen(field: str) -> None:
    (program,) = traced(scaled_sum, array(), array())
    (back,) = read(build([program]))
    others: dict[str, Any] = {"id": 99, "shape": (1, 2), "address": (0, 1), "location": HERE, "name": "q"}
    others |= {"role": "constant", "data": b"x"}
    others |= {"region": back.inputs[0].region, "dtype": type(back.body.buffers[0].dtype)("int8")}
    back.body.buffers[0] = dataclasses.replace(back.body.buffers[0], **{field: others[field]})
    assert not same_program(program, back)


def test_a_change_in_a_loop_is_seen() -> None:
    for field, value in (("lower", 1), ("upper", 5), ("step", 1), ("location", HERE), ("body", Block())):
        (program,) = traced(looped, array())
        (back,) = read(build([program]))
        setattr(back.body.items[0], field, value)
        assert not same_program(program, back)


def test_all_fields_are_compared() -> None:
    """A new field of these classes must be added to the comparison, and to the IR."""
    names = {kind: {field.name for field in dataclasses.fields(kind)} for kind in (Program, Block, ForLoop, WhileLoop)}
    assert names[Program] == {"name", "target", "core", "cores", "inputs", "outputs", "body", "location", "edges"} | {
        "fences",
        "placement",
        "passed",
    }
    assert names[Block] == {"buffers", "items", "sync"}
    assert names[ForLoop] == {"lower", "upper", "step", "index", "body", "location"}
    assert names[WhileLoop] == {"condition", "body", "location"}
    fields = {field.name for field in dataclasses.fields(Buffer) if field.init}
    assert fields == {"id", "name", "region", "shape", "dtype", "address", "role", "location", "trace", "data"}
