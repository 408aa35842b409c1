"""MLP: ``(f(x @ gate) * (x @ up)) @ down`` for each token x, with what stands around it in a transformer.

    x = norm(hidden + residual)
    out = (activation(clamp(x @ gate + b_gate)) * clamp(x @ up + b_up)) @ down + b_down

Shapes: hidden (B, S, H), gate and up (H, I), down (I, H), out (B, S, H); vectors (1, H) or (1, I). dtypes: float32,
bfloat16 or float16; weights of float8_e4m3 and float8_e5m2 as well, with scales or none. Sums are float32.

Plan: up to 512 tokens stay in SBUF with their features on partitions, so that the first product leaves its result where
the second one contracts it, and weights are read once for all of them. Scalar applies the activation and Vector the
gate while sums leave PSUM. Tensor bounds many tokens; up to about 200, DMA does, which reads the weights.

Two cores share the tokens if there are many. Of few tokens, each core computes half of the inner features, the cores
exchange those, and each makes half of the columns of the result, so that each reads half of all weights.

Source: nki/library/api/mlp.rst; gated units: Shazeer, "GLU Variants Improve Transformer" (2020).
"""

from __future__ import annotations

import inspect
from typing import Any

import nki
import nki.language as nl
from nkilib.core.mlp.arguments import multiplied_with, source_of, unit_of
from nkilib.core.mlp.mlp_backward import mlp_backward
from nkilib.core.mlp.mlp_checks import check_mlp, is_decoding
from nkilib.core.mlp.plan import planned
from nkilib.core.mlp.results import Kept, Streamed
from nkilib.core.mlp.tokens import row_piece
from nkilib.core.utils.common_types import (
    ActFnType,
    ComputationMode,
    DtypeMode,
    MLPGateUpWeightLayout,
    NormType,
    QuantizationType,
)
from nkilib.limits import not_built
from nkilib.rows import matrix
from nkilib.streaming import result, store


