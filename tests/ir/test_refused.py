"""Modules that are not valid are refused with a code and the kernel's line, and never end the process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki.core.errors import IRError, VerificationError
from nki.ir.build import build
from nki.ir.text import from_bytecode, from_text, load, save, to_bytecode, to_text
from nki.ir.verify import verify
from nki.target.load import load_target
from tests.ir.kernels import array, looped, scaled_sum, traced
from tests.together import together

TARGET = load_target("trn2")


def text_of(kernel: Any = scaled_sum) -> str:
    arrays = [array()] if kernel is looped else [array(), array()]
    return to_text(build(traced(kernel, *arrays)))


def refusal(text: str) -> IRError | VerificationError:
    with pytest.raises((IRError, VerificationError)) as caught:
        verify(from_text(text), TARGET)
    return caught.value


# code, what is replaced once, by what, part of the message
BROKEN = [
    ("ir.parse", 'op = "add"', "op = 3", "builtin.string"),
    ("ir.parse", 'on = "vector"', 'on = "tensr"', "does not satisfy"),
    ("ir.parse", '"nisa.tensor_tensor"', '"nisa.tensor_tenser"', "nisa.tensor_tenser"),
    ("ir.parse", "offset = 0 : i64, ", "", "offset"),
    ("ir.parse", 'tensor<128x32xf32>, "sbuf"', 'tensor<128x32xf32>, "cache"', "does not satisfy"),
    ("ir.parse", "module", "modul", "modul"),
    ("ir.parse", 'name = "x"', 'name = "\\FF"', "UTF-8"),
    ("ir.parse", '"nki.return"', '"nki.yield"', ""),
    ("ir.value", 'op = "add"', 'op = "addd"', "addd"),
    ("ir.value", "operand0 = 5.000000e-01 : f64", 'operand0 = "half"', "half"),
    ("ir.value", 'role = "temporary"', 'role = "lasting"', "lasting"),
    ("ir.value", "strides = array<i64: 64, 1>", "strides = array<i32: 64, 1>", "array<i32"),
    ("ir.view", "offset = 0 : i64", "offset = 64 : i64", "64 to 8255"),
    ("ir.view", "offset = 0 : i64", "offset = -1 : i64", "-1 to 8190"),
    ("ir.view", "strides = array<i64: 64, 1>", "strides = array<i64: 64, 1, 1>", "3 strides"),
    ("ir.view", "offset = 0 : i64", 'dynamic = "scalar_offset", offset = 0 : i64', "0 indices"),
    ("ir.attribute", 'op = "add"', 'op = "add", opp = "add"', "opp"),
    ("tensor_scalar.operand0", "operand0 = 5.000000e-01 : f64, ", "", "operand0"),
    ("ir.attribute", 'role = "temporary"', 'role = "temporary", adress = 3 : i64', "adress"),
    ("ir.duplicate", "id = 1 : i64", "id = 0 : i64", "id 0"),
    ("ir.version", "nki.version = 2", "nki.version = 77", "77"),
    ("ir.target", 'target = "trn2"', 'target = "trn1"', "trn1"),
]


@together("code, old, new, message", BROKEN)
def test_a_broken_module_is_refused(code: str, old: str, new: str, message: str) -> None:
    text = text_of()
    assert old in text
    error = refusal(text.replace(old, new, 1))
    assert error.code == code, error
    assert message in error.message
    assert error.fix and error.rule


def test_an_error_points_at_the_line_of_the_kernel() -> None:
    text = text_of().replace('op = "add"', 'op = "addd"')
    frame = refusal(text).location.frame
    assert frame is not None and frame.file.endswith("tests/ir/kernels.py") and frame.function == "scaled_sum"
    assert "nisa.tensor_tensor" in Path(frame.file).read_text().splitlines()[frame.line - 1]


def test_a_broken_rule_is_refused_at_the_line_of_the_kernel() -> None:
    """The first operand of tensor_tensor becomes the smaller view."""
    text = text_of()
    small = re.search(r'(%\d+) = "nki.subview".*!nki.view<tensor<128x32xf32>, "sbuf">', text)
    call = re.search(r'"nisa.tensor_tensor"\((%\d+), .*', text)
    assert small and call
    line = call[0].replace(call[1], small[1], 1).replace("tensor<128x64xf32>", "tensor<128x32xf32>", 1)
    error = refusal(text.replace(call[0], line))
    assert isinstance(error, VerificationError) and error.code == "tensor_tensor.shapes"
    assert error.location.frame is not None and error.location.frame.function == "scaled_sum"
    verify(from_text(text.replace(call[0], line)), TARGET, frozenset({"tensor_tensor.shapes"}))


def test_an_argument_that_cannot_be_none_is_written() -> None:
    def kernel(a: Any) -> Any:
        tile = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a)
        nisa.tensor_scalar_cumulative(tile, tile, nl.multiply, nl.add, 0.5)
        return a

    text = to_text(build(traced(kernel, array())))
    assert "imm0 = 5.000000e-01 : f64, " in text
    error = refusal(text.replace("imm0 = 5.000000e-01 : f64, ", ""))
    assert error.code == "ir.attribute" and "imm0" in error.message


def test_a_use_before_the_definition_is_refused() -> None:
    lines = text_of().splitlines()
    first = next(i for i, line in enumerate(lines) if "nki.subview" in line)
    lines[first], lines[first + 2] = lines[first + 2], lines[first]
    assert refusal("\n".join(lines)).code == "ir.parse"


def test_loops_are_checked() -> None:
    text = text_of(looped)
    assert refusal(text.replace("step = 2 : i64", "step = 0 : i64")).code == "ir.value"
    assert refusal(text.replace("lower = 0 : i64, ", "")).code == "ir.attribute"
    assert refusal(text.replace('"nki.yield"() : () -> ()', "", 1)).code == "ir.parse"


def test_operations_of_other_dialects_are_refused() -> None:
    text = text_of().replace(
        '    "nki.return"', '    %c = "arith.constant"() {value = 1 : i32} : () -> i32\n    "nki.return"'
    )
    assert refusal(text).code == "ir.operation"
    assert refusal("module attributes {nki.version = 2 : i64} { func.func private @f() }").code == "ir.operation"


def test_a_tensor_that_leaves_its_loop_is_refused() -> None:
    (program,) = traced(looped, array())
    inner = program.body.items[0].body.items[0].body
    program.body.items.append(inner.items[1])
    with pytest.raises(IRError) as caught:
        build([program])
    assert caught.value.code == "ir.scope" and "tile" in caught.value.message
    assert caught.value.location == inner.items[1].location


def test_a_value_that_cannot_be_written_is_refused() -> None:
    (program,) = traced(scaled_sum, array(), array())
    item = program.body.items[2]
    program.body.items[2] = item._replace(arguments=item.arguments._replace(operand0=np.float32(1)))
    with pytest.raises(IRError, match="operand0") as caught:
        build([program])
    assert caught.value.code == "ir.value" and caught.value.location == item.location


def test_damaged_bytecode_is_refused() -> None:
    data = to_bytecode(build(traced(scaled_sum, array(), array())))
    random = np.random.default_rng(0)
    for position in [0, 4, 5, 40, *random.integers(0, len(data), 40)]:
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        with pytest.raises(IRError) as caught:
            from_bytecode(bytes(damaged))
        assert caught.value.code == "ir.parse"
    for length in (0, 3, 36, 37, 38, len(data) - 1):
        with pytest.raises(IRError):
            from_bytecode(data[:length])


def test_damaged_text_is_refused_or_read() -> None:
    """Whatever one edit does, the outcome is a module or one of our errors."""
    text, random = text_of(), np.random.default_rng(0)
    pieces = ["", '"', "9", "-", "true", "unit", "%0", "}", "\0", "☃", "\\C3", "\\", "<", "@", "#loc", "\ud800"]
    for _ in range(150):
        at, cut = int(random.integers(0, len(text))), int(random.choice([0, 1, 3, 10]))
        edited = text[:at] + str(random.choice(pieces)) + text[at + cut :]
        try:
            verify(from_text(edited), TARGET)
        except (IRError, VerificationError):
            continue


def test_files(tmp_path: Path) -> None:
    module = build(traced(scaled_sum, array(), array()))
    for name in ("kernel.mlir", "kernel.mlirbc"):
        save(module, tmp_path / name)
        assert to_text(load(tmp_path / name)) == to_text(module)
    assert (tmp_path / "kernel.mlir").read_text() == to_text(module)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kernel.mlir", "kernel.mlirbc"], "no temporary files stay"
    with pytest.raises(IRError) as caught:
        load(tmp_path / "missing.mlir")
    assert caught.value.code == "ir.file"
    (tmp_path / "bad.mlir").write_text("module {\n  nonsense\n}\n")
    with pytest.raises(IRError) as caught:
        load(tmp_path / "bad.mlir")
    assert caught.value.code == "ir.parse"
    frame = caught.value.location.frame
    assert frame is not None and (frame.file, frame.line, frame.column) == (str(tmp_path / "bad.mlir"), 2, 2)
    assert "  nonsense\n" in str(caught.value)
    (tmp_path / "junk").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(IRError) as caught:
        load(tmp_path / "junk")
    assert caught.value.code == "ir.parse"
