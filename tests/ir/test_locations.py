"""Every operation of a kernel carries the place it came from."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from nki.core.source import UNKNOWN, Frame, Location
from nki.ir.build import build
from nki.ir.mlir import Operation, UnknownLoc, WalkResult
from nki.ir.read import read
from nki.ir.text import from_bytecode, from_text, to_bytecode, to_text
from nki.spec.program import Program
from tests.ir.kernels import array, looped, scaled_sum, traced


@pytest.mark.parametrize("kernel", [scaled_sum, looped])
def test_no_operation_has_an_unknown_location(kernel: Any) -> None:
    arrays = [array() for _ in inspect.signature(kernel).parameters]
    (program,) = traced(kernel, *arrays)
    program.location = Location((Frame("kernels.py", kernel.__name__, 1),))
    unknown, names = [], set()

    def look(operation: Operation) -> WalkResult:
        names.add(operation.name)
        if isinstance(operation.location, UnknownLoc):
            unknown.append(operation.name)
        return WalkResult.ADVANCE

    build([program]).operation.walk(look)
    assert {"nisa.dma_copy", "nki.subview", "nki.alloc", "nki.input", "nki.return"} <= names
    assert unknown == ["builtin.module"]


def test_a_nested_call_keeps_its_chain_with_functions_and_columns() -> None:
    def helper(tensor: Any) -> Any:
        return scaled_sum(tensor, tensor)

    (program,) = traced(lambda a: [helper(a)][0], array())
    module = build([program])
    for copy in (module, from_text(to_text(module)), from_bytecode(to_bytecode(module))):
        (back,) = read(copy)
        location = back.body.items[0].location
        assert location == program.body.items[0].location
        assert [frame.function.rpartition(".")[2] for frame in location.frames] == ["scaled_sum", "helper", "<lambda>"]
        inner = location.frames[0]
        line = inspect.getsource(inspect.getmodule(scaled_sum)).splitlines()[inner.line - 1]  # type: ignore[arg-type]
        assert line[inner.column : inner.end_column] == "nisa.dma_copy(dst=x, src=a)"


FRAMES = [
    Frame("f.py", "f", 3),
    Frame("f.py", "f", 3, 7, 3, 7),
    Frame("f.py", "f", 3, 0, 3, 0),
    Frame("f.py", "f", 3, 7, 5, 2),
    Frame("f.py", "f", 3, 7, 3, 9),
    Frame('/a b/\u2603 "q" \\n.py', "outer.<locals>.<lambda>", 3, 1, 3, 2),
    Frame("f.py", "", 3),
    Frame("f.py", "f", 3, 9, 4, 1),
]


@pytest.mark.parametrize("frames", [*[(frame,) for frame in FRAMES], tuple(FRAMES), ()], ids=lambda f: str(len(f)))
def test_locations_are_exact(frames: tuple[Frame, ...]) -> None:
    program = Program("k", "trn2", 0, 1, location=Location(frames))
    module = build([program])
    for copy in (module, from_text(to_text(module)), from_bytecode(to_bytecode(module))):
        assert read(copy)[0].location == program.location
    if not frames:
        assert read(module)[0].location is UNKNOWN
