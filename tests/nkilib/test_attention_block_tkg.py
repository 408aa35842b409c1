"""The attention half of a layer: every step of it, kind of cache and place of tensors, against float64."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from ml_dtypes import bfloat16, float8_e4m3

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib.core.attention_block_tkg.attention_block_tkg import attention_block_tkg
from nkilib.core.utils.allocator import SbufManager
from nkilib.core.utils.common_types import QuantizationType
from nkilib.errors import KernelLimit, WithoutEffect
from nkilib.experimental.transformer.attention_block_tkg_reference import attention_block_tkg_reference

NONE, ROW, STATIC = QuantizationType.NONE, QuantizationType.ROW, QuantizationType.STATIC


def made(
    batch: int = 2,
    new: int = 2,
    hidden: int = 128,
    heads: int = 2,
    head: int = 16,
    keys: int = 130,
    dtype: Any = np.float32,
    cache: Any = None,
    block: int = 0,
    norms: bool = False,
    **changes: Any,
) -> dict[str, Any]:
    """Arguments of a call; the second of several sequences of a paged cache is not written."""
    rng = np.random.default_rng(keys + heads)

    def normal(*shape: int, scale: float = 1.0, dtype: Any = dtype) -> Any:
        return (scale * rng.standard_normal(shape)).astype(dtype)

    rows = (batch * 2 * keys // block, block, head) if block else (batch, keys + 6, head)
    transposed = bool(changes.get("K_cache_transposed"))
    shapes = (rows if not transposed else (batch, head, keys + 6), rows)
    k_cache, v_cache = (normal(*shape, dtype=cache or dtype) for shape in shapes)
    index, table = (keys - new - np.arange(batch))[:, None].astype(np.int32), None
    if block:
        table = rng.permutation(rows[0]).reshape(batch, -1)[:, : keys // block].astype(np.int32)
        index = table[:, -1:] * block
        index[1:2] = -1
    mask = (rng.random((keys, batch, heads, new)) < 0.6).astype(np.uint8)
    for b in range(batch):  # what is written is not looked at
        mask[keys - new - b : keys - new, b] = 0
    mask[-1] = 1
    columns, turns = (heads + 2) * head, rng.uniform(0, 6, (head // 2, batch, new))
    found = {
        **{"X": normal(batch, new, hidden), "X_hidden_dim_actual": None, "rmsnorm_X_enabled": True},
        **{"rmsnorm_X_eps": 1e-5, "rmsnorm_X_gamma": normal(1, hidden)},
        **{"W_qkv": normal(hidden, columns, scale=hidden**-0.5), "bias_qkv": normal(1, columns)},
        **{"quantization_type_qkv": NONE, "weight_dequant_scale_qkv": None, "input_dequant_scale_qkv": None},
        **{"rmsnorm_QK_pre_rope_enabled": norms, "rmsnorm_QK_pre_rope_eps": 1e-5},
        **{"rmsnorm_QK_pre_rope_W_Q": normal(1, head) if norms else None, "rmsnorm_QK_pre_rope_W_K": None},
        **{"cos": np.cos(turns).astype(dtype), "sin": np.sin(turns).astype(dtype), "rope_contiguous_layout": True},
        **{"rmsnorm_QK_post_rope_enabled": norms, "rmsnorm_QK_post_rope_eps": 1e-3},
        **{"rmsnorm_QK_post_rope_W_Q": None, "rmsnorm_QK_post_rope_W_K": normal(1, head) if norms else None},
        **{"K_cache_transposed": transposed, "active_blocks_table": table, "K_cache": k_cache, "V_cache": v_cache},
        **{"attention_mask": mask, "sink": normal(heads, 1, dtype=np.float32), "update_cache": True},
        **{
            "kv_cache_update_idx": index,
            "W_out": normal(heads * head, hidden, scale=0.2),
            "bias_out": normal(1, hidden),
        },
        **{"quantization_type_out": NONE, "weight_dequant_scale_out": None, "input_dequant_scale_out": None},
        **{"transposed_out": False, "out_in_sb": False},
    }
    return found | changes


def copied(arguments: dict[str, Any]) -> dict[str, Any]:
    """Caches are written in place."""
    return {name: each.copy() if isinstance(each, np.ndarray) else each for name, each in arguments.items()}


def checked(found: Any, wanted: Any, unit: float = 2.0**-20) -> None:
    """Within so many units of the largest value."""
    for tile, value in zip(found, wanted, strict=True):
        wide, most = np.asarray(tile).astype(np.float64), max(1.0, np.abs(value.astype(np.float64)).max())
        assert wide.shape == value.shape and np.abs(wide - value.astype(np.float64)).max() <= 8 * unit * most


@pytest.mark.parametrize(
    "options",
    [
        {"norms": True},
        {"K_cache_transposed": True, "heads": 3, "new": 3, "rmsnorm_X_enabled": False, "rmsnorm_X_gamma": None},
        {"block": 16, "keys": 256},
        {"W_out": None, "bias_out": None, "update_cache": False, "kv_cache_update_idx": None, "softmax_scale": 0.5},
        {"skip_attention": True, "transposed_out": True, "rope_contiguous_layout": False, "X_hidden_dim_actual": 100},
        {"cos": None, "sin": None, "bias_qkv": None, "new": 1, "batch": 3},
    ],
)
@pytest.mark.parametrize("lnc", [1, 2])
def test_every_step(options: Any, lnc: int) -> None:
    arguments = made(hidden=256, **options)
    found = nki.simulate(attention_block_tkg)[lnc](**copied(arguments))
    checked(found, attention_block_tkg_reference(**arguments, lnc=lnc))


@settings(max_examples=5, deadline=None)
@given(
    some.sampled_from([1, 3, 127, 129, 257]),
    some.sampled_from([2, 30, 64, 128]),
    some.integers(1, 3),
    some.integers(1, 3),
)
def test_any_size(keys: int, head: int, batch: int, heads: int) -> None:
    new = min(2, keys)
    arguments = made(batch, new, 256, heads, head, keys + batch)
    checked(nki.simulate(attention_block_tkg)(**copied(arguments)), attention_block_tkg_reference(**arguments))


def test_positions_in_the_place_of_a_mask() -> None:
    ends = np.array([[60, 61], [100, 101]], np.float32)
    mask = np.ones((2, 2, 2, 2), np.uint8)
    arguments = made(pos_ids=ends, swa_start_pos_ids=ends - 40, S_ctx=130, attention_mask=mask)
    checked(nki.simulate(attention_block_tkg)(**copied(arguments)), attention_block_tkg_reference(**arguments))


@pytest.mark.parametrize("transposed", [False, True])
def test_nothing_is_written_beyond_a_sequence(transposed: bool) -> None:
    arguments = made(batch=3, K_cache_transposed=transposed)
    arguments["kv_cache_update_idx"] = np.array([[135], [134], [-1]], np.int32)
    _, keys, values = nki.simulate(attention_block_tkg)(**copied(arguments))
    _, wanted, others = attention_block_tkg_reference(**arguments)
    checked((keys, values), (wanted, others))
    changed = (values != arguments["V_cache"]).any(axis=2)
    assert list(zip(*np.nonzero(changed), strict=True)) == [(1, 134), (1, 135)]


def test_a_paged_index_for_every_token() -> None:
    arguments = made(block=16, keys=256)
    arguments["kv_cache_update_idx"] = np.array([[5, 300], [0xFFFFFFFF, 0xFFFFFFFF]], np.uint32)
    _, keys, values = nki.simulate(attention_block_tkg)(**copied(arguments))
    _, wanted, others = attention_block_tkg_reference(**arguments)
    checked((keys, values), (wanted, others))
    changed = np.flatnonzero((keys != arguments["K_cache"]).any(axis=2))
    assert list(changed) == [5, 300]


def test_float8_caches() -> None:
    scale = np.full((1, 1), 2.0, np.float32)
    arguments = made(dtype=bfloat16, cache=float8_e4m3, k_scale=scale, v_scale=np.full((128, 1), 200.0, np.float32))
    found, keys, values = nki.simulate(attention_block_tkg)(**copied(arguments))
    wanted, *caches = attention_block_tkg_reference(**arguments)
    assert np.abs(found.astype(np.float64) - wanted).max() <= 2.0**-4 * np.abs(wanted).max()
    for cache, expected, factor in zip((keys, values), caches, (2.0, 200.0), strict=True):
        a, b = cache.astype(np.float64), expected.astype(np.float64)
        # numbers of about 2 are known to 8 bits before a factor, and a rounding to 3 bits may then go the other way
        assert np.isfinite(a).all() and (np.abs(a - b) <= 2.0**-3 * np.abs(b) + 2.0**-6 * factor).all()
        assert np.mean(a != b) < 0.02


@pytest.mark.parametrize("kind", [ROW, STATIC])
def test_float8_weights(kind: QuantizationType) -> None:
    arguments, rng = made(dtype=bfloat16), np.random.default_rng(1)
    columns = arguments["W_qkv"].shape[1]
    small = (8 * rng.standard_normal((128, columns))).astype(float8_e4m3)
    scale = np.repeat(rng.uniform(0.01, 0.02, (1, 3 if kind is STATIC else columns)), 128, 0).astype(np.float32)
    inputs = np.full((128, 1), 2.0**-4, np.float32) if kind is STATIC else None
    given = {"W_qkv": small, "weight_dequant_scale_qkv": scale, "input_dequant_scale_qkv": inputs}
    found = nki.simulate(attention_block_tkg)(**copied(arguments) | given | {"quantization_type_qkv": kind})
    each = scale[0] if kind is ROW else np.repeat(scale[0], [32, 16, 16])
    wanted = attention_block_tkg_reference(**arguments | {"W_qkv": small.astype(np.float64) * each})
    for tile, value in zip(found, wanted, strict=True):
        a, b = (part.astype(np.float64) for part in (tile, value))
        assert np.abs(a - b).max() <= (0.1 if kind is STATIC else 0.03) * np.abs(b).max()


@nki.jit
def inside(x, arguments: dict, transposed: bool):
    """A kernel whose hidden states and results are in SBUF."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    out, keys, values = attention_block_tkg(tile, **arguments, transposed_out=transposed, out_in_sb=True)
    result = nl.ndarray((2, *out.shape), dtype=out.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result[nl.program_id(0)], src=out)
    return result, keys, values


