"""What the simplifications may and may not do: identities that hold for all values go, the others stay."""

from __future__ import annotations

import numpy as np
import pytest

from nki.graph.ir import Module, Op
from nki.graph.passes.context import GraphContext
from nki.graph.passes.pipeline import run_passes
from nki.graph.stablehlo.read import read
from nki.target.load import load_target


def simplified(body: str, arguments: str = "%x: tensor<4x6xf32>", result: str = "tensor<4x6xf32>") -> list[str]:
    """Names of the operations that stay of a function whose result is %r."""
    return [op.name for op in _module(body, arguments, result).walk() if op.name != "constant"]


def _module(body: str, arguments: str, result: str) -> Module:
    text = f"func.func @main({arguments}) -> {result} {{ {body} return %r : {result} }}"
    context = GraphContext(load_target("trn2"), disabled=frozenset({"reductions", "rematerialize", "fuse"}))
    return run_passes(read(text), context)


def _binary(name: str, number: str, kind: str = "tensor<4x6xf32>") -> str:
    return f"%c = stablehlo.constant dense<{number}> : {kind} %r = stablehlo.{name} %x, %c : {kind}"


@pytest.mark.parametrize(
    ("name", "number", "left"),
    [
        ("add", "-0.0", []),
        ("add", "0.0", ["add"]),  # -0 + 0 is 0
        ("subtract", "0.0", []),
        ("subtract", "-0.0", ["subtract"]),  # -0 - -0 is 0
        ("multiply", "1.0", []),
        ("multiply", "0.0", ["multiply"]),  # NaN and infinity times 0 are NaN
        ("multiply", "-1.0", ["negate"]),
        ("divide", "1.0", []),
        ("divide", "4.0", ["multiply"]),
        ("divide", "3.0", ["divide"]),  # 1/3 is rounded
        ("divide", "0x7E800000", ["multiply"]),  # 2**126, whose inverse is the least normal number
        ("divide", "0x7F000000", ["divide"]),  # 2**127, whose inverse is no normal number
        ("power", "2.0", ["multiply"]),
        ("power", "0.5", ["power"]),  # sqrt(-0) is -0, but its power is 0
        ("maximum", "0xFF800000", []),
        ("minimum", "0x7F800000", []),
        ("maximum", "0.0", ["maximum"]),
    ],
)
def test_identities_of_floats(name: str, number: str, left: list[str]) -> None:
    assert simplified(_binary(name, number)) == left


@pytest.mark.parametrize(("name", "number", "left"), [("multiply", "0", []), ("add", "0", []), ("and", "0", ["and"])])
def test_identities_of_integers(name: str, number: str, left: list[str]) -> None:
    kind = "tensor<4xi32>"
    assert simplified(_binary(name, number, kind), f"%x: {kind}", kind) == left


def test_a_value_minus_itself() -> None:
    assert simplified("%r = stablehlo.subtract %x, %x : tensor<4x6xf32>") == ["subtract"]  # NaN - NaN
    assert simplified("%r = stablehlo.subtract %x, %x : tensor<4xi32>", "%x: tensor<4xi32>", "tensor<4xi32>") == []


@pytest.mark.parametrize(("middle", "left"), [("f32", 0), ("f16", 2)])
def test_conversions_there_and_back(middle: str, left: int) -> None:
    kind, other = "tensor<4xbf16>", f"tensor<4x{middle}>"
    body = f"%0 = stablehlo.convert %x : ({kind}) -> {other} %r = stablehlo.convert %0 : ({other}) -> {kind}"
    assert len(simplified(body, f"%x: {kind}", kind)) == left


