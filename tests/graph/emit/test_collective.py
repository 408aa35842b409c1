"""Collectives of StableHLO on four ranks against NumPy: every dimension, every reduction, dtypes that are widened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki.graph.compile import compile_module
from nki.graph.errors import GraphError
from nki.graph.executable import Executable
from nki.ranks.parallel import Parallel

Array = np.ndarray[Any, Any]

RANKS = 4
GROUPS = "replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>"
NAMES = {np.dtype(np.float32): "f32", np.dtype(ml_dtypes.bfloat16): "bf16", np.dtype(np.int32): "i32"} | {
    np.dtype(np.int8): "i8",
    np.dtype(np.bool_): "i1",
}


def kind(shape: Sequence[int], dtype: Any) -> str:
    return f"tensor<{'x'.join([*map(str, shape), NAMES[np.dtype(dtype)]])}>"


def compiled(line: str, given: str, made: str) -> Executable:
    text = f"func.func public @main(%x: {given}) -> {made} {{\n  {line}\n  return %y : {made}\n}}"
    return compile_module(text, target="trn2")


def on_ranks(model: Executable, inputs: Sequence[Array]) -> list[Array]:
    made = Parallel(len(inputs)).run([partial(model.run, [own]) for own in inputs])
    return [result for (result,) in made]


def values(shape: Sequence[int], dtype: Any, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    if np.dtype(dtype) == np.bool_:
        return [random.random(shape) < 0.6 for _ in range(RANKS)]
    return [(random.standard_normal(shape) * 20).astype(dtype) for _ in range(RANKS)]


def region(name: str, dtype: Any) -> str:
    scalar = kind((), dtype)
    return (
        f"({{\n  ^bb0(%a: {scalar}, %b: {scalar}):\n    %c = stablehlo.{name} %a, %b : {scalar}\n"
        f"    stablehlo.return %c : {scalar}\n  }})"
    )


def in_order(function: Callable[..., Array], inputs: Sequence[Array], dtype: Any) -> Array:
    """The reduction in the order of ranks, in float32 with one rounding where elements have fewer bits."""
    wide = np.float32 if np.dtype(dtype) == ml_dtypes.bfloat16 else dtype
    return reduce(function, [array.astype(wide) for array in inputs]).astype(dtype)


REDUCTIONS = [
    ("add", np.add, np.float32),
    ("add", np.add, ml_dtypes.bfloat16),
    ("add", np.add, np.int8),
    ("maximum", np.maximum, np.int32),
    ("minimum", np.minimum, ml_dtypes.bfloat16),
    ("multiply", np.multiply, np.float32),
    ("and", np.logical_and, np.bool_),
    ("or", np.logical_or, np.bool_),
]


@pytest.mark.parametrize(("name", "function", "dtype"), REDUCTIONS)
def test_all_reduce(name: str, function: Callable[..., Array], dtype: Any) -> None:
    inputs, given = values((3, 5), dtype), kind((3, 5), dtype)
    line = f'%y = "stablehlo.all_reduce"(%x) <{{{GROUPS}}}> {region(name, dtype)} : ({given}) -> {given}'
    want = in_order(function, inputs, dtype)
    for found in on_ranks(compiled(line, given, given), inputs):
        np.testing.assert_array_equal(found, want)


def test_a_scalar_is_reduced() -> None:
    line = f'%y = "stablehlo.all_reduce"(%x) <{{{GROUPS}}}> {region("add", np.float32)} : (tensor<f32>) -> tensor<f32>'
    found = on_ranks(compiled(line, "tensor<f32>", "tensor<f32>"), [np.float32(n) for n in range(RANKS)])
    assert [float(one) for one in found] == [6.0] * RANKS


@pytest.mark.parametrize("name", ["add", "multiply"])
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_reduce_scatter(name: str, dim: int) -> None:
    inputs, shape = values((4, 8, 12), np.float32), [4, 8, 12]
    shape[dim] //= RANKS
    given, made = kind((4, 8, 12), np.float32), kind(shape, np.float32)
    what = f'"stablehlo.reduce_scatter"(%x) <{{scatter_dimension = {dim} : i64, {GROUPS}}}>'
    model = compiled(f"%y = {what} {region(name, np.float32)} : ({given}) -> {made}", given, made)
    want = in_order(getattr(np, name), inputs, np.float32)
    for found, part in zip(on_ranks(model, inputs), np.split(want, RANKS, dim), strict=True):
        np.testing.assert_array_equal(found, part)


@pytest.mark.parametrize(("dim", "dtype"), [(0, np.int8), (1, np.float32), (2, np.bool_)])
def test_all_gather(dim: int, dtype: Any) -> None:
    inputs = values((2, 3, 5), dtype)
    want = np.concatenate(inputs, dim)
    given, made = kind((2, 3, 5), dtype), kind(want.shape, dtype)
    line = f'%y = "stablehlo.all_gather"(%x) <{{all_gather_dim = {dim} : i64, {GROUPS}}}> : ({given}) -> {made}'
    for found in on_ranks(compiled(line, given, made), inputs):
        np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 2), (2, 0), (1, 1), (1, 2)])
def test_all_to_all(split: int, concat: int) -> None:
    inputs = values((4, 8, 12), np.float32)
    parts = [np.split(array, RANKS, split) for array in inputs]
    want = [np.concatenate([part[rank] for part in parts], concat) for rank in range(RANKS)]
    given, made = kind((4, 8, 12), np.float32), kind(want[0].shape, np.float32)
    where = f"split_dimension = {split} : i64, concat_dimension = {concat} : i64, split_count = 4 : i64"
    model = compiled(f'%y = "stablehlo.all_to_all"(%x) <{{{where}, {GROUPS}}}> : ({given}) -> {made}', given, made)
    for found, part in zip(on_ranks(model, inputs), want, strict=True):
        np.testing.assert_array_equal(found, part)


def test_ranks_that_nobody_sends_to_get_zeros() -> None:
    inputs, given = values((130, 3), np.float32), kind((130, 3), np.float32)
    pairs = "source_target_pairs = dense<[[0, 1], [1, 3], [3, 0]]> : tensor<3x2xi64>"
    found = on_ranks(
        compiled(f'%y = "stablehlo.collective_permute"(%x) <{{{pairs}}}> : ({given}) -> {given}', given, given), inputs
    )
    for made, want in zip(found, [inputs[3], inputs[0], np.zeros_like(inputs[0]), inputs[1]], strict=True):
        np.testing.assert_array_equal(made, want)


def test_broadcast_within_each_group_and_the_number_of_the_rank() -> None:
    inputs, given = values((3, 5), np.float32), kind((3, 5), np.float32)
    groups = "replica_groups = dense<[[2, 0], [3, 1]]> : tensor<2x2xi64>"
    line = f"""%0 = "stablehlo.collective_broadcast"(%x) <{{{groups}}}> : ({given}) -> {given}
  %1 = stablehlo.partition_id : tensor<ui32>
  %2 = stablehlo.convert %1 : (tensor<ui32>) -> tensor<f32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> {given}
  %y = stablehlo.add %0, %3 : {given}"""
    for rank, found in enumerate(on_ranks(compiled(line, given, given), inputs)):
        np.testing.assert_array_equal(found, inputs[2 + rank % 2] + np.float32(rank))


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ("dense<> : tensor<0x0xi64>", "it names no replica groups"),
        ("dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>", "its replica groups have 1 and 2 ranks"),
    ],
)
def test_groups_that_cannot_be_are_refused(groups: str, reason: str) -> None:
    given = kind((4, 4), np.float32)
    what = f'"stablehlo.all_reduce"(%x) <{{replica_groups = {groups}}}> {region("add", np.float32)}'
    with pytest.raises(GraphError, match=reason) as caught:
        compiled(f"%y = {what} : ({given}) -> {given}", given, given)
    assert caught.value.code == "graph.unsupported"


def test_two_cores_of_every_rank_compute_what_one_does() -> None:
    """The first core of a rank meets the first cores of the others, and the second one has its share of the rest."""
    given, wide = kind((256, 256), np.float32), kind((256, 256), np.float32)
    text = f"""func.func public @main(%x: {given}, %w: {wide}) -> {given} {{
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({given}, {wide}) -> {given}
  %1 = "stablehlo.all_reduce"(%0) <{{{GROUPS}}}> {region("add", np.float32)} : ({given}) -> {given}
  %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0] : ({given}, {wide}) -> {given}
  return %2 : {given}
}}"""
    one, two = (compile_module(text, target="trn2", lnc=lnc, patterns=[]) for lnc in (1, 2))
    assert two.profile().makespan_ns < one.profile().makespan_ns and len(two.programs) == 2
    weight = values((256, 256), np.float32)[0]
    runs = [[partial(model.run, [own, weight]) for own in values((256, 256), np.float32)] for model in (one, two)]
    for alone, both in zip(*(Parallel(RANKS).run(run) for run in runs), strict=True):
        np.testing.assert_array_equal(alone[0], both[0])