@pytest.mark.parametrize("transposed", [False, True])
def test_hidden_states_in_sbuf(transposed: bool) -> None:
    arguments = made(hidden=512)
    wanted, *caches = attention_block_tkg_reference(**arguments)
    rest = {name: each for name, each in copied(arguments).items() if name not in ("X", "transposed_out", "out_in_sb")}
    x = arguments["X"].reshape(4, 2, 128, 2).transpose(2, 0, 1, 3).reshape(128, 4, 4)
    found, keys, values = nki.simulate(inside)[2](np.ascontiguousarray(x), rest, transposed)
    parts = wanted.reshape(4, 2, 256).swapaxes(0, 1)
    parts = parts.reshape(2, 4, 128, 2).transpose(0, 2, 3, 1) if transposed else parts
    checked((found, keys, values), (parts, *caches))


def test_hidden_states_of_the_kernel_before() -> None:
    arguments = made(hidden=512)
    wanted = attention_block_tkg_reference(**arguments)
    x = arguments["X"].reshape(4, 2, 128, 2).transpose(2, 1, 3, 0)
    given = copied(arguments) | {"X": np.ascontiguousarray(x), "transposed_in": True}
    checked(nki.simulate(attention_block_tkg)(**given), wanted)


def test_calls_from_torch_and_jax() -> None:
    arguments = made()
    wanted = attention_block_tkg_reference(**arguments)
    for convert in (torch.from_numpy, jnp.asarray):
        given = {name: convert(each.copy()) if hasattr(each, "dtype") else each for name, each in arguments.items()}
        checked(attention_block_tkg(**given), wanted)
        if convert is torch.from_numpy:
            assert np.allclose(given["K_cache"].numpy(), wanted[1], atol=1e-5)  # in place


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"X": np.zeros((2, 2, 130), np.float32)}, "shape", "dimension 2 of X is 130, not 128"),
        ({"W_qkv": np.zeros((100, 64), np.float32)}, "shape", "H is 100, 100 more than a multiple of 128"),
        ({"W_qkv": np.zeros((128, 65), np.float32)}, "shape", "dimension 1 of W_qkv is 65, not 64"),
        ({"W_qkv": np.zeros((128, 64), bfloat16)}, "dtype", "W_qkv is bfloat16"),
        ({"X_hidden_dim_actual": 129}, "shape", "X_hidden_dim_actual is 129"),
        ({"rmsnorm_X_enabled": False}, "argument", "rmsnorm_X_gamma is given"),
        ({"sin": None}, "argument", "sin is None"),
        ({"cos": np.zeros((7, 2, 2), np.float32)}, "shape", "dimension 0 of cos is 7, not 8"),
        ({"rmsnorm_QK_pre_rope_W_Q": np.zeros((1, 16), np.float32)}, "argument", "rmsnorm_QK_pre_rope_W_Q is given"),
        ({"K_cache": np.zeros((2, 100, 16), np.float32)}, "shape", "full_sprior is 100"),
        ({"V_cache": np.zeros((2, 136, 17), np.float32)}, "shape", "dimension 3 of V_cache is 17"),
        ({"K_cache": np.zeros((2, 136), np.float32)}, "argument", "the rank of K_cache is 2"),
        ({"attention_mask": np.zeros((130, 2, 2), np.uint8)}, "shape", "attention_mask has 3 dimensions"),
        ({"kv_cache_update_idx": None}, "argument", "kv_cache_update_idx is None"),
        ({"kv_cache_update_idx": np.zeros((2, 2), np.int32)}, "shape", "dimension 1 of kv_cache_update_idx is 2"),
        ({"k_scale": np.zeros((1, 1), np.float32)}, "argument", "v_scale is None"),
        ({"W_out": None, "bias_out": None, "transposed_out": True}, "argument", "transposed_out is True"),
        ({"quantization_type_qkv": ROW}, "dtype", "W_qkv is float32"),
        ({"input_dequant_scale_qkv": np.zeros((128, 1), np.float32)}, "argument", "input_dequant_scale_qkv is"),
        ({"K_cache": np.zeros((2, 136, 16), float8_e4m3)}, "dtype", "X is float32"),
        ({"pos_ids": np.zeros((2, 2), np.float32)}, "argument", "S_ctx is None"),
        ({"swa_start_pos_ids": np.zeros((2, 2), np.float32)}, "argument", "swa_start_pos_ids is given"),
        ({"quantization_type_out": QuantizationType.MX}, "not-built", "does not have quantization_type_out"),
        ({"KVDP": 2}, "not-built", "does not have KVDP yet, and got 2"),
        ({"fp8_packed": True}, "not-built", "does not have fp8_packed yet"),
    ],
)
def test_what_it_refuses(change: Any, code: str, message: str) -> None:
    with pytest.raises(KernelLimit, match=message) as refused:
        nki.simulate(attention_block_tkg)(**made() | change)
    assert refused.value.code == f"nkilib.{code}"


def test_a_manager_of_sbuf_is_told_to_have_no_effect() -> None:
    arguments = made()
    with pytest.warns(WithoutEffect, match="attention_block_tkg: sbm has no effect"):
        nki.simulate(attention_block_tkg)(**arguments, sbm=SbufManager(0, 4096))
