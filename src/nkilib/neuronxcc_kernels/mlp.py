"""``_private_kernels.mlp``: ``silu(x @ gate) * (x @ up) @ down``, with a norm before and a residual."""

from __future__ import annotations

from typing import Any

from nkilib import limits
from nkilib.core.mlp.mlp import mlp
from nkilib.core.utils.common_types import ActFnType, NormType, QuantizationType
from nkilib.neuronxcc_kernels.outputs import give

__all__ = ["mlp_fused_add_isa_kernel", "mlp_isa_kernel", "quant_mlp_fused_add_isa_kernel", "quant_mlp_isa_kernel"]


def mlp_isa_kernel(
    hidden: Any,
    ln_w: Any,
    gate_w: Any,
    up_w: Any,
    down_w: Any,
    out: Any,
    kernel_name: str = "MLP",
    fused_rmsnorm: bool = True,
    skip_gamma: bool = False,
    eps: float = 1e-6,
    act_fn: ActFnType = ActFnType.SiLU,
) -> None:
    """The MLP of each token.

    Args:
        hidden: (B, S, H).
        ln_w: (1, H), factors of the norm; not read without it, or with `skip_gamma`.
        gate_w, up_w: (H, I).
        down_w: (I, H).
        out: (B, S, H), written.
        kernel_name: "MLP".
        fused_rmsnorm: whether there is a norm.
        skip_gamma: the factors of the norm are in the weights.
        eps: added to the mean of the squares.
        act_fn: of the gate.

    Raises:
        KernelLimit: another name, and what `mlp` refuses.
    """
    limits.one_of("kernel_name", kernel_name, ("MLP",))
    weights = {"gate_proj_weights_tensor": gate_w, "up_proj_weights_tensor": up_w, "down_proj_weights_tensor": down_w}
    give(mlp(hidden, **weights, **_norm(fused_rmsnorm, skip_gamma, ln_w, eps), activation_fn=act_fn)[0], out)


def mlp_fused_add_isa_kernel(
    hidden: Any,
    attn_output: Any,
    ln_w: Any,
    gate_w: Any,
    up_w: Any,
    down_w: Any,
    out: Any,
    kernel_name: str = "MLP",
    add_out: Any = None,
    fused_rmsnorm: bool = True,
    skip_gamma: bool = False,
    eps: float = 1e-6,
    store_add: bool = False,
    act_fn: ActFnType = ActFnType.SiLU,
) -> None:
    """`mlp_isa_kernel` of ``hidden + attn_output``, which is written to `add_out` with `store_add`."""
    limits.one_of("kernel_name", kernel_name, ("MLP",))
    weights = {"gate_proj_weights_tensor": gate_w, "up_proj_weights_tensor": up_w, "down_proj_weights_tensor": down_w}
    made = mlp(
        hidden,
        **weights,
        **_norm(fused_rmsnorm, skip_gamma, ln_w, eps),
        **_sum(attn_output, add_out, store_add),
        activation_fn=act_fn,
    )
    _give_both(made, out, add_out, store_add)


def quant_mlp_isa_kernel(
    hidden: Any,
    ln_w: Any,
    gate_w: Any,
    gate_w_scale: Any,
    up_w: Any,
    up_w_scale: Any,
    down_w: Any,
    down_w_scale: Any,
    clamp_bound: float,
    out: Any,
    kernel_name: str = "MLP",
    fused_rmsnorm: bool = True,
    eps: float = 1e-6,
) -> None:
    """`mlp_isa_kernel` with weights of float8, and float32 scales (128, I) and (128, H) of their columns.

    Activations stay in 16 bits, so that `clamp_bound`, which is for those of 8 bits, is 0 or told to have no effect.
    """
    limits.one_of("kernel_name", kernel_name, ("MLP",))
    _unclipped("quant_mlp_isa_kernel", clamp_bound)
    made = mlp(
        hidden,
        gate_w,
        up_w,
        down_w,
        **_norm(fused_rmsnorm, False, ln_w, eps),
        **_scales(gate_w_scale, up_w_scale, down_w_scale),
    )
    give(made[0], out)


def quant_mlp_fused_add_isa_kernel(
    hidden: Any,
    attn_output: Any,
    ln_w: Any,
    gate_w: Any,
    gate_w_scale: Any,
    up_w: Any,
    up_w_scale: Any,
    down_w: Any,
    down_w_scale: Any,
    clamp_bound: float,
    out: Any,
    add_out: Any = None,
    fused_rmsnorm: bool = True,
    eps: float = 1e-6,
    kernel_name: str = "MLP",
    store_add: bool = False,
) -> None:
    """`quant_mlp_isa_kernel` of ``hidden + attn_output``, which is written to `add_out` with `store_add`."""
    limits.one_of("kernel_name", kernel_name, ("MLP",))
    _unclipped("quant_mlp_fused_add_isa_kernel", clamp_bound)
    made = mlp(
        hidden,
        gate_w,
        up_w,
        down_w,
        **_norm(fused_rmsnorm, False, ln_w, eps),
        **_sum(attn_output, add_out, store_add),
        **_scales(gate_w_scale, up_w_scale, down_w_scale),
    )
    _give_both(made, out, add_out, store_add)


def _norm(fused: bool, skip_gamma: bool, ln_w: Any, eps: float) -> dict[str, Any]:
    if not fused:
        return {"normalization_type": NormType.NO_NORM}
    if skip_gamma:
        return {"normalization_type": NormType.RMS_NORM_SKIP_GAMMA, "eps": eps}
    return {"normalization_type": NormType.RMS_NORM, "normalization_weights_tensor": ln_w, "eps": eps}


def _sum(attn_output: Any, add_out: Any, store_add: bool) -> dict[str, Any]:
    limits.need(
        store_add == (add_out is not None),
        "store_add",
        store_add,
        "store_add=True and add_out belong together",
        "pass both or neither",
    )
    return {"fused_add_tensor": attn_output, "store_fused_add_result": store_add}


def _scales(gate: Any, up: Any, down: Any) -> dict[str, Any]:
    return {
        "quantization_type": QuantizationType.ROW,
        "gate_w_scale": gate,
        "up_w_scale": up,
        "down_w_scale": down,
    }


def _unclipped(kernel: str, bound: float) -> None:
    limits.without_effect(
        kernel, "as activations stay in 16 bits", clamp_bound=bound if bound not in (0.0, float("inf")) else None
    )


def _give_both(made: list[Any], out: Any, add_out: Any, store_add: bool) -> None:
    give(made[0], out)
    if store_add:
        give(made[1], add_out, "add_out")
