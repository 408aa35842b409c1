"""Groups: what is in them, that they keep their limits, and what they save."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from nki.graph.ir import Group, Module, Op
from nki.graph.passes.context import GraphContext
from nki.graph.passes.fusion.clusters import outside_values
from nki.graph.passes.fusion.fuse import groups_of
from nki.graph.passes.fusion.limits import live_tiles
from nki.graph.passes.pipeline import run_passes
from nki.graph.stablehlo.read import read
from nki.graph.stablehlo.write import write
from nki.target.load import load_target
from tests.graph import xla
from tests.graph.models import MODELS
from tests.graph.random_models import random_model
from tests.together import together


def _f(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def fused(function: object, *inputs: object, context: GraphContext | None = None) -> Module:
    return run_passes(read(xla.lowered(function, *inputs)), context or GraphContext(load_target("trn2")))


def kinds(module: Module) -> list[str]:
    return [group.kind for group in groups_of(module)]


def test_norm_and_softmax_of_a_product_are_in_its_kernel() -> None:
    assert kinds(fused(MODELS["block"][0], _f(2, 16, 8), _f(8, 32), _f(32), _f(32))) == ["dot"]


def test_norm_of_a_product_with_more_columns_than_a_bank_is_a_kernel_of_its_own() -> None:
    def normed(x, w):
        y = x @ w
        return y / jnp.sqrt((y * y).sum(-1, keepdims=True))

    assert kinds(fused(normed, _f(16, 8), _f(8, 512))) == ["dot"]
    assert kinds(fused(normed, _f(16, 8), _f(8, 513))) == ["dot", "rows"]


def test_products_of_one_left_operand_are_one_kernel() -> None:
    def gated(x, gate, up):
        return jax.nn.silu(x @ gate) * (x @ up)

    (group,) = groups_of(fused(gated, _f(16, 8), _f(8, 32), _f(8, 32)))
    assert [op.name for op in group.ops[:2]] == ["dot_general", "dot_general"]
    assert kinds(fused(gated, _f(16, 8), _f(8, 32), _f(8, 1))) == ["dot", "dot"]  # other shapes


def test_a_product_of_a_product_is_not_merged_with_it() -> None:
    assert kinds(fused(lambda x, w: x @ (x @ w), _f(8, 8), _f(8, 8))) == ["dot", "dot"]


def test_transposes_and_slices_around_products_are_access_patterns() -> None:
    def heads(x, cache):
        y = jnp.einsum("bqhd,bkhd->bhqk", x, cache[1])
        return y.transpose(0, 2, 1, 3)

    assert kinds(fused(heads, _f(2, 16, 4, 8), _f(2, 2, 16, 4, 8))) == ["dot"]


def test_a_rotary_embedding_is_one_kernel() -> None:
    def turned(x, cosine, sine):
        one, two = jnp.split(x, 2, -1)
        return x * cosine + jnp.concatenate((-two, one), -1) * sine

    (group,) = groups_of(fused(turned, _f(16, 4, 8), _f(16, 1, 8), _f(16, 1, 8)))
    assert (group.kind, group.ops[-1].name) == ("joined", "concatenate")


def test_attention_is_two_products_and_a_softmax_in_the_first() -> None:
    def attention(q, k, v):
        return jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) / 8.0) @ v

    module = fused(attention, *[_f(2, 4, 16, 8)] * 3)
    assert kinds(module) == ["dot", "dot"]
    first = groups_of(module)[0]
    assert [op.name for op in first.ops if op.name == "reduce"] == ["reduce", "reduce"]


def test_epilogue_goes_through_a_reshape() -> None:
    def linear(x, w, b, residual):
        return jax.nn.relu((x.reshape(32, 8) @ w).reshape(2, 16, 24) + b) + residual

    (group,) = groups_of(fused(linear, _f(2, 16, 8), _f(8, 24), _f(24), _f(2, 16, 24)))
    assert group.kind == "dot"
    assert group.ops[0].name == "dot_general"
    assert len(group.inputs) == 4
    assert [value.type.shape for value in group.outputs] == [(2, 16, 24)]


def test_a_value_with_several_users_is_one_of_several_outputs() -> None:
    def both(x):
        y = jnp.tanh(x)
        return y, y * 2 + x

    (group,) = groups_of(fused(both, _f(64, 64)))
    assert len(group.outputs) == 2


def test_no_cycle_through_another_kernel() -> None:
    """The product needs the first sum, and the last sum needs the product: they cannot be one kernel."""

    def between(x, w):
        y = x + 1.0
        return jnp.tanh(y) + y @ w

    module = fused(between, _f(16, 16), _f(16, 16))
    _check(module)
    assert sorted(kinds(module)) in (["dot", "pointwise"], ["dot", "pointwise", "pointwise"])


def test_layers_share_their_kernels() -> None:
    def layers(x, ws):
        for w in ws:
            x = jax.nn.gelu(x @ w) + x
        return x

    module = fused(layers, _f(16, 8), [_f(8, 8)] * 4)
    names = [group.name for group in groups_of(module)]
    assert len(names) == 4
    assert len(set(names)) == 1


def test_other_constants_make_other_kernels() -> None:
    one, two = (groups_of(fused(lambda x, c=c: x * c, _f(8, 8)))[0].name for c in (2.0, 3.0))
    assert one != two


@pytest.mark.parametrize("length", [64, 4096, 100_000])
def test_rows_fit_into_a_partition(length: int) -> None:
    def chain(x, y, z):
        a = jnp.tanh(x) * y
        return (a + z) / a.sum(-1, keepdims=True), a, a * x

    target = load_target("trn2")
    module = fused(chain, *[_f(4, length)] * 3)
    for group in groups_of(module):
        reduce = next((op for op in group.ops if op.name == "reduce"), None)
        if reduce is not None:
            shape = reduce.operands[0].type.shape
            row = math.prod(shape[dim] for dim in reduce.attributes["dimensions"])
            work = [op for op in group.ops if op.name != "constant"]
            assert live_tiles(work, shape) * row * 4 <= target.sbuf.usable_bytes_per_partition
    assert ("rows" in kinds(module)) and (len(kinds(module)) > 1) is (length == 100_000)


def test_sums_over_outer_dimensions_read_whole_rows() -> None:
    (group,) = groups_of(fused(lambda x: x.sum(0), _f(256, 64)))
    assert group.kind == "dot"


def test_long_sums_use_all_partitions() -> None:
    module = fused(lambda x: (x * x).sum(), _f(512, 512))
    assert kinds(module) == ["rows", "rows"]
    assert groups_of(module)[0].outputs[0].type.shape == (128,)


def test_loops_hold_groups() -> None:
    module = fused(lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c) * i, x), _f(8, 8))
    loop = next(item for item in module.main.body if isinstance(item, Op) and item.name == "while")
    assert any(isinstance(item, Group) for item in loop.regions[1].ops)
    assert write(read(write(module))) == write(module)


def test_groups_are_read_back() -> None:
    function, inputs = MODELS["attention_grad"]
    module = fused(function, *inputs)
    again = read(write(module))
    one, two = groups_of(module), groups_of(again)
    assert [(g.kind, g.name, len(g.ops), len(g.inputs)) for g in one] == [
        (g.kind, g.name, len(g.ops), len(g.inputs)) for g in two
    ]
    assert write(again) == write(module)


def test_traffic_is_measured() -> None:
    context = GraphContext(load_target("trn2"))
    fused(lambda x: jnp.tanh(x) * 2 + 1, _f(128, 128), context=context)
    traffic = context.traffic
    assert (traffic.kernels_before, traffic.kernels_after, traffic.distinct) == (3, 1, 1)
    assert traffic.bytes_after == 2 * 128 * 128 * 4
    assert traffic.bytes_before >= 3 * traffic.bytes_after


@together("seed", range(100, 160))
def test_random_groups_are_in_order_and_whole(seed: int) -> None:
    module, _ = random_model(seed)
    _check(run_passes(module, GraphContext(load_target("trn2"))))


def _check(module: Module) -> None:
    """Each value is made once, before it is used; groups say what their operations take and make."""
    known = set(module.main.arguments)
    for item in module.main.body:
        ops = item.ops if isinstance(item, Group) else (item,)
        made = {value for op in ops for value in op.results}
        used = {value for op in ops for value in outside_values(op)} - made
        assert used <= known
        assert not made & known
        if isinstance(item, Group):
            assert used == set(item.inputs)
            assert set(item.outputs) <= made
            known |= set(item.outputs)
        else:
            known |= made
    assert set(module.main.results) <= known


def test_small_constants_are_numbers_and_weights_are_inputs() -> None:
    weights = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    module = fused(lambda x: jnp.tanh(x @ weights) * 3.0, _f(4, 8))
    (group,) = groups_of(module)
    constants = [item for item in module.main.body if isinstance(item, Op)]
    assert [op.name for op in constants] == ["constant"]
    assert constants[0].results[0] in group.inputs
