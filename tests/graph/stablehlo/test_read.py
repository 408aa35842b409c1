"""Models from JAX as records: attributes, locations, and the text that is written of them."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from nki.graph.errors import GraphError
from nki.graph.ir import Module, Op
from nki.graph.stablehlo.mlir import _stablehlo
from nki.graph.stablehlo.read import read
from nki.graph.stablehlo.write import write
from tests.graph import xla
from tests.graph.models import MODELS, lowered, wanted


def _op(module: Module, name: str) -> Op:
    return next(op for op in module.walk() if op.name == name)


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_computes_the_same(name: str) -> None:
    written = write(read(lowered(name)))
    assert write(read(written)) == written
    for one, two in zip(xla.run(written, MODELS[name][1]), wanted(name), strict=True):
        assert one.dtype == two.dtype
        assert one.tobytes() == two.tobytes()


def test_dimension_numbers_are_flat() -> None:
    def f(x, w, i):
        y = lax.conv_general_dilated(x, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NCHW"))
        return jnp.einsum("abcd,aecd->abe", y, y), jnp.take(x, i, axis=1)

    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((2, 8, 8, 3), (3, 3, 3, 4))]
    module = read(xla.lowered(f, *shapes, jax.ShapeDtypeStruct((5,), jnp.int32)))
    conv = _op(module, "convolution").attributes
    assert (conv["input_batch_dimension"], conv["input_feature_dimension"]) == (0, 3)
    assert (conv["kernel_input_feature_dimension"], conv["kernel_output_feature_dimension"]) == (2, 3)
    assert (conv["output_spatial_dimensions"], conv["window_strides"]) == ((2, 3), (2, 1))
    assert conv["padding"] == ((0, 1), (1, 1))
    dot = _op(module, "dot_general").attributes
    assert dot["lhs_batching_dimensions"] == (0,)
    assert dot["lhs_contracting_dimensions"] == (2, 3)
    gather = next(op for op in module.walk() if op.name == "gather").attributes
    assert gather["collapsed_slice_dims"] == (1,)
    assert gather["slice_sizes"] == (2, 1, 8, 3)


def test_location_is_the_users_line() -> None:
    def inner(x):
        return jnp.sin(x)

    def outer(x):
        return inner(x) + 1.0

    module = read(xla.lowered(outer, np.ones(3, np.float32)))
    frames = _op(module, "sine").location.frames
    lines, first = inspect.getsourcelines(inner)
    assert frames[0].file == __file__
    assert frames[0].line == first + 1
    assert frames[0].column == lines[1].index("jnp")
    assert "outer" in frames[1].function


def test_names_of_arguments_and_what_is_said_about_them() -> None:
    ones = np.ones(3, np.float32)
    jitted = jax.jit(lambda state, x: state + x, donate_argnums=0)
    text = str(jitted.lower(ones, ones).as_text(debug_info=True))
    module = read(write(read(text)))
    assert [value.name for value in module.main.arguments] == ["state", "x"]
    assert module.main.argument_attributes[0] == {"tf.aliasing_output": 0}


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "int8", "uint32", "bool"])
@pytest.mark.parametrize("count", [1, 3, 200])
def test_constants_keep_their_bits(dtype: str, count: int) -> None:
    stored = jnp.dtype(dtype)
    codes = (
        np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 256, count * stored.itemsize).astype(np.uint8)
    )
    values = codes.view(stored)
    module = read(xla.lowered(lambda: jnp.asarray(values)))
    again = read(write(module))
    for found in (module, again):
        value = _op(found, "constant").attributes["value"]
        assert value.dtype == stored
        assert value.tobytes() == values.tobytes()


def test_splats_take_no_memory() -> None:
    kind = "tensor<1000x1000xbf16>"
    module = read(f"func.func @main() -> {kind} {{ %0 = stablehlo.constant dense<2.5> : {kind} return %0 : {kind} }}")
    value = _op(module, "constant").attributes["value"]
    assert value.strides == (0, 0)
    assert float(value[3, 4]) == 2.5
    assert len(write(module)) < 1000


def to_portable(text: str) -> bytes:
    """A portable artifact of the newest version that the wheel can write."""
    return bytes(_stablehlo.serialize_portable_artifact_str(text, _stablehlo.get_current_version()))


def test_portable_artifact_is_read() -> None:
    text = write(read(lowered("block")))
    module = read(to_portable(text))
    assert [op.name for op in module.walk()] == [op.name for op in read(text).walk()]


def test_tuples_are_taken_apart() -> None:
    module = read("""
        func.func @main(%a: tensor<2xf32>, %b: tensor<3xf32>) -> tensor<3xf32> {
          %0 = stablehlo.tuple %a, %b : tuple<tensor<2xf32>, tensor<3xf32>>
          %1 = stablehlo.get_tuple_element %0[1] : (tuple<tensor<2xf32>, tensor<3xf32>>) -> tensor<3xf32>
          return %1 : tensor<3xf32>
        }""")
    assert module.main.body == []
    assert module.main.results == (module.main.arguments[1],)


def test_unknown_operations_are_kept() -> None:
    text = """
        func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
          %0 = "other.op"(%a) {x = #other.y<1>} : (tensor<2xf32>) -> tensor<2xf32>
          return %0 : tensor<2xf32>
        }"""
    module = read(text)
    (op,) = module.main.body
    assert isinstance(op, Op)
    assert op.name == "other.op"
    assert "other.y<1>" in write(module)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("func.func @main(", "graph.parse"),
        ("func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> { return %a : tensor<?xf32> }", "graph.shape"),
        ("func.func @main(%a: tensor<2xi4>) -> tensor<2xi4> { return %a : tensor<2xi4> }",
         "graph.dtype"),
        ("func.func @f() { return } func.func @g() { return }", "graph.entry"),
        ("func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> { return %a : tensor<2xf32> }", "graph.parse"),
    ],
)  # fmt: skip
def test_refused(text: str, code: str) -> None:
    with pytest.raises(GraphError) as caught:
        read(text)
    assert caught.value.code == code
    assert caught.value.fix
