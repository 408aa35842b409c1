"""Kernels of a decoding step under the names of ``neuronxcc.nki``, called as serving libraries do, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nki.beta1.language import nc
from nkilib.errors import KernelLimit
from tests.nkilib.neuronxcc_kernels.test_served import close, kernel, normal, rms_norm, silu, wide


def seen(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, mask: np.ndarray, sink: np.ndarray | None = None
) -> np.ndarray:
    """Attention of scaled queries (B, N, S, d) over keys and values (B, keys, d): (B, N, S, d)."""
    scores = np.where(mask != 0, np.einsum("bnsd,bkd->bnsk", q, keys), -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(wide(sink)[None, :, :, None] - top)
    return np.einsum("bnsk,bkd->bnsd", weights / total, values)


def step_masks(batch: int, heads: int, new: int, looked: int, counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Boolean masks as libraries make them: so many keys of each sequence, and new tokens in a triangle."""
    cache = np.arange(looked)[None, None, None] < np.array(counts)[:, None, None, None]
    active = np.tril(np.ones((new, new), bool))
    return (
        np.ascontiguousarray(np.broadcast_to(cache, (batch, heads, new, looked))),
        np.ascontiguousarray(np.broadcast_to(active, (batch, heads, new, new))),
    )


def with_new(cache: np.ndarray, new: np.ndarray, looked: int) -> np.ndarray:
    """Keys or values (B, looked, d) that are looked at: new tokens are the last ones."""
    return np.concatenate([wide(cache)[:, : looked - new.shape[1]], wide(new)], 1)


def joined(cache: np.ndarray, active: np.ndarray) -> np.ndarray:
    return np.concatenate([cache[..., : cache.shape[-1] - active.shape[-1]], active], -1)


@pytest.mark.parametrize(("cores", "new", "turned"), [(2, 1, True), (1, 3, False)])
def test_attention_of_new_tokens(cores: int, new: int, turned: bool) -> None:
    b, n, d, looked, length = 2, 4, 64, 256, 384
    q, k, v = normal(b, d, n, new), normal(b, d, new), normal(b, new, d)
    keys, values = normal(b, length, d), normal(b, length, d)
    cache_mask, active_mask = step_masks(b, n, new, looked, [200, 131])
    stored = np.ascontiguousarray(keys.swapaxes(1, 2)) if turned else keys
    run = kernel("_pre_prod_kernels.attention_token_gen", "attention_token_gen_kernel")[(nc(cores),)]
    out = run(q, k, v, stored, values, cache_mask, active_mask, K_cache_transposed=turned)
    assert out.shape == (d, b * n * new)
    wanted = seen(
        wide(q).transpose(0, 2, 3, 1),
        with_new(keys, k.swapaxes(1, 2), looked),
        with_new(values, v, looked),
        joined(cache_mask, active_mask),
    )
    close(out.T.reshape(b, n, new, d), wanted)


def turned_heads(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, halves: bool) -> np.ndarray:
    """Heads (B, heads, S, d) rotated by (d / 2, B, S)."""
    half = x.shape[-1] // 2
    first, second = (x[..., :half], x[..., half:]) if halves else (x[..., 0::2], x[..., 1::2])
    c, s = (wide(each).transpose(1, 2, 0)[:, None] for each in (cos, sin))
    both = first * c - second * s, second * c + first * s
    return np.concatenate(both, -1) if halves else np.stack(both, -1).reshape(x.shape)


def block_of_layer(a: dict[str, Any], mask: np.ndarray, keys: np.ndarray, values: np.ndarray) -> tuple[Any, Any, Any]:
    """The attention half of a layer over caches (B, looked, d): the result, new keys and new values (B, S, d)."""
    b, s, _ = a["X"].shape
    d = keys.shape[-1]
    hidden = rms_norm(a["X"], wide(a["W_gamma"]))
    heads = (hidden @ wide(a["W_qkv"]) + wide(a["bias_qkv"])).reshape(b, s, -1, d).transpose(0, 2, 1, 3)
    q, k, v = heads[:, :-2], heads[:, -2:-1], heads[:, -1]
    norm = a.get("qk_norm", False)
    if norm and a.get("pre_rope_rmsnorm"):
        q, k = rms_norm(q), rms_norm(k)
    if not a.get("skip_rope"):
        halves = a.get("rope_first_second_half_impl", True)
        q, k = (turned_heads(each, a["cos"], a["sin"], halves) for each in (q, k))
    if norm and not a.get("pre_rope_rmsnorm"):
        q, k = rms_norm(q), rms_norm(k)
    looked = mask.shape[-1]
    found = seen(q * d**-0.5, with_new(keys, k[:, 0], looked), with_new(values, v, looked), mask, a.get("sink"))
    flat = found.transpose(0, 2, 1, 3).reshape(b * s, -1)
    return flat @ wide(a["W_out"]) + wide(a["bias_out"]), k[:, 0], v


