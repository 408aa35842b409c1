"""Kernels under the names of ``neuronxcc.nki``, called as models of serving libraries call them, against NumPy."""

from __future__ import annotations

import re
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from nki.beta1.frameworks import nki_call
from nki.beta1.language import nc
from nkilib.errors import KernelLimit
from nkilib.neuronxcc_kernels import MODULES
from nkilib.neuronxcc_kernels.not_served import NOT_SERVED
from tests.nkilib.neuronxcc_kernels.calls import RNG, attention, close, kernel, normal, rms_norm, silu, wide


def test_every_module_is_there_and_has_what_it_names() -> None:
    for name in MODULES:
        module = import_module(f"neuronxcc.nki.{name}")
        assert all(hasattr(module, each) for each in module.__all__)


@pytest.mark.parametrize("module", ["kernels.attention", "_private_kernels.attention"])
@pytest.mark.parametrize(
    ("causal", "turned", "cores"), [(True, True, 2), (False, True, 1), (False, False, 2), (True, False, 1)]
)
def test_attention_writes_to_its_output(module: str, causal: bool, turned: bool, cores: int) -> None:
    heads, d, s = 2, 64, 256
    q, k, v = normal(heads, d, s), normal(heads, d, s), normal(heads, s, d)
    out = np.zeros((heads, d, s) if turned else (heads, s, d), bfloat16)
    name = f"{'Causal' if causal else ''}AttentionMMSoftmaxMMWithoutSwap"
    run = kernel(module, "attention_isa_kernel")
    assert run[(nc(cores),)](q, k, v, 0.125, out, kernel_name=name) is None
    wanted = attention(q, k, v, 0.125, causal)
    close(out, wanted.swapaxes(1, 2) if turned else wanted)


def test_what_attention_cannot_serve_is_refused() -> None:
    q, out = normal(1, 64, 128), np.zeros((1, 64, 128), bfloat16)
    run = kernel("kernels.attention", "attention_isa_kernel")
    v = normal(1, 128, 64)
    with pytest.raises(KernelLimit, match="kernel_name"):
        run(q, q, v, 1.0, out, kernel_name="AttentionMMSoftmaxMM")
    with pytest.raises(KernelLimit, match="global_n_tiles"):
        run(q, q, v, 1.0, out, global_n_tiles=2)
    with pytest.raises(KernelLimit, match="dimension 1 of out"):
        run(q, q, v, 1.0, np.zeros((1, 32, 128), bfloat16))
    square = normal(1, 128, 128)
    with pytest.raises(KernelLimit, match="shape of out says"):
        run(square, square, square, 1.0, np.zeros((1, 128, 128), bfloat16))
    with pytest.raises(Exception, match="launched on the grid"):
        run[4](q, q, v, 1.0, out)