@nki.jit
def mlp(
    hidden_tensor: Any,
    gate_proj_weights_tensor: Any,
    up_proj_weights_tensor: Any,
    down_proj_weights_tensor: Any,
    normalization_weights_tensor: Any = None,
    gate_proj_bias_tensor: Any = None,
    up_proj_bias_tensor: Any = None,
    down_proj_bias_tensor: Any = None,
    normalization_bias_tensor: Any = None,
    fused_add_tensor: Any = None,
    store_fused_add_result: bool = False,
    activation_fn: ActFnType = ActFnType.SiLU,
    normalization_type: NormType = NormType.NO_NORM,
    quantization_type: QuantizationType = QuantizationType.NONE,
    gate_w_scale: Any = None,
    up_w_scale: Any = None,
    down_w_scale: Any = None,
    gate_up_in_scale: Any = None,
    down_in_scale: Any = None,
    quant_clipping_bound: float = 0.0,
    output_dtype: Any = None,
    store_output_in_sbuf: bool = False,
    eps: float = 1e-6,
    skip_gate_proj: bool = False,
    use_tkg_gate_up_proj_column_tiling: bool = True,
    use_tkg_down_proj_column_tiling: bool = True,
    use_tkg_down_proj_optimized_layout: bool = False,
    use_contiguous_x4_gate_up: bool = False,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
    force_cte_mode: bool = False,
    mode: ComputationMode = ComputationMode.AUTO,
    sbm: Any = None,
    mx_dummy_scale_hbm: Any = None,
    transposed_in: bool = False,
    transposed_out: bool = False,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
    gate_up_w_layout: MLPGateUpWeightLayout = MLPGateUpWeightLayout.CONTIGUOUS,
) -> list[Any]:
    """The MLP of each token.

    Args:
        hidden_tensor: (B, S, H) or (S, H); of another kernel in SBUF (128, S, H / 128), which holds of a token the
            features (cores, 128, H / 128 / cores).
        gate_proj_weights_tensor, up_proj_weights_tensor: (H, I). The gate may be None with `skip_gate_proj`.
        down_proj_weights_tensor: (I, H).
        normalization_weights_tensor: (1, H), for RMS_NORM and LAYER_NORM.
        gate_proj_bias_tensor, up_proj_bias_tensor: (1, I).
        down_proj_bias_tensor: (1, H).
        normalization_bias_tensor: (1, H), for LAYER_NORM.
        fused_add_tensor: residual like hidden_tensor, added before the norm; the sum has its dtype.
        store_fused_add_result: return the sum as well, in the dtype of the result.
        activation_fn: of the gate; without a gate of the up projection.
        normalization_type: of each token.
        quantization_type: NONE, or of weights of 8 bits ROW or STATIC. They are multiplied as they are, with
            activations of 16 bits, and the sums with their scales; STATIC in prefill has activations of 8 bits too.
        gate_w_scale, up_w_scale: float32 (128, I) for ROW, all rows alike; (128, 1) for STATIC.
        down_w_scale: float32 (128, H) for ROW, (128, 1) for STATIC.
        gate_up_in_scale, down_in_scale: float32 (128, 1), with STATIC: what activations of 8 bits are multiples of.
            Those of decoding stay in 16 bits and are not scaled.
        quant_clipping_bound: of activations of 8 bits with ROW, which are not built.
        output_dtype: of the result; by default that of hidden_tensor.
        store_output_in_sbuf: leave the result in SBUF, for a kernel that calls this one to decode.
        eps: of the norm.
        skip_gate_proj: ``f(x @ up) @ down``.
        use_tkg_gate_up_proj_column_tiling: whether tokens or weights stand still in Tensor where the published kernel
            decodes. Here weights do in any case: False has no effect, which is told.
        use_tkg_down_proj_column_tiling: a result in SBUF is (tokens, H), otherwise (128, H / 128, tokens).
        use_tkg_down_proj_optimized_layout: columns of the down projection are stored as (cores, H / 128 / cores, 128)
            instead of (cores, 128, H / 128 / cores).
        gate_clamp_upper_limit, gate_clamp_lower_limit, up_clamp_upper_limit, up_clamp_lower_limit: of the projections
            before the activation.
        force_cte_mode, mode: whether the call counts as prefill or decoding; by default up to 96 tokens are decoded.
            It decides what is accepted; how the products are planned follows from the sizes.
        dtype_mode: weights of 8 bits have the dtype that they are declared with; OCP is not built.
        transposed_in, transposed_out: hidden_tensor or the result is (128, cores, H / 128 / cores, S) in HBM.
        sbm: of no effect, as the compiler allocates memory; it is told.
        use_contiguous_x4_gate_up, mx_dummy_scale_hbm, gate_up_w_layout: not built.

    Returns:
        ``[result]`` or ``[result, sum]``: (B, S, H), or (1, S, H) where there is no B.

    Raises:
        KernelLimit: what does not fit, or is not built.
    """
    options = dict(locals())
    batch, sequence, features, inner = check_mlp(options)
    shape, tokens, kind = (batch, sequence, features), batch * sequence, output_dtype or hidden_tensor.dtype
    eight = quantization_type is QuantizationType.STATIC and not is_decoding(tokens, mode, force_cte_mode)
    matrices = (up_proj_weights_tensor, down_proj_weights_tensor)
    outside, inside = (multiplied_with(each, hidden_tensor, eight) for each in matrices)
    row = row_piece(features, normalization_type)
    plan = planned(tokens, features, inner, max(outside.itemsize, inside.itemsize), row)
    added = [result(shape, kind)] if store_fused_add_result else []
    source = source_of(options, tokens, outside, matrix(added[0]) if added and plan.owns else None)
    unit = unit_of(options, source, plan, inside)
    if not (store_output_in_sbuf or use_tkg_down_proj_optimized_layout or transposed_out):
        out = result(shape, kind)
        unit.compute(source, plan, lambda rows: Streamed(matrix(out), rows.start))
        return [out, *added]
    kept = Kept(tokens, plan.columns, kind, use_tkg_down_proj_optimized_layout)
    unit.compute(source, plan, lambda rows: kept)
    if store_output_in_sbuf:
        return [kept.tile if use_tkg_down_proj_column_tiling else kept.turned(), *added]
    if transposed_out:
        cores, pmax = nl.num_programs(0), nl.tile_size.pmax
        out = result((pmax, cores, features // cores // pmax, tokens), kind)
        store(out[:, nl.program_id(0)], kept.turned())
    else:
        out = result(shape, kind)
        store(matrix(out)[:, plan.columns], kept.tile)
    return [out, *added]


_DIFFERENTIATED = [f"{name}_proj_weights_tensor" for name in ("gate", "up", "down")]


def _gradients(residuals: tuple[Any, ...], gradient: list[Any], **constants: Any) -> Any:
    """Gradients of a plain gated MLP; what stands around it has none yet."""
    beside: dict[str, Any] = {
        name: "an array"
        for name in inspect.signature(mlp.func).parameters
        if name not in constants and name not in ("hidden_tensor", *_DIFFERENTIATED)
    }
    clamps = (f"{name}_clamp_{side}_limit" for name in ("gate", "up") for side in ("upper", "lower"))
    beside |= {name: constants[name] for name in clamps}
    beside["skip_gate_proj"] = constants["skip_gate_proj"] or None
    kind = constants["normalization_type"]
    beside["normalization_type"] = None if kind is NormType.NO_NORM else kind
    not_built({f"{name} in a derivative": value for name, value in beside.items()}, "mlp")
    x, gate, up, down = residuals
    return tuple(mlp_backward(x, gate, up, down, gradient[0], activation_fn=constants["activation_fn"]))


mlp.defvjp(None, _gradients)