def test_products_read_transposed_operands() -> None:
    body = """
      %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
      %1 = stablehlo.dot_general %0, %x, contracting_dims = [1] x [0]
        : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
      %r = stablehlo.transpose %1, dims = [1, 0] : (tensor<6x6xf32>) -> tensor<6x6xf32>"""
    (dot,) = [op for op in _module(body, "%x: tensor<4x6xf32>", "tensor<6x6xf32>").walk()]
    assert dot.name == "dot_general"
    assert dot.attributes["lhs_contracting_dimensions"] == (0,)
    assert dot.attributes["rhs_contracting_dimensions"] == (0,)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("%0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32> "
         "%r = stablehlo.transpose %0, dims = [1, 0] : (tensor<6x4xf32>) -> tensor<4x6xf32>", []),
        ("%0 = stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<24xf32> "
         "%r = stablehlo.reshape %0 : (tensor<24xf32>) -> tensor<4x6xf32>", []),
        ("%0 = stablehlo.slice %x [0:4, 0:3] : (tensor<4x6xf32>) -> tensor<4x3xf32> "
         "%1 = stablehlo.slice %x [0:4, 3:6] : (tensor<4x6xf32>) -> tensor<4x3xf32> "
         "%2 = stablehlo.concatenate %0, %1, dim = 1 : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x6xf32> "
         "%3 = stablehlo.slice %2 [0:4, 3:6] : (tensor<4x6xf32>) -> tensor<4x3xf32> "
         "%4 = stablehlo.slice %3 [1:2, 0:2] : (tensor<4x3xf32>) -> tensor<1x2xf32> "
         "%5 = stablehlo.reshape %4 : (tensor<1x2xf32>) -> tensor<2xf32> "
         "%6 = stablehlo.slice %5 [0:1] : (tensor<2xf32>) -> tensor<1xf32> "
         "%7 = stablehlo.reshape %6 : (tensor<1xf32>) -> tensor<f32> "
         "%r = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<f32>) -> tensor<4x6xf32>",
         ["slice", "reshape", "slice", "broadcast_in_dim"]),
        ("%r = stablehlo.reverse %x, dims = [] : tensor<4x6xf32>", []),
    ],
)  # fmt: skip
def test_moves_are_merged(body: str, left: list[str]) -> None:
    assert simplified(body) == left


def test_equal_operations_are_computed_once() -> None:
    body = """
      %0 = stablehlo.tanh %x : tensor<4x6xf32>
      %1 = stablehlo.tanh %x : tensor<4x6xf32>
      %r = stablehlo.multiply %0, %1 : tensor<4x6xf32>"""
    assert simplified(body) == ["tanh", "multiply"]


def test_constants_are_computed_up_to_a_size() -> None:
    def body(count: int) -> str:
        kind = f"tensor<{count}xf32>"
        return (
            f"%i = stablehlo.iota dim = 0 : {kind} %a = stablehlo.slice %i [0:{count // 2}] : ({kind}) -> "
            f"tensor<{count // 2}xf32> %r = stablehlo.sine %a : tensor<{count // 2}xf32>"
        )

    small = _module(body(64), "", "tensor<32xf32>")
    (constant,) = small.walk()
    np.testing.assert_array_equal(constant.attributes["value"], np.sin(np.arange(32, dtype=np.float32)))
    assert simplified(body(1 << 20), "", f"tensor<{1 << 19}xf32>") == ["iota", "slice", "sine"]


def test_known_branches_are_taken() -> None:
    body = """
      %c = stablehlo.constant dense<7> : tensor<i32>
      %r = "stablehlo.case"(%c) ({ "stablehlo.return"(%x) : (tensor<4x6xf32>) -> () },
        { %0 = stablehlo.abs %x : tensor<4x6xf32> "stablehlo.return"(%0) : (tensor<4x6xf32>) -> () })
        : (tensor<i32>) -> tensor<4x6xf32>"""
    assert simplified(body) == ["abs"]  # an index out of range takes the last branch


def test_loops_lose_what_they_carry_for_nothing() -> None:
    body = """
      %z = stablehlo.constant dense<0> : tensor<i32>
      %0:3 = "stablehlo.while"(%z, %x, %x) ({
        ^bb0(%i: tensor<i32>, %a: tensor<4x6xf32>, %b: tensor<4x6xf32>):
          %n = stablehlo.constant dense<3> : tensor<i32>
          %t = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
          "stablehlo.return"(%t) : (tensor<i1>) -> ()
        }, {
        ^bb0(%i: tensor<i32>, %a: tensor<4x6xf32>, %b: tensor<4x6xf32>):
          %one = stablehlo.constant dense<1> : tensor<i32>
          %j = stablehlo.add %i, %one : tensor<i32>
          %c = stablehlo.tanh %a : tensor<4x6xf32>
          %d = stablehlo.sine %b : tensor<4x6xf32>
          "stablehlo.return"(%j, %c, %d) : (tensor<i32>, tensor<4x6xf32>, tensor<4x6xf32>) -> ()
        }) : (tensor<i32>, tensor<4x6xf32>, tensor<4x6xf32>) -> (tensor<i32>, tensor<4x6xf32>, tensor<4x6xf32>)
      %r = stablehlo.abs %0#1 : tensor<4x6xf32>"""
    module = _module(body, "%x: tensor<4x6xf32>", "tensor<4x6xf32>")
    loop = next(op for op in module.walk() if op.name == "while")
    assert isinstance(loop, Op)
    assert len(loop.results) == 2
    assert "sine" not in [op.name for op in module.walk()]
