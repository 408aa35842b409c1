"""Attention of a step of decoding: every place of tensors, kind of cache and mask, against float64."""

from dataclasses import replace
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
from nkilib.core.attention.attention_tkg_reference import attention_tkg_reference
from nkilib.core.attention.attention_tkg_utils import (
    get_total_n_prgs,
    is_batch_sharded,
    is_s_prior_sharded,
    resize_cache_block_len_for_attention_tkg_kernel,
)
from nkilib.core.attention_tkg import AttnTKGConfig, attention_tkg
from nkilib.core.utils.allocator import SbufManager
from nkilib.core.utils.common_types import DtypeMode
from nkilib.errors import KernelLimit, WithoutEffect

SMALL = AttnTKGConfig(bs=2, q_head=2, s_active=3, curr_sprior=300, full_sprior=310, d_head=16)
PAGED = replace(SMALL, curr_sprior=256, full_sprior=512, block_len=16, tp_k_prior=True)


def made(cfg: AttnTKGConfig, dtype: Any = np.float32, window: int = 0, sink: bool = False, cache: Any = None) -> Any:
    """Arguments of a call; a cache has room for one sequence more."""
    rng = np.random.default_rng(cfg.curr_sprior + cfg.s_active)
    batch, heads, new, head, keys = cfg.bs, cfg.q_head, cfg.s_active, cfg.d_head, cfg.curr_sprior

    def normal(*shape: int, dtype: Any = dtype) -> Any:
        return rng.standard_normal(shape).astype(dtype)

    found = {"q": normal(batch, heads, new, head), "k_active": normal(batch, 1, new, head)}
    if cfg.qk_in_sb:
        found = {"q": normal(head, batch * heads * new), "k_active": normal(head, batch * new)}
    found |= {"v_active": normal(batch, 1, new, head), "cfg": cfg, "sbm": None}
    pages = (batch * cfg.full_sprior // cfg.block_len, cfg.block_len, head) if cfg.block_len else ()
    rows = (batch + 1, 1, cfg.full_sprior, head)
    turned = rows if cfg.tp_k_prior else (batch + 1, 1, head, cfg.full_sprior)
    found["k_prior"], found["v_prior"] = (normal(*(pages or shape), dtype=cache or dtype) for shape in (turned, rows))
    if pages:
        table = rng.permutation(pages[0]).reshape(batch, -1)[:, : keys // cfg.block_len].astype(np.int32)
        table[0, -1] = table[0, 0]  # a block may belong to several sequences
        found["active_blocks_table"] = table
    counts = rng.random((new if cfg.use_pos_id else keys, batch, heads, new)) < 0.6
    counts[-1] = True
    found["mask"] = counts.astype(np.uint8)
    ends = rng.integers(1, max(2, keys - new), (batch, 1)) + np.arange(new)
    if cfg.use_pos_id or cfg.fuse_rope:
        found["rope_pos_ids"] = ends.astype(np.float32)
    if window:
        found["start_pos_ids"] = ((ends - window) % keys).astype(np.float32)
    if cfg.fuse_rope:
        found["inv_freqs"] = (100.0 ** -(np.arange(head // 2) / head)).astype(np.float32)[:, None]
        found["k_out"] = np.zeros((batch, 1, head, new), dtype)
    if sink:
        found["sink"] = 3 * normal(heads, 1, dtype=np.float32)
    found["out"] = np.zeros((batch, heads, head, new), dtype)
    return found


def checked(result: Any, arguments: Any, lnc: int = 1, unit: float = 2.0**-19) -> None:
    """Both results within so many units of the largest value."""
    for found, wanted in zip(result, attention_tkg_reference(**arguments, lnc=lnc), strict=True):
        if wanted is not None:
            wide = wanted.astype(np.float64)
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            assert np.abs(np.asarray(found).astype(np.float64) - wide).max() <= 4 * unit * max(1.0, np.abs(wide).max())


@pytest.mark.parametrize(
    ("cfg", "options"),
    [
        (SMALL, {"sink": True}),
        (replace(SMALL, tp_k_prior=True, strided_mm1=False, use_pos_id=True), {}),
        (replace(SMALL, use_pos_id=True, fuse_rope=True), {"window": 100}),
        (PAGED, {"sink": True}),
        (replace(PAGED, use_pos_id=True, q_head=24), {}),
    ],
)
def test_kinds_of_caches_and_masks(cfg: AttnTKGConfig, options: Any) -> None:
    arguments = made(cfg, **options)
    checked(nki.simulate(attention_tkg)(**arguments), arguments)


@pytest.mark.parametrize("cfg", [replace(SMALL, q_head=42, curr_sprior=1100, full_sprior=1100, d_head=8), SMALL])
@pytest.mark.parametrize("lnc", [1, 2])
def test_any_tiles_of_keys(cfg: AttnTKGConfig, lnc: int) -> None:
    arguments = made(cfg, sink=True)
    for tiles in ({"keys": 128, "banks": 1}, {"keys": 1 << 20}):
        checked(nki.simulate(attention_tkg)[lnc](**arguments, tiles=tiles), arguments)


@pytest.mark.parametrize("cfg", [replace(SMALL, tp_k_prior=True), PAGED])
@pytest.mark.parametrize("cache", [bfloat16, float8_e4m3])
def test_short_dtypes(cfg: AttnTKGConfig, cache: Any) -> None:
    arguments = made(cfg, bfloat16, cache=cache)
    checked(nki.simulate(attention_tkg)(**arguments), arguments, unit=2.0**-8)


@settings(max_examples=6, deadline=None)
@given(
    some.sampled_from([1, 2, 3, 127, 129, 257, 513]),
    some.sampled_from([1, 2, 31, 64, 127, 128]),
    some.integers(1, 3),
    some.integers(1, 3),
    some.integers(1, 3),
    some.booleans(),
    some.booleans(),
    some.booleans(),
)
def test_any_size(
    keys: int, head: int, batch: int, heads: int, new: int, transposed: bool, positions: bool, room: bool
) -> None:
    new = min(new, keys)
    full = keys + 2 if room or new == keys else keys - new  # the new tokens' own rows are not read
    cfg = AttnTKGConfig(batch, heads, new, keys, full, head, 0, not transposed, use_pos_id=positions)
    arguments = made(cfg)
    checked(nki.simulate(attention_tkg)(**arguments), arguments)


@pytest.mark.parametrize(
    "cfg", [replace(SMALL, bs=1, full_sprior=297), replace(SMALL, q_head=24), replace(PAGED, curr_sprior=512)]
)
def test_two_cores_divide_keys_or_sequences(cfg: AttnTKGConfig) -> None:
    arguments = made(cfg, sink=True)
    checked(attention_tkg[2](**arguments), arguments, lnc=2)


@nki.jit
def between(q, k_active, v_active, k_prior, v_prior, mask, cfg: AttnTKGConfig, rope_pos_ids=None, inv_freqs=None):
    """A kernel with queries, keys and the result in SBUF, at addresses of a manager."""
    sbm = SbufManager(0, 64 * 1024)
    sbm.open_scope()
    out = sbm.alloc_stack(q.shape, q.dtype)
    k_out = sbm.alloc_stack(k_active.shape, q.dtype) if cfg.fuse_rope else None
    tiles = []
    for each in (q, k_active):
        tiles.append(sbm.alloc_stack(each.shape, each.dtype))
        nisa.dma_copy(dst=tiles[-1], src=each)
    rest = (mask, out, cfg, sbm, inv_freqs, rope_pos_ids)
    attention_tkg(*tiles, v_active, k_prior, v_prior, *rest, k_out=k_out)
    results = []
    for tile in (out, k_out) if cfg.fuse_rope else (out, out):
        results.append(nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm))
        nisa.dma_copy(dst=results[-1], src=tile)
    sbm.close_scope()
    return results[0], results[1]


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_tensors_in_sbuf(lnc: int, turned: bool) -> None:
    cfg = replace(SMALL, q_head=2 if turned else 24, qk_in_sb=True, out_in_sb=True, k_out_in_sb=True)
    cfg = replace(cfg, fuse_rope=turned, use_pos_id=turned, use_gpsimd_sb2sb=turned)
    arguments = made(cfg)
    names = ("q", "k_active", "v_active", "k_prior", "v_prior", "mask", "cfg", "rope_pos_ids", "inv_freqs")
    with pytest.warns(WithoutEffect, match="sbm has no effect"):
        found = between[lnc](**{name: arguments[name] for name in names if name in arguments})
    arguments["out"] = np.zeros((0,), np.float32)
    checked(found if turned else (found[0], None), arguments, lnc)


def test_the_reference_is_that_of_torch() -> None:
    cfg = replace(SMALL, curr_sprior=20, full_sprior=20)
    arguments = made(cfg)
    tensors = {name: torch.from_numpy(each).double() for name, each in arguments.items() if hasattr(each, "dtype")}
    keys = torch.cat([tensors["k_prior"][:2].transpose(2, 3)[:, :, :17], tensors["k_active"]], 2)
    values = torch.cat([tensors["v_prior"][:2, :, :17], tensors["v_active"]], 2)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        tensors["q"], keys, values, tensors["mask"].permute(1, 2, 3, 0) != 0, scale=1.0
    )
    found, _ = attention_tkg_reference(**arguments | {"out": np.zeros((), np.float64)})
    assert np.allclose(found, wanted.transpose(2, 3), rtol=1e-12)


def test_a_column_without_a_key_is_no_error_and_a_large_score_no_overflow() -> None:
    arguments = made(replace(SMALL, use_pos_id=True))
    arguments["q"] = arguments["q"] * 1e3
    arguments["rope_pos_ids"][:] = 0  # no key of the cache counts
    checked(nki.simulate(attention_tkg)(**arguments), arguments, unit=2.0**-13)


def test_calls_from_torch_and_jax() -> None:
    arguments = made(replace(SMALL, curr_sprior=130, full_sprior=130))
    for convert in (torch.from_numpy, jnp.asarray):
        given = {name: convert(each) if hasattr(each, "dtype") else each for name, each in arguments.items()}
        found, keys = attention_tkg(**given)
        assert type(found) is type(given["q"]) and keys is None
        checked((np.asarray(found), None), arguments)


def test_who_does_what() -> None:
    assert is_batch_sharded(8, 8, 5, 4096) and not is_batch_sharded(7, 8, 5, 4096)
    assert is_s_prior_sharded(4, 1, 5, 4096) and not is_s_prior_sharded(4, 1, 5, 128)
    assert [get_total_n_prgs(1, 1, 1, keys, 2) for keys in (128, 256)] == [1, 2]
    resize = resize_cache_block_len_for_attention_tkg_kernel
    assert resize(512, 16, 1, 128, 4, 4, 1) == (16, 1)
    assert resize(256, 16, 2, 128, 4, 4, 1) == (16, 1)
    assert resize(64, 16, 2, 128, 4, 4, 1) == (4, 4)
    assert resize(640, 16, 1, 128, 4, 1, 5) == (16, 1)
    assert resize(648, 16, 1, 128, 4, 1, 5) == (1, 16) and resize(648, 16, 1, 128, 4, 1, 5, 0, False) == (1, 16)
    with pytest.raises(KernelLimit, match="keys of a paged sequence is 144, 16 more than a multiple of 128"):
        resize(9, 16, 1, 128, 4, 4, 1)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"cfg": replace(SMALL, d_head=129)}, "shape", "d_head is 129"),
        ({"cfg": replace(SMALL, q_head=43)}, "shape", r"q_head \* s_active is 129"),
        ({"cfg": replace(SMALL, bs=0)}, "shape", "bs is 0"),
        ({"cfg": replace(SMALL, curr_sprior=2)}, "shape", "curr_sprior is 2"),
        ({"cfg": replace(SMALL, full_sprior=296)}, "shape", "full_sprior is 296"),
        ({"cfg": replace(SMALL, tp_k_prior=True)}, "shape", "dimension 2 of k_prior is 16, not keys=310"),
        ({"cfg": replace(SMALL, bs=4)}, "shape", "sequences of k_prior is 3"),
        ({"cfg": replace(SMALL, use_pos_id=True)}, "shape", "dimension 0 of mask is 300, not 3"),
        ({"cfg": replace(SMALL, block_len=16)}, "argument", "active_blocks_table is None"),
        ({"cfg": replace(SMALL, qk_in_sb=True)}, "argument", "q is in HBM"),
        ({"cfg": replace(SMALL, out_in_sb=True)}, "shape", "out has 4 dimensions"),
        ({"cfg": replace(SMALL, fuse_rope=True)}, "argument", "rope_pos_ids is None"),
        ({"start_pos_ids": np.zeros((2, 3), np.float32)}, "argument", "start_pos_ids is"),
        ({"active_blocks_table": np.zeros((2, 1), np.int32)}, "argument", "active_blocks_table is"),
        ({"sink": np.zeros((3, 1), np.float32)}, "shape", "dimension 0 of sink is 3, not 2"),
        ({"q": np.zeros((2, 2, 3, 17), np.float32)}, "shape", "dimension 3 of q is 17, not 16"),
        ({"q": np.zeros((2, 2, 3, 16), np.int32)}, "dtype", "q is int32"),
        ({"q": np.zeros((2, 2, 3, 16), bfloat16)}, "dtype", "dtypes differ: q is bfloat16, k_active is float32"),
        ({"dtype_mode": "ocp"}, "option", "dtype_mode is 'ocp'"),
        ({"tiles": {"banks": 9}}, "shape", "banks of tiles is 9"),
        ({"tiles": {"rows": 3}}, "argument", "tiles of attention_tkg has 'rows'"),
        ({"max_context_len": np.zeros((1,), np.int32)}, "not-built", "attention_tkg does not have max_context_len yet"),
    ],
)
def test_what_it_refuses(change: Any, code: str, message: str) -> None:
    with pytest.raises(KernelLimit, match=message) as refused:
        nki.simulate(attention_tkg)(**made(SMALL) | change)
    assert refused.value.code == f"nkilib.{code}"


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        (replace(PAGED, tp_k_prior=False), "cfg.tp_k_prior is False"),
        (replace(PAGED, curr_sprior=250), "curr_sprior is 250, 10 more than a multiple of 16"),
        (replace(PAGED, curr_sprior=272), "blocks of a sequence is 16"),
        (replace(PAGED, block_len=8), "dimension 1 of k_prior is 16, not 8"),
    ],
)
def test_what_it_refuses_of_a_paged_cache(cfg: AttnTKGConfig, message: str) -> None:
    with pytest.raises(KernelLimit, match=message):
        nki.simulate(attention_tkg)(**made(PAGED) | {"cfg": cfg})


@pytest.mark.parametrize("option", [{"sbm": SbufManager(0, 4096)}, {"dtype_mode": DtypeMode.OCP}])
def test_what_has_no_effect_is_told(option: dict[str, Any]) -> None:
    arguments = made(replace(SMALL, curr_sprior=9, full_sprior=9))
    with pytest.warns(WithoutEffect, match=f"attention_tkg: {next(iter(option))} has no effect"):
        checked(nki.simulate(attention_tkg)(**arguments | option), arguments)
