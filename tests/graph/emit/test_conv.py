"""Kernels for convolutions against JAX on the CPU: layouts, strides, padding, dilations and groups."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from nki.core.dtypes import as_dtype
from nki.graph.passes.context import GraphContext
from nki.graph.passes.pipeline import run_passes
from nki.graph.stablehlo.read import read
from nki.target.load import load_target
from tests.graph.emit.harness import Array, check_function, group, like, op, run, run_both

_TOLERANCE = {"float32": 2e-6, "bfloat16": 2.0**-8}

NCHW, NHWC = ("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")
NCH, NHC, NCDHW = ("NCH", "OIH", "NCH"), ("NHC", "HIO", "NHC"), ("NCDHW", "OIDHW", "NCDHW")


def _attributes(numbers: Any, **windows: Any) -> dict[str, Any]:
    found = dict(windows)
    for side, spec in (("input", numbers.lhs_spec), ("output", numbers.out_spec)):
        found[f"{side}_batch_dimension"], found[f"{side}_feature_dimension"] = spec[:2]
        found[f"{side}_spatial_dimensions"] = tuple(spec[2:])
    found["kernel_output_feature_dimension"], found["kernel_input_feature_dimension"] = numbers.rhs_spec[:2]
    found["kernel_spatial_dimensions"] = tuple(numbers.rhs_spec[2:])
    return found


def _case(image: Any, kernel: Any, layout: Any, strides: Any, padding: Any, **more: Any) -> Any:
    rank = len(strides)
    windows = {
        "window_strides": strides,
        "padding": padding,
        "lhs_dilation": more.get("lhs_dilation", (1,) * rank),
        "rhs_dilation": more.get("rhs_dilation", (1,) * rank),
        "feature_group_count": more.get("groups", 1),
        "batch_group_count": more.get("batch_groups", 1),
    }
    return pytest.param(image, kernel, layout, windows, more.get("dtype", "float32"), id=f"{image}-{kernel}-{rank}")


CASES = [
    _case((2, 3, 10, 11), (4, 3, 3, 3), NCHW, (1, 1), ((1, 1), (1, 1))),
    _case((2, 10, 11, 3), (3, 3, 3, 4), NHWC, (1, 1), ((1, 1), (1, 1))),
    _case((2, 20, 10, 11), (24, 20, 3, 3), NCHW, (2, 2), ((1, 1), (1, 1))),
    _case((2, 10, 11, 20), (3, 3, 20, 24), NHWC, (2, 1), ((1, 2), (0, 1))),
    _case((2, 20, 9, 9), (24, 20, 1, 1), NCHW, (2, 2), ((0, 0), (0, 0))),
    _case((2, 130, 9, 9), (140, 130, 3, 3), NCHW, (1, 1), ((1, 1), (1, 1)), dtype="bfloat16"),
    _case((2, 20, 9, 9), (24, 20, 3, 2), NCHW, (1, 1), ((2, 2), (-1, 2)), lhs_dilation=(2, 3), rhs_dilation=(2, 1)),
    _case((2, 20, 9, 9), (24, 10, 3, 3), NCHW, (1, 1), ((1, 1), (1, 1)), groups=2),
    _case((2, 20, 9, 9), (40, 1, 3, 3), NCHW, (2, 1), ((1, 1), (1, 1)), groups=20),
    _case((2, 9, 9, 20), (3, 3, 1, 20), NHWC, (1, 1), ((1, 1), (1, 1)), groups=20),
    _case((4, 6, 9, 9), (8, 6, 3, 3), NCHW, (1, 1), ((1, 1), (1, 1)), batch_groups=2),
    _case((3, 20, 50), (24, 20, 4), NCH, (1,), ((3, 0),)),
    _case((2, 50, 20), (4, 1, 20), NHC, (1,), ((3, 0),), groups=20),
    _case((3, 1, 28, 28), (6, 1, 5, 5), NCHW, (1, 1), ((2, 2), (2, 2))),
    _case((2, 6, 5, 6, 7), (8, 6, 2, 3, 3), NCDHW, (1, 1, 2), ((1, 1), (1, 0), (1, 1))),
    _case((6, 2, 16, 16), (4, 2, 14, 14), NCHW, (1, 1), ((0, 0), (0, 0))),
    _case((1, 3, 64, 64), (8, 3, 7, 7), NCHW, (2, 2), ((3, 3), (3, 3))),
    _case((1, 32, 128, 128), (8, 32, 3, 3), NCHW, (1, 1), ((1, 1), (1, 1))),
]


def _arrays(image: Any, kernel: Any, dtype: str) -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(shape).astype(as_dtype(dtype).numpy) for shape in (image, kernel))
    return x, w


@pytest.mark.parametrize(("image", "kernel", "layout", "windows", "dtype"), CASES)
@pytest.mark.parametrize("target", ["trn2", "trn1"])
def test_convolution(image: Any, kernel: Any, layout: Any, windows: Any, dtype: str, target: str) -> None:
    x, w = _arrays(image, kernel, dtype)
    numbers = lax.conv_dimension_numbers(image, kernel, layout)
    wanted = np.asarray(
        lax.conv_general_dilated(
            jnp.asarray(x.astype(np.float32)),
            jnp.asarray(w.astype(np.float32)),
            dimension_numbers=numbers,
            precision="highest",
            **windows,
        )
    )
    values = like(x), like(w)
    made = group("conv", [op("convolution", values, wanted.shape, dtype, **_attributes(numbers, **windows))], values)
    (found,) = run_both(made, [x, w], target) if target == "trn2" else run(made, [x, w], target=target)
    assert found.shape == wanted.shape
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=0, atol=_TOLERANCE[dtype] * scale)


@pytest.mark.parametrize("layout", [NCHW, NHWC])
def test_reversed_window_and_epilogue(layout: Any) -> None:
    image, kernel = ((2, 8, 9, 9), (12, 8, 3, 3)) if layout is NCHW else ((2, 9, 9, 8), (3, 3, 8, 12))
    x, w = _arrays(image, kernel, "float32")
    bias = np.random.default_rng(1).standard_normal(12).astype(np.float32)
    numbers = lax.conv_dimension_numbers(image, kernel, layout)
    taps = (2, 3) if layout is NCHW else (0, 1)
    windows = {"window_strides": (1, 1), "padding": ((1, 1), (1, 1)), "window_reversal": (True, False)}
    sums = lax.conv_general_dilated(
        x, np.flip(w, taps[0]), (1, 1), ((1, 1), (1, 1)), dimension_numbers=numbers, precision="highest"
    )
    side = numbers.out_spec[1]
    wanted = np.maximum(np.asarray(sums) + bias.reshape([-1 if d == side else 1 for d in range(4)]), 0)
    a, b, c = like(x), like(w), like(bias)
    conv = op("convolution", (a, b), wanted.shape, "float32", **_attributes(numbers, **windows))
    wide = op("broadcast_in_dim", (c,), wanted.shape, "float32", broadcast_dimensions=(side,))
    biased = op("add", (*conv.results, *wide.results), wanted.shape, "float32")
    zero = op("constant", (), wanted.shape, "float32", value=np.broadcast_to(np.float32(0), wanted.shape))
    active = op("maximum", (*biased.results, *zero.results), wanted.shape, "float32")
    made = group("conv", [conv, wide, biased, zero, active], [a, b, c])
    (found,) = run_both(made, [x, w, bias])
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("layout", [NCHW, NHWC])
@pytest.mark.parametrize(
    ("image", "outs", "taps"),
    [((3, 3, 23, 23), 2, 1), ((2, 2, 3, 130), 130, 3), ((3, 17, 4, 4), 129, 1), ((2, 20, 30, 5), 1, 3)],
)
def test_operands_of_the_epilogue_that_are_repeated(layout: Any, image: Any, outs: int, taps: int) -> None:
    """Blocks with one image, row or feature start where the operands' elements for it are."""
    x, w = _arrays(image, (outs, image[1], taps, taps), "float32")
    wide = (image[0], outs, image[2] - taps + 1, image[3] - taps + 1)
    sums = np.asarray(lax.conv_general_dilated(x, w, (1, 1), ((0, 0), (0, 0)), precision="highest"), np.float64)
    random = np.random.default_rng(2)
    kept = [(1, 1, 0, 0), (1, 0, 0, 1), (0, 0, 1, 0), (1, 0, 0, 0), (0, 1, 1, 1), (0, 0, 0, 0)]
    some = [random.standard_normal(tuple(s if k else 1 for s, k in zip(wide, each, strict=True))) for each in kept]
    if layout is NHWC:
        x, sums, *some = (np.moveaxis(array, 1, 3) for array in (x, sums, *some))
        w = w.transpose(2, 3, 1, 0)
    arrays = [np.ascontiguousarray(array, np.float32) for array in (x, w, *some)]
    a, b, *others = (like(array) for array in arrays)
    windows = {"window_strides": (1, 1), "padding": ((0, 0), (0, 0))}
    numbers = lax.conv_dimension_numbers(a.type.shape, b.type.shape, layout)
    made = [op("convolution", (a, b), sums.shape, "float32", **_attributes(numbers, **windows))]
    for other in others:
        repeated = op("broadcast_in_dim", (other,), sums.shape, "float32", broadcast_dimensions=(0, 1, 2, 3))
        made += [repeated, op("add", (made[-1].results[0], *repeated.results), sums.shape, "float32")]
    (found,) = run_both(group("conv", made, [a, b, *others]), arrays)
    np.testing.assert_allclose(found, sums + sum(some), atol=2e-5)