@pytest.mark.parametrize(("heads", "heads_kv", "window"), [(2, 2, -1), (4, 2, -1), (2, 1, 100)])
def test_flash_attention_and_its_gradients(heads: int, heads_kv: int, window: int) -> None:
    """As training calls it: values are transposed, and grids are spread over two cores where heads are even."""
    b, d, s = 1, 64, 512
    q, k, v = normal(b, heads, d, s), normal(b, heads_kv, d, s), normal(b, heads_kv, s, d)
    axis = nc(2) * (heads_kv // 2) if heads_kv == 2 else heads_kv
    forward = kernel("kernels", "flash_fwd")[b, axis]
    seed, turned_v = np.zeros(1, np.int32), np.ascontiguousarray(v.swapaxes(2, 3))
    config = kernel("kernels.attention", "FlashConfig")(should_transpose_v=True)
    out, lse = forward(q, k, turned_v, seed, use_causal_mask=True, sliding_window=window, config=config)
    assert out.shape == (b, heads, s, d) and lse.shape == (b, heads, 128, s // 128) and lse.dtype == np.float32
    repeat = heads // heads_kv
    keys, values = (np.repeat(each, repeat, 1) for each in (k, v))
    scores = d**-0.5 * np.einsum("bhdq,bhdk->bhqk", wide(q), wide(keys))
    seen = np.tril(np.ones((s, s), bool))
    if window > 0:
        seen &= ~np.tril(np.ones((s, s), bool), -window)
    scores = np.where(seen, scores, -np.inf)
    sums = np.log(np.exp(scores).sum(-1))
    weights = np.exp(scores - sums[..., None])
    close(out, np.einsum("bhqk,bhkd->bhqd", weights, wide(values)))
    close(lse.swapaxes(2, 3).reshape(b, heads, s), sums, 1e-2)
    dy = normal(b, heads, d, s)
    turned = np.ascontiguousarray(out.swapaxes(2, 3))
    backward = kernel("kernels", "flash_attn_bwd")[b, heads_kv]
    found = backward(q, k, turned_v, turned, dy, lse, seed, use_causal_mask=True, sliding_window=window)
    gradient = np.einsum("bhdq,bhkd->bhqk", wide(dy), wide(values))
    scale = weights * (gradient - (weights * gradient).sum(-1, keepdims=True)) * d**-0.5
    summed = lambda x: x.reshape(b, heads_kv, repeat, *x.shape[2:]).sum(2)  # noqa: E731 - heads share keys
    close(found[0], np.einsum("bhqk,bhdk->bhdq", scale, wide(keys)), 4e-2)
    close(found[1], summed(np.einsum("bhqk,bhdq->bhdk", scale, wide(q))), 4e-2)
    close(found[2], summed(np.einsum("bhqk,bhdq->bhdk", weights, wide(dy))), 4e-2)


def test_flash_attention_asks_for_its_grid_and_no_dropout() -> None:
    q, v, seed = normal(1, 2, 64, 512), normal(1, 2, 512, 64), np.zeros(1, np.int32)
    forward, config = (kernel("kernels.attention", name) for name in ("flash_fwd", "FlashConfig"))
    with pytest.raises(KernelLimit, match=r"launch it as flash_fwd\[1, 2\]"):
        forward(q, q, v, seed)
    with pytest.raises(KernelLimit, match="dropout_p"):
        forward[1, 2](q, q, v, seed, dropout_p=0.1)
    out = forward[1, 2](q, q, v, seed, use_causal_mask=False, config=config(training=False))
    close(out, attention(q, q, v, 0.125, False))


def test_attention_of_stable_diffusion() -> None:
    q, k, v = normal(2, 64, 256), normal(2, 256, 64), normal(2, 256, 64)
    run = kernel("kernels.attention", "fused_self_attn_for_SD_small_head_size")
    close(run[2](q, k, v), attention(q, k.swapaxes(1, 2), v, 0.125, False))
    run = kernel("kernels.attention", "allocated_fused_self_attn_for_SD_small_head_size")
    turned = np.ascontiguousarray(k.swapaxes(1, 2))
    close(run[2](q, turned, v), attention(q, turned, v, 0.125, False).swapaxes(1, 2))


def test_the_adapter_is_undecorated_and_decorated_again() -> None:
    """As models do, which want another mode."""
    import neuronxcc.nki as nki

    module = import_module("neuronxcc.nki._pre_prod_kernels.attn_fwd")
    plain = module.attention_nki_kernel_adapter.__wrapped__
    assert module.TRN1_NO_SHARED_CONSTANT is True and "k_prior" in plain.sign.parameters
    run = nki.jit(plain, mode="torchxla", platform_target="trn2", show_compiler_tb=True, debug_kernel=True)
    q, k, v = normal(4, 128, 64), normal(2, 128, 64), normal(2, 128, 64)
    out = run[(nc(2),)](q, k, v, 0.125, do_out_tp=True, tp_q=True, tp_k=True)
    keys, values = np.repeat(k, 2, 0).swapaxes(1, 2), np.repeat(v, 2, 0)
    close(out, attention(q.swapaxes(1, 2), keys, values, 0.125, True).swapaxes(1, 2))


def test_attention_behind_a_cached_prefix() -> None:
    heads, d, s, prior, used = 2, 64, 128, 512, 300
    q, k, v = normal(heads, d, s), normal(heads, s, d), normal(heads, s, d)
    cached = normal(heads, prior, d), normal(heads, prior, d)
    mask = (np.arange(prior) < used).astype(np.int32)[None]
    out = np.zeros((heads, d, s), bfloat16)
    run = kernel("_private_kernels.prefix_caching_attention", "prefix_caching_attention_fwd_isa_kernel")
    name = "V2CausalAttentionMMSoftmaxMMWithoutSwap"
    run[(nc(2),)](q, k, v, *cached, mask, 0.125, out, kernel_name=name)
    keys = np.concatenate([cached[0][:, :used], k], 1)
    values = np.concatenate([cached[1][:, :used], v], 1)
    scores = 0.125 * np.einsum("hdq,hkd->hqk", wide(q), wide(keys))
    scores = np.where(np.tril(np.ones((s, s + used), bool), used), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    close(out, np.einsum("hqk,hkd->hdq", weights, wide(values)))


@pytest.mark.parametrize("module", ["kernels.cumsum", "_private_kernels.cumsum"])
def test_cumsum_writes_to_its_output(module: str) -> None:
    x = normal(130, 300, dtype=np.float32)
    y = np.zeros_like(x)
    kernel(module, "cumsum")(x, y, axis=1)
    close(y, np.cumsum(wide(x), 1), 1e-5)
    found = nki_call(partial(kernel(module, "cumsum"), axis=1), x, out_shape=x)
    np.testing.assert_array_equal(found, y)
    with pytest.raises(KernelLimit, match="axis"):
        kernel(module, "cumsum")(x, y, axis=0)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("skip", [False, True])
def test_mlp_with_a_norm_and_a_residual(cores: int, skip: bool) -> None:
    b, s, h, i = 1, 128, 256, 512
    x, r, gamma = normal(b, s, h), normal(b, s, h), normal(1, h)
    gate, up, down = (normal(*shape) / bfloat16(16) for shape in ((h, i), (h, i), (i, h)))
    out, total = np.zeros((b, s, h), bfloat16), np.zeros((b, s, h), bfloat16)

    def wanted(hidden: np.ndarray) -> np.ndarray:
        n = rms_norm(hidden, 1.0 if skip else wide(gamma))
        return (silu(n @ wide(gate)) * (n @ wide(up))) @ wide(down)

    run = kernel("_private_kernels.mlp", "mlp_isa_kernel")[(nc(cores),)]
    options = {"kernel_name": "MLP", "fused_rmsnorm": True, "skip_gamma": skip, "eps": 1e-6}
    run(x, gamma, gate, up, down, out, **options)
    close(out, wanted(x))
    run = kernel("_private_kernels.mlp", "mlp_fused_add_isa_kernel")[(nc(cores),)]
    run(x, r, gamma, gate, up, down, out, add_out=total, store_add=True, **options)
    close(total, wide(x) + wide(r))
    close(out, wanted(wide(x) + wide(r)))


def test_mlp_with_weights_of_8_bits() -> None:
    from ml_dtypes import float8_e4m3

    b, s, h, i = 1, 128, 256, 512
    x, ln = normal(b, s, h), normal(1, h)
    weights = [normal(*shape).astype(float8_e4m3) for shape in ((h, i), (h, i), (i, h))]
    scales = [np.repeat(RNG.uniform(0.02, 0.1, (1, n)), 128, 0).astype(np.float32) for n in (i, i, h)]
    out = np.zeros((b, s, h), bfloat16)
    gate, up, down = (wide(w) * wide(c[:1]) for w, c in zip(weights, scales, strict=True))
    pairs = [each for pair in zip(weights, scales, strict=True) for each in pair]
    run = kernel("_private_kernels.mlp", "quant_mlp_isa_kernel")
    with pytest.warns(UserWarning, match="clamp_bound has no effect"):
        run(x, ln, *pairs, 1200.0, out, fused_rmsnorm=False, eps=1e-5, kernel_name="MLP")
    close(out, (silu(wide(x) @ gate) * (wide(x) @ up)) @ down, 3e-2)


@pytest.mark.parametrize("heads", [False, True])
@pytest.mark.parametrize("norm", [False, True])
def test_projection_to_queries_keys_and_values(heads: bool, norm: bool) -> None:
    b, s, h, n, d = 1, 128, 256, 4, 64
    x, r, gamma, bias = normal(b, s, h), normal(b, s, h), normal(1, h), normal(1, n * d)
    weights = normal(h, n * d) / bfloat16(16)
    out = np.zeros((n, b, s, d) if heads else (b, s, n * d), bfloat16)

    def wanted(hidden: np.ndarray) -> np.ndarray:
        made = (rms_norm(hidden, wide(gamma)) if norm else wide(hidden)) @ wide(weights) + wide(bias)
        return made.reshape(b, s, n, d).transpose(2, 0, 1, 3) if heads else made

    options = {"kernel_name": "QKV", "eps": 1e-6, "fused_rmsnorm": norm, "bias": bias}
    kernel("_private_kernels.qkv", "rmsnorm_qkv_isa_kernel")[(nc(2),)](x, weights, gamma, out, **options)
    close(out, wanted(x))
    total = wide(x) + wide(r)
    kernel("_private_kernels.qkv", "rmsnorm_qkv_isa_fused_add_kernel")[(nc(2),)](
        x, r, np.zeros_like(r), weights, gamma, out, **options
    )
    close(x, total)
    close(out, wanted(total))


def test_projection_that_returns_its_result() -> None:
    from neuronxcc.nki._pre_prod_kernels import NormType, QKVOutputLayout

    x, gamma, weights = normal(1, 128, 256), normal(1, 256), normal(256, 256) / bfloat16(16)
    run = kernel("_pre_prod_kernels.qkv", "nki_qkv_projection_isa_kernel")
    out = run[(nc(2),)](
        hidden=x,
        qkv_weights=weights,
        norm_weights=gamma,
        output_layout=QKVOutputLayout.BSD,
        eps=1e-6,
        norm_type=NormType.RMS_NORM,
        bias=None,
    )
    close(out, rms_norm(x, wide(gamma)) @ wide(weights))
    run = kernel("kernels.allocated_fused_linear", "allocated_fused_rms_norm_qkv")
    close(run(x, weights), rms_norm(x) @ wide(weights))


def test_output_projection() -> None:
    active, weight, bias = normal(1, 4, 64, 128), normal(256, 512) / bfloat16(16), normal(1, 512)
    out = np.zeros((1, 128, 512), bfloat16)
    kernel("_pre_prod_kernels.output_proj", "output_proj_kernel")[(nc(2),)](
        active=active, weight=weight, out=out, bias=bias
    )
    rows = wide(active).transpose(0, 3, 1, 2).reshape(1, 128, 256)
    close(out, rows @ wide(weight) + wide(bias))


@pytest.mark.parametrize("name", ["QuantOnly", "RmsNormQuant"])
def test_rows_of_8_bits_with_their_scales(name: str) -> None:
    from ml_dtypes import float8_e4m3

    x, gamma = normal(1, 128, 256), normal(1, 256)
    out = np.zeros((1, 128, 260), np.int8)
    kernel("_private_kernels.rmsnorm", "rmsnorm_quant_isa_kernel")[(nc(2),)](x, gamma, 1200.0, out, kernel_name=name)
    scales = np.ascontiguousarray(out[..., 256:]).view(np.float32)
    found = np.ascontiguousarray(out[..., :256]).view(float8_e4m3).astype(np.float64) * scales
    close(found, wide(x) if name == "QuantOnly" else rms_norm(x, wide(gamma)), 5e-2)


@pytest.mark.parametrize("shape", [((1, 30, 20, 8), (59, 38)), ((2, 140, 7, 5), (61, 20))])
def test_images_of_another_size(shape: Any) -> None:
    (b, h, w, c), (out_h, out_w) = shape
    x = normal(b, h, w, c, dtype=np.float32)
    found = kernel("kernels.vision", "resize_nearest_fixed_dma_kernel")(x, (b, out_h, out_w, c))
    rows = np.floor(np.arange(out_h, dtype=np.float32) * np.float32(h / out_h)).astype(int)
    columns = np.floor(np.arange(out_w, dtype=np.float32) * np.float32(w / out_w)).astype(int)
    np.testing.assert_array_equal(found, x[:, rows][:, :, columns])


def test_gradient_of_a_pooling() -> None:
    n, c, size, half = 2, 65, 8, 4
    x, g = RNG.integers(-3, 4, (n, c, size, size)).astype(np.float32), normal(n, c, half, half, dtype=np.float32)
    found = kernel("kernels.vision", "select_and_scatter_kernel")(x, g)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    wanted = np.zeros_like(padded)
    for i in range(half):
        for j in range(half):
            window = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].reshape(n, c, 9)
            y, z = np.divmod(window.argmax(-1), 3)
            np.add.at(wanted, (np.arange(n)[:, None], np.arange(c)[None], 2 * i + y, 2 * j + z), g[:, :, i, j])
    np.testing.assert_allclose(found, wanted[:, :, 1:-1, 1:-1], atol=1e-6)


def test_an_old_kernel_calls_a_served_one() -> None:
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl

    served = kernel("kernels.allocated_fused_linear", "allocated_fused_rms_norm_qkv")

    @nki.jit
    def doubled(x, w):
        made = served(x, w)
        out = nl.ndarray(made.shape, dtype=made.dtype, buffer=nl.shared_hbm)
        nl.store(out[0], nl.load(made[0]) * 2)
        return out

    x, weights = normal(1, 128, 256), normal(256, 256) / bfloat16(16)
    close(doubled(x, weights), 2 * rms_norm(x) @ wide(weights))


def test_what_is_not_served_says_what_to_call() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"_private_kernels.nothing does not exist") as caught:
        import_module("neuronxcc.nki._private_kernels.nothing")
    assert "kernels.attention" in caught.value.fix
    for module, name in (
        ("_private_kernels.attention", "ring_attention_fwd"),
        ("_pre_prod_kernels.collectives", "CollectivesConfig"),
        ("_pre_prod_kernels.blockwise_mm", "blockwise_mm_selective_cp"),
    ):
        with pytest.raises(ImportError, match=f"{module}.{name} does not exist") as refused:
            kernel(module, name)
        assert refused.value.fix.startswith("call ")
    with pytest.raises(AttributeError, match="nobody_wrote_it"):
        kernel("_private_kernels.attention", "nobody_wrote_it")


def test_everything_that_takes_the_place_of_a_kernel_is_there() -> None:
    for instead in NOT_SERVED.values():
        for name in re.findall(r"nkilib[.\w]+", instead):
            module, _, last = name.rpartition(".")
            found = import_module(module)
            assert hasattr(found, last) or import_module(name)


def test_a_dimension_for_pipelines_of_collectives() -> None:
    from neuronxcc.nki.compiler.backends.neuron.dimensions import VNC, CCPipeline

    x, weights = normal(1, 128, 256), normal(256, 256) / bfloat16(16)
    run = kernel("kernels.allocated_fused_linear", "allocated_fused_rms_norm_qkv")
    close(run[(CCPipeline(1) * nc(2),)](x, weights), rms_norm(x) @ wide(weights))
    close(run[VNC(2)](x, weights), rms_norm(x) @ wide(weights))
    with pytest.raises(Exception, match=r"CCPipeline\(2\)"):
        CCPipeline(2)


def test_names_that_published_files_take_from_inside_of_the_compiler() -> None:
    import logging

    from neuronxcc import nki
    from neuronxcc.nki.compiler.backends.neuron.indexing import TileIndex
    from neuronxcc.nki.compiler.backends.neuron.tensor import local_tile

    assert local_tile is nki.tensor and isinstance(nki.language.arange(4), TileIndex)
    assert logging.OFF > logging.CRITICAL  # type: ignore[attr-defined]


def test_old_kernels_ask_for_their_launch_and_rotate_heads() -> None:
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl

    sharding = kernel("_pre_prod_kernels.util.kernel_helpers", "get_program_sharding_info")
    rotate = kernel("_private_kernels.RoPE", "RoPE_sbuf")

    @nki.jit
    def turned(x, cos, sin):
        _, programs, program = sharding()
        out = nl.ndarray((programs, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        rotate(x_in_sb=nl.load(x), cos_sb=nl.load(cos), sin_sb=nl.load(sin), x_out_sb=tile)
        nl.store(out[program], tile)
        return out

    x, angles = normal(64, 32, dtype=np.float32), RNG.uniform(0, 6, (32, 32))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    first, second = wide(x[:32]), wide(x[32:])
    wanted = np.concatenate([first * cos - second * sin, second * cos + first * sin])
    close(turned[(nc(2),)](x, cos, sin), np.stack([wanted, wanted]), 1e-5)
    assert turned(x, cos, sin).shape == (1, 64, 32)
