"""Layers of a decoding step: cores, ranks, 8-bit weights and caches, against float64."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16, float8_e4m3

import nki
from nki.runtime import run_ranks
from nkilib.core.utils.common_types import DtypeMode
from nkilib.errors import KernelLimit, WithoutEffect
from nkilib.experimental.transformer import transformer_tkg
from nkilib.experimental.transformer.transformer_tkg_reference import transformer_tkg_reference


def made(
    batch: int = 2, new: int = 2, hidden: int = 256, heads: int = 2, inner: int = 128, keys: int = 40, layers: int = 2
) -> dict[str, Any]:
    """Arguments of a call, with heads of 16."""
    rng, head = np.random.default_rng(keys), 16

    def each(*shape: int) -> Any:
        scale = shape[0] ** -0.5 if len(shape) == 2 else 1.0
        return tuple((scale * rng.standard_normal(shape)).astype(np.float32) for _ in range(layers))

    turns = rng.uniform(0, 6, (head // 2, batch, new))
    mask = (rng.random((keys, batch, heads, new)) < 0.6).astype(np.uint8)
    mask[-1], mask[:new] = 1, 0
    return {
        **{
            "X": rng.standard_normal((batch, new, hidden)).astype(np.float32),
            "W_qkvs": each(hidden, (heads + 2) * head),
        },
        **{"W_outs": each(heads * head, hidden), "W_gates": each(hidden, inner), "W_ups": each(hidden, inner)},
        **{"W_downs": each(inner, hidden), "W_gamma_qkvs": each(1, hidden), "W_gamma_mlps": each(1, hidden)},
        **{"K_caches": each(batch, head, keys), "V_caches": each(batch, keys, head)},
        **{"RoPE_cos": np.cos(turns).astype(np.float32), "RoPE_sin": np.sin(turns).astype(np.float32)},
        **{"attention_mask": mask, "position_ids": np.zeros((batch, 1), np.int32), "num_layers": layers},
    }


def each_array(arguments: dict[str, Any], function: Any) -> dict[str, Any]:
    """The arguments with a function of every array."""

    def of(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(of(part) for part in value)
        return function(value) if isinstance(value, np.ndarray) else value

    return {name: of(value) for name, value in arguments.items()}


def close(found: Any, wanted: Any, unit: float = 2.0**-18) -> None:
    """Within so many units of the largest value."""
    a, b = np.asarray(found).astype(np.float64), np.asarray(wanted, np.float64)
    assert a.shape == b.shape and np.abs(a - b).max() <= 4 * unit * max(1.0, np.abs(b).max())


@pytest.mark.parametrize("lnc", [1, 2])
def test_layers_and_caches(lnc: int) -> None:
    arguments = made()
    given = each_array(arguments, np.copy)
    close(nki.simulate(transformer_tkg)[lnc](**given), transformer_tkg_reference(**arguments))
    for cache, before in zip(given["V_caches"], arguments["V_caches"], strict=True):
        changed = (cache != before).any(axis=2)
        assert changed[:, :2].all() and not changed[:, 2:].any()
    for cache, before in zip(given["K_caches"], arguments["K_caches"], strict=True):
        changed = (cache != before).any(axis=1)
        assert changed[:, :2].all() and not changed[:, 2:].any()


@settings(max_examples=3, deadline=None)
@given(some.sampled_from([3, 127, 129]), some.sampled_from([1, 127, 129]), some.integers(1, 3), some.integers(0, 2))
def test_any_size(keys: int, inner: int, batch: int, layers: int) -> None:
    arguments = made(batch, 1, 256, 1, inner, keys, layers)
    given = each_array(arguments, np.copy) | {"position_ids": None}
    close(nki.simulate(transformer_tkg)(**given), transformer_tkg_reference(**arguments))
    assert all(np.array_equal(a, b) for a, b in zip(given["K_caches"], arguments["K_caches"], strict=True))


@pytest.mark.parametrize(("lnc", "inside"), [(1, False), (2, True)])
def test_ranks_sum_up(lnc: int, inside: bool) -> None:
    arguments = made(1, 1, 128 * lnc, 1, 32, 8, layers=1)
    half = each_array(arguments, np.copy) | {"replica_groups": ((0, 1),), "sbuf_residual_and_cc": inside}
    names = ("W_outs", "W_downs")  # ranks with equal weights add up to weights of twice the size
    doubled = arguments | {name: tuple(2 * each for each in arguments[name]) for name in names}
    wanted = transformer_tkg_reference(**doubled)
    order = [*arguments, "eps", "replica_groups", "sbuf_residual_and_cc"]
    calls = [tuple((each_array(half, np.copy) | {"eps": 1e-6})[name] for name in order) for _ in range(2)]
    for found in run_ranks(transformer_tkg[lnc], calls):
        close(found, wanted)


def test_float8_weights_of_the_mlp() -> None:
    arguments = each_array(made(), lambda each: each.astype(bfloat16) if each.dtype == np.float32 else each)
    rng = np.random.default_rng(3)
    for name in ("gate", "up", "down"):
        wide = arguments[f"W_{name}s"]
        arguments[f"W_{name}s"] = tuple((each.astype(np.float32) * 64).astype(float8_e4m3) for each in wide)
        scales = (rng.uniform(0.01, 0.02, (1, each.shape[1])).repeat(128, 0).astype(np.float32) for each in wide)
        arguments[f"W_{name}_scales"] = tuple(scales)
    wanted = transformer_tkg_reference(**arguments)
    close(nki.simulate(transformer_tkg)(**each_array(arguments, np.copy)), wanted, unit=2.0**-8)


def test_calls_from_torch_and_jax() -> None:
    arguments = made(1, 1, 128, 1, 32, 8, layers=1)
    wanted = transformer_tkg_reference(**arguments)
    close(transformer_tkg(**each_array(each_array(arguments, np.copy), torch.from_numpy)), wanted)
    given = each_array(arguments, jnp.asarray)
    close(transformer_tkg(**given | {"position_ids": None}), wanted)  # its arrays cannot change


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"X": np.zeros((4, 256), np.float32)}, "shape", "X has 2 dimensions"),
        ({"X": np.zeros((2, 2, 200), np.float32)}, "shape", "H is 200, 72 more than a multiple of 128"),
        ({"num_layers": 3}, "shape", r"len\(W_qkvs\) is 2"),
        ({"W_gamma_mlps": ()}, "shape", r"len\(W_gamma_mlps\) is 0"),
        ({"W_up_scales": (np.zeros((128, 128), np.float32),) * 2}, "argument", "the scales is"),
        ({"clamp_bound": 1.0}, "not-built", "transformer_tkg does not have clamp_bound yet"),
        ({"dtype_mode": None}, "option", "dtype_mode is None"),
        ({"position_ids": np.zeros((3, 1), np.int32)}, "shape", "dimension 0 of kv_cache_update_idx is 3, not 2"),
    ],
)
def test_what_it_refuses(change: Any, code: str, message: str) -> None:
    with pytest.raises(KernelLimit, match=message) as refused:
        nki.simulate(transformer_tkg)(**made() | change)
    assert refused.value.code == f"nkilib.{code}"


def test_the_kind_of_float8_is_told_to_have_no_effect() -> None:
    with pytest.warns(WithoutEffect, match="transformer_tkg: dtype_mode has no effect as weights have a dtype"):
        nki.simulate(transformer_tkg)(**made(1, 1, 128, 1, 32, 8, layers=1), dtype_mode=DtypeMode.OCP)
