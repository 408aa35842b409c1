"""Attention of a new token and the update of its cache are recognised in models, and one kernel does both."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from nki.graph.compile import compile_module
from tests.graph import xla
from tests.nkilib.patterns.conftest import compare, normal, of_jax, of_torch, replaced

BATCH, HEADS, SHARED, KEYS, D = 2, 4, 2, 40, 16


def _inputs(dtype: str = "bfloat16") -> list[Any]:
    new = (BATCH, SHARED, 1, D)
    shapes = ((BATCH, HEADS, 1, D), new, new, (BATCH, SHARED, KEYS, D), (BATCH, SHARED, KEYS, D))
    return [normal(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]


def _attended(q: Any, k: Any, v: Any, mask: Any) -> Any:
    grouped = q.reshape(BATCH, SHARED, -1, D)
    scores = (grouped @ jnp.swapaxes(k, -1, -2)).astype(jnp.float32) * D**-0.5
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1).astype(v.dtype)
    return (weights @ v).reshape(q.shape)


def _indexed(cache: Any, new: Any, place: Any) -> Any:
    return cache.at[:, :, place].set(new[:, :, 0], mode="drop")


def _sliced(cache: Any, new: Any, place: Any) -> Any:
    return jax.lax.dynamic_update_slice(cache, new, (0, 0, place, 0))


def _step(update: Any, shown: Any = lambda place: jnp.arange(KEYS) <= place) -> Any:
    """Attention with an update of the cache, over the keys that are shown, and both caches."""

    def step(q: Any, k: Any, v: Any, keys: Any, values: Any, place: Any) -> Any:
        keys, values = update(keys, k, place), update(values, v, place)
        return _attended(q, keys, values, shown(place)), keys, values

    return step


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("update", [_indexed, _sliced])
def test_a_token_goes_to_its_place(update: Any) -> None:
    """A place outside of the cache is one of its ends for a slice, none for an index, and -1 is the last one."""
    inputs, step = _inputs(), _step(update, lambda place: jnp.arange(KEYS) != place - 3)
    made = compile_module(xla.lowered(step, *inputs, np.int32(0)), target="trn2")
    assert replaced(made) == ["attention_cache"]
    wide = [each.astype(np.float32) for each in inputs]
    for place in (0, 17, KEYS - 1, KEYS, -1):
        wanted = xla.run(xla.lowered(step, *wide, np.int32(place)), [*wide, np.int32(place)])
        compare(made.run([*inputs, np.int32(place)]), wanted, "bfloat16")


@pytest.mark.usefixtures("always")
def test_the_mask_says_whether_the_new_token_counts() -> None:
    made = of_jax(_step(_indexed, lambda place: jnp.arange(KEYS) < place), *_inputs("float32"), np.int32(20))
    assert replaced(made) == ["attention_cache"]


@pytest.mark.usefixtures("always")
def test_a_token_behind_all_others() -> None:
    def step(q: Any, k: Any, v: Any, keys: Any, values: Any) -> Any:
        keys, values = jnp.concatenate([keys, k], 2), jnp.concatenate([values, v], 2)
        return _attended(q, keys, values, True), keys, values

    assert replaced(of_jax(step, *_inputs())) == ["attention_cache"]


@pytest.mark.usefixtures("always")
def test_a_donated_cache_stays_where_it_is() -> None:
    arrays = [*_inputs(), np.int32(7)]
    module = xla.lowered(_step(_indexed), *arrays)
    made = compile_module(module, target="trn2", donated={1: 3, 2: 4})
    given = [np.array(each) for each in arrays]
    _, keys, values = made.run(given, donate=True)
    assert replaced(made) == ["attention_cache"] and "copy" not in made.report.kernels
    for found, cache, old, new in zip((keys, values), given[3:5], arrays[3:5], arrays[1:3], strict=True):
        assert np.shares_memory(found, cache)
        wanted = np.array(old)
        wanted[:, :, 7] = new[:, :, 0]
        np.testing.assert_array_equal(found, wanted)


class _Static(torch.nn.Module):
    """The update of a static cache and attention, as `transformers` writes them."""

    def forward(self, q: Any, k: Any, v: Any, keys: Any, values: Any, place: Any) -> Any:
        keys, values = keys.index_copy(2, place, k), values.index_copy(2, place, v)
        mask = (torch.arange(KEYS) <= place)[None, None, None]
        wide = [each[:, :, None].expand(-1, -1, 2, -1, -1).reshape(BATCH, HEADS, KEYS, D) for each in (keys, values)]
        return torch.nn.functional.scaled_dot_product_attention(q, *wide, attn_mask=mask), keys, values


@pytest.mark.usefixtures("always")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # by PyTorch itself, which copies its own records
def test_a_static_cache_of_torch() -> None:
    inputs = [torch.from_numpy(each) for each in _inputs("float32")]
    made = of_torch(_Static(), *inputs, torch.tensor([23]))
    assert replaced(made) == ["attention_cache"]


@pytest.mark.usefixtures("always")
def test_what_the_kernel_does_not_update_is_told() -> None:
    def apart(q: Any, k: Any, v: Any, keys: Any, values: Any, place: Any) -> Any:
        keys, values = _indexed(keys, k, place), _indexed(values, v, place - 1)
        return _attended(q, keys, values, True), keys, values

    def turned(q: Any, k: Any, v: Any, keys: Any, values: Any, place: Any) -> Any:
        keys, values = (each.reshape(BATCH, KEYS, SHARED, D) for each in (keys, values))
        keys, values = keys.at[:, place].set(k[:, :, 0]), values.at[:, place].set(v[:, :, 0])
        return _attended(q, keys.swapaxes(1, 2), values.swapaxes(1, 2), True), keys, values

    for function, reason in (
        (apart, "keys and values go to different places, the kernel writes both to one"),
        (turned, "its cache has heads or features before positions, the kernel updates rows of heads"),
    ):
        made = of_jax(function, *_inputs("float32"), np.int32(9))
        assert "attention_cache" not in replaced(made)
        assert [each.reason for each in made.report.near if each.pattern == "attention_cache"] == [reason]