@pytest.mark.parametrize("layout", [NCHW, NHWC])
@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_positions_in_the_epilogue(layout: Any, dim: int) -> None:
    image, kernel = ((5, 3, 9, 7), (4, 3, 1, 1)) if layout is NCHW else ((5, 9, 7, 3), (1, 1, 3, 4))
    x, w = _arrays(image, kernel, "float32")
    numbers = lax.conv_dimension_numbers(image, kernel, layout)
    sums = np.asarray(lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=numbers, precision="highest"))
    a, b = like(x), like(w)
    windows = {"window_strides": (1, 1), "padding": ((0, 0), (0, 0))}
    conv = op("convolution", (a, b), sums.shape, "float32", **_attributes(numbers, **windows))
    position = op("iota", (), sums.shape, "float32", iota_dimension=dim)
    added = op("add", (*conv.results, *position.results), sums.shape, "float32")
    (found,) = run_both(group("conv", [conv, position, added], [a, b]), [x, w])
    np.testing.assert_allclose(found, sums + np.indices(sums.shape)[dim], atol=1e-5)


@pytest.mark.parametrize(
    ("image", "kernel", "layout", "strides"),
    [
        ((3, 3, 64, 64), (20, 3, 32, 32), NCHW, (32, 32)),
        ((2, 35, 43, 5), (8, 10, 5, 7), NHWC, (8, 10)),  # the image has a margin that no window reaches
        ((2, 6, 256), (4, 6, 64), NCH, (64,)),
        ((1, 2, 8, 8, 8), (3, 2, 4, 4, 4), NCDHW, (4, 4, 4)),
    ],
)
def test_windows_beside_each_other_are_a_product(image: Any, kernel: Any, layout: Any, strides: Any) -> None:
    def patches(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, strides, "VALID", dimension_numbers=layout, precision="highest")

    arrays = _arrays(image, kernel, "float32")
    check_function(patches, arrays, 3e-5)  # sums of up to 3,072 products, in two orders
    text = jax.jit(patches).lower(*arrays).as_text()
    made = run_passes(read(text), GraphContext(load_target("trn2")))
    assert "convolution" not in {op.name for item in made.main.body for op in getattr(item, "ops", (item,))}