def layer_arguments(b: int, s: int, h: int, n: int, d: int) -> dict[str, Any]:
    angles = np.random.default_rng(3).uniform(0, 6, (d // 2, b, s))
    return {
        "X": normal(b, s, h),
        "W_qkv": normal(h, (n + 2) * d) / np.float32(16).astype("bfloat16"),
        "W_gamma": normal(1, h),
        "rmsnorm_eps": 1e-6,
        "cos": np.cos(angles).astype("bfloat16"),
        "sin": np.sin(angles).astype("bfloat16"),
        "W_out": normal(n * d, h) / np.float32(16).astype("bfloat16"),
        "bias_out": normal(1, h),
        "bias_qkv": normal(1, (n + 2) * d),
        "fused_rmsnorm": True,
    }


BLOCK = ("_pre_prod_kernels.attention_token_gen", "llama3_nki_attention_block_token_gen_kernel")


@pytest.mark.parametrize(
    "options",
    [
        {"qk_norm": True, "qk_norm_eps": 1e-6, "rope_first_second_half_impl": False, "K_cache_transposed": False},
        {"qk_norm": True, "pre_rope_rmsnorm": True, "use_cascaded_attn": True, "K_cache_transposed": True},
        {"skip_rope": True, "K_cache_transposed": True, "sink": normal(2, 1), "update_cache": False},
    ],
)
def test_the_attention_half_of_a_layer(options: dict[str, Any]) -> None:
    b, s, h, n, d, looked, length = 2, 2, 256, 2, 64, 256, 384
    arguments = {**layer_arguments(b, s, h, n, d), "update_cache": True, **options}
    keys, values = normal(b, length, d), normal(b, length, d)
    cache_mask, active_mask = step_masks(b, n, s, looked, [200, 131])
    both = joined(cache_mask, active_mask)
    first = both.transpose(3, 0, 1, 2) if options.get("use_cascaded_attn") else cache_mask
    turned = arguments["K_cache_transposed"]
    stored = np.ascontiguousarray(keys.swapaxes(1, 2) if turned else keys)[:, None]
    at = np.array([[200, 201], [131, 132]], np.int32)
    out, new_keys, new_values = kernel(*BLOCK)[(nc(2),)](
        K_cache=stored,
        V_cache=values[:, None].copy(),
        mask_cache=np.ascontiguousarray(first),
        mask_active=active_mask,
        position_ids=at,
        active_blocks_table=None,
        **arguments,
    )
    wanted, k, v = block_of_layer(arguments, both, keys, values)
    close(out, wanted, 3e-2)
    if not arguments["update_cache"]:
        close(new_keys, k.transpose(2, 0, 1), 3e-2)
        close(new_values, v, 3e-2)
        return
    new_keys = new_keys[:, 0].swapaxes(1, 2) if turned else new_keys[:, 0]
    for cache, before, new in ((new_keys, keys, k), (new_values[:, 0], values, v)):
        after = wide(before)
        for sequence in range(b):
            after[sequence, at[sequence]] = new[sequence]
        close(cache, after)


def test_the_attention_half_of_a_layer_with_a_paged_cache() -> None:
    b, s, h, n, d, looked, length = 2, 2, 256, 2, 64, 512, 32
    arguments = layer_arguments(b, s, h, n, d)
    blocks = looked // length
    keys, values = normal(2 * blocks + 1, length, 1, d), normal(2 * blocks + 1, length, 1, d)
    table = np.random.default_rng(5).permutation(2 * blocks + 1)[: 2 * blocks].reshape(b, blocks).astype(np.int32)
    cache_mask, active_mask = step_masks(b, n, s, looked, [95, 131])
    out, new_keys, new_values = kernel(*BLOCK)[(nc(2),)](
        K_cache=keys.copy(),
        V_cache=values.copy(),
        mask_cache=cache_mask.astype(np.int32),
        mask_active=active_mask.astype(np.int32),
        position_ids=np.array([[95, 96], [131, 132]], np.int32),
        update_cache=True,
        active_blocks_table=table,
        K_cache_transposed=False,
        **arguments,
    )
    flat = [each[table].reshape(b, looked, d) for each in (keys, values)]
    wanted, k, v = block_of_layer(arguments, joined(cache_mask, active_mask), *flat)
    close(out, wanted, 3e-2)
    for cache, before, new in ((new_keys, keys, k), (new_values, values, v)):
        after = wide(before)
        for sequence, positions in enumerate(([95, 96], [131, 132])):
            for place, position in enumerate(positions):
                after[table[sequence, position // length], position % length, 0] = new[sequence, place]
        close(cache, after)


@pytest.mark.parametrize(("cores", "new", "turned"), [(2, 1, False), (1, 2, True)])
def test_attention_that_rotates_by_positions(cores: int, new: int, turned: bool) -> None:
    """The positions of rotation are others than those in the cache."""
    b, n, d, looked, length = 2, 4, 64, 256, 384
    q, k, v = normal(b, n, new, d), normal(b, 1, new, d), normal(b, 1, new, d)
    keys, values = normal(b, length, d), normal(b, length, d)
    at = np.array([[200], [131]], np.int32)
    rotated = (at + 50 + np.arange(new)).astype(np.float32)
    frequencies = (10000.0 ** (-np.arange(d // 2) * 2 / d)).astype(np.float32)[:, None]
    triangle = np.tril(np.ones((new, new), np.float32))
    active = np.ascontiguousarray(np.broadcast_to(triangle, (b, n, new, new)).transpose(3, 0, 1, 2))
    out, k_out = np.zeros((b, n, d, new), q.dtype), np.zeros((b, 1, d, new), q.dtype)
    stored = (keys if not turned else np.ascontiguousarray(keys.swapaxes(1, 2)))[:, None]
    kernel("_private_kernels.attention", "attention_tkg_fwd_isa_kernel")[(nc(cores),)](
        q=q,
        k_active=k,
        v_active=v,
        k_prior=stored,
        v_prior=values[:, None],
        pos_id=at,
        active_mask=active,
        inv_freqs=frequencies,
        rope_pos_ids=rotated,
        out=out,
        k_out=k_out,
        kernel_name="AttentionTkgFwd",
        curr_sprior=looked,
        full_sprior=length,
        tp_k_prior=not turned,
        use_pos_id=True,
        fuse_rope=True,
        strided_mm1=True,
    )
    angles = rotated[None] * frequencies[:, :, None]
    turn = lambda x: turned_heads(wide(x), np.cos(angles), np.sin(angles), True)  # noqa: E731 - both alike
    mask, _ = step_masks(b, n, new, looked, [200, 131])
    both = joined(mask, np.broadcast_to(triangle, (b, n, new, new)))
    rotated_keys = turn(k)[:, 0]
    wanted = seen(turn(q) / 8, with_new(keys, rotated_keys, looked), with_new(values, v[:, 0], looked), both)
    close(k_out[:, 0], rotated_keys.swapaxes(1, 2))
    close(out, wanted.swapaxes(2, 3))


@pytest.mark.parametrize("skip", [False, True])
def test_mlp_that_returns_its_result(skip: bool) -> None:
    from neuronxcc.nki import jit
    from neuronxcc.nki._pre_prod_kernels import NormType

    b, s, h, i = 2, 4, 256, 512
    x, r, gamma = normal(b, s, h), normal(b, s, h), normal(1, h)
    gate, up, down = (normal(*shape) / x.dtype.type(16) for shape in ((h, i), (h, i), (i, h)))
    plain = kernel("_pre_prod_kernels.mlp_tkg.mlp_tkg_isa", "nki_mlp_tkg_isa_kernel").__wrapped__
    run = jit(plain, mode="torchxla", platform_target="trn2", show_compiler_tb=True, debug_kernel=True)[(nc(2),)]
    call = {
        "gate_w": gate,
        "up_w": up,
        "down_w": down,
        "norm_weights": gamma,
        "gate_w_scale": None,
        "up_w_scale": None,
        "down_w_scale": None,
        "eps": 1e-6,
        "norm_type": NormType.RMS_NORM_SKIP_GAMMA if skip else NormType.RMS_NORM,
    }
    out, total = run(hidden=r, attn_output=x, store_add=True, input_quantized=False, **call)
    close(total, wide(x) + wide(r))
    normal_rows = rms_norm(wide(x) + wide(r), 1.0 if skip else wide(gamma))
    close(out, (silu(normal_rows @ wide(gate)) * (normal_rows @ wide(up))) @ wide(down), 3e-2)
    with pytest.raises(KernelLimit, match="input_quantized"):
        run(hidden=x, attn_output=None, store_add=False, input_quantized=True, **call)


def test_projection_of_a_decoding_step() -> None:
    from neuronxcc.nki._pre_prod_kernels import NormType, QKVOutputLayout, QuantizationType

    x, weights, bias = normal(2, 2, 256), normal(256, 256) / np.float32(16).astype("bfloat16"), normal(1, 256)
    run = kernel("_pre_prod_kernels.qkv_tkg_impl", "nki_qkv_projection_tkg_impl")[1]
    call = {
        "hidden": x,
        "qkv_w": weights,
        "norm_w": None,
        "fused_add": False,
        "mlp_prev": None,
        "attn_prev": None,
        "d_head": 64,
        "output_layout": QKVOutputLayout.BSD,
        "eps": 1e-6,
        "norm_type": NormType.NO_NORM,
        "qkvInSB": False,
        "qkv_bias": bias,
        "norm_bias": None,
        "hidden_actual": 256,
        "B": 2,
        "S": 2,
        "H": 256,
        "num_q_heads": 4,
        "num_kv_heads": 4,
        "quantization_type": QuantizationType.NONE,
        "qkv_w_scales": None,
        "qkv_in_scales": None,
    }
    close(run(**call), wide(x) @ wide(weights) + wide(bias))
    with pytest.raises(KernelLimit, match="H is 512"):
        run(**{**call, "H": 512})


def mixture(a: dict[str, Any], local: slice) -> tuple[np.ndarray, np.ndarray]:
    """Result and logits of a mixture of experts, of which some are here."""
    h = a["inp"].shape[-1]
    x = rms_norm(a["inp"], wide(a["gamma"])).reshape(-1, h)
    logits = x @ wide(a["router_weights"])
    chosen = np.argsort(-logits, axis=1)[:, : a["top_k"]]
    softmax = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    affinity = softmax if a["router_act_fn"].name == "SOFTMAX" else 1 / (1 + np.exp(-logits))
    weights = np.zeros_like(logits)
    np.put_along_axis(weights, chosen, np.take_along_axis(affinity, chosen, 1), 1)
    if a.get("norm_topk_prob"):
        weights /= weights.sum(1, keepdims=True)
    out = np.zeros_like(x)
    for place, expert in enumerate(range(local.start, local.stop)):
        both = np.einsum("th,hci->tci", x, wide(a["expert_gate_up_weights"][place]))
        made = (silu(both[:, 0]) * both[:, 1]) @ wide(a["expert_down_weights"][place])
        out += weights[:, expert : expert + 1] * made
    if a["shared_expert_gate_w"] is not None:
        gate, up, down = (wide(a[f"shared_expert_{name}_w"]) for name in ("gate", "up", "down"))
        out += (silu(x @ gate) * (x @ up)) @ down
    return out, logits


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("moe_token_gen_all_experts_kernel", {"shared": True, "act": "SIGMOID", "dtype": "bfloat16"}),
        ("moe_token_gen_all_experts_kernel", {"shared": False, "act": "SOFTMAX", "dtype": "float32"}),
        ("moe_token_gen_selective_load_kernel", {"shared": False, "act": "SOFTMAX", "dtype": "float32"}),
        ("moe_token_gen_kernel", {"shared": True, "act": "SIGMOID", "dtype": "bfloat16"}),
    ],
)
def test_mixture_of_experts(name: str, options: dict[str, Any]) -> None:
    import neuronxcc.nki.language as nl
    from neuronxcc.nki._pre_prod_kernels import ActFnType, ExpertAffinityScaleMode, RouterActFnType

    every, (b, s, h, i, experts) = name == "moe_token_gen_all_experts_kernel", (2, 2, 256, 128, 8)
    local = slice(4, 8) if every else slice(0, 8)
    here = local.stop - local.start
    small = np.float32(16).astype("bfloat16")
    shapes = {"gate": (h, i), "up": (h, i), "down": (i, h)}
    call = {
        "inp": normal(b, s, h),
        "gamma": normal(1, h),
        "router_weights": normal(h, experts) / small,
        "expert_gate_up_weights": normal(here, h, 2, i) / small,
        "expert_down_weights": normal(here, i, h) / small,
        **{
            f"shared_expert_{each}_w": normal(*shape) / small if options["shared"] else None
            for each, shape in shapes.items()
        },
        "expert_gate_up_weights_scale": None,
        "expert_down_weights_scale": None,
        "eps": 1e-6,
        "top_k": 2,
        "router_act_fn": getattr(RouterActFnType, options["act"]),
        "expert_affinities_scaling_mode": ExpertAffinityScaleMode.POST_SCALE,
        "router_mm_dtype": getattr(nl, options["dtype"]),
    }
    if name != "moe_token_gen_kernel":
        call |= {
            "router_bias": None,
            "expert_gate_up_bias": None,
            "expert_down_bias": None,
            "shared_expert_gate_bias": None,
            "router_pre_norm": True,
            "hidden_act_fn": ActFnType.SiLU,
            "hidden_act_scale_factor": None,
            "hidden_act_bias": None,
            "norm_topk_prob": not options["shared"],
        }
    if every:
        call["rank_id"] = np.ones((1, 1), np.int32)
    run = kernel("_pre_prod_kernels.moe_token_gen", name)[(nc(2),)]
    out, logits = run(**call)
    wanted, wanted_logits = mixture(call, local)
    assert out.shape == (b * s, h) and logits.shape == (b * s, experts)
    close(logits, wanted_logits)
    close(out, wanted, 3e-2)
    with pytest.raises(KernelLimit, match="PRE_SCALE"):
        run(**{**call, "expert_affinities_scaling_mode": ExpertAffinityScaleMode.PRE_SCALE})
