"""What `moe_cte` computes, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nkilib.core.moe.moe_cte.moe_cte import MoECTEImplementation, MoECTESpec, QuantizationConfig, ShardOnIConfig
from nkilib.core.moe.moe_cte.moe_cte_utils import SkipMode
from nkilib.core.utils.common_types import ActFnType, ExpertAffinityScaleMode

ACTIVATIONS: dict[ActFnType, Callable[[Any], Any]] = {
    ActFnType.SiLU: lambda x: x / (1 + np.exp(-x)),
    ActFnType.GELU: lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
    ActFnType.GELU_Tanh_Approx: lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    ActFnType.Swish: lambda x: x / (1 + np.exp(-1.702 * x)),
    ActFnType.ReLU: lambda x: np.maximum(x, 0),
}
_PRE = (ExpertAffinityScaleMode.PRE_SCALE, ExpertAffinityScaleMode.PRE_SCALE_DELAYED)


def moe_cte_reference(
    hidden_states: Any,
    expert_affinities_masked: Any,
    gate_up_proj_weight: Any,
    down_proj_weight: Any,
    token_position_to_id: Any,
    block_to_expert: Any,
    block_size: int,
    spec: MoECTESpec,
    conditions: Any = None,
    gate_and_up_proj_bias: Any = None,
    down_proj_bias: Any = None,
    quantization_config: QuantizationConfig | None = None,
    gate_up_proj_scale: Any = None,
    down_proj_scale: Any = None,
    gate_up_activations_T: Any = None,
    down_activations: Any = None,
    activation_function: ActFnType = ActFnType.SiLU,
    skip_dma: SkipMode | None = None,
    compute_dtype: Any = None,
    is_tensor_update_accumulating: bool = True,
    expert_affinities_scaling_mode: ExpertAffinityScaleMode = ExpertAffinityScaleMode.POST_SCALE,
    gate_clamp_upper_limit: float | None = None,
    gate_clamp_lower_limit: float | None = None,
    up_clamp_upper_limit: float | None = None,
    up_clamp_lower_limit: float | None = None,
    gate_up_in_scale: Any = None,
    down_in_scale: Any = None,
    accumulation_dtype: Any = None,
    skip_gate_proj: bool = False,
) -> Any:
    """The result, and what the backward pass needs where that is returned, in float64."""
    config, settings = quantization_config or QuantizationConfig(), spec.shard_on_I or ShardOnIConfig()
    experts, inner, hidden = down_proj_weight.shape
    rows, ids = hidden_states.shape[0], np.reshape(token_position_to_id, (-1, block_size))
    x, affinities = _wide(hidden_states), _wide(expert_affinities_masked).reshape(rows, experts)
    first_scale = _given((gate_up_proj_scale, config.gate_up_proj_scale), (experts, 2, inner), 1.0)
    last_scale = _given((down_proj_scale, config.down_proj_scale), (experts, hidden), 1.0)
    first_bias = _given((gate_and_up_proj_bias,), (experts, 2, inner), 0.0)
    last_bias = _given((down_proj_bias,), (experts, hidden), 0.0)
    clamps = ((gate_clamp_lower_limit, gate_clamp_upper_limit), (up_clamp_lower_limit, up_clamp_upper_limit))
    post = expert_affinities_scaling_mode == ExpertAffinityScaleMode.POST_SCALE
    pre, inside = expert_affinities_scaling_mode in _PRE, settings.expert_affinity_multiply_on_I
    out, saved = np.zeros((rows, hidden)), np.zeros((len(ids), 2, inner, block_size))
    saved_down = np.zeros((len(ids), block_size, hidden))
    for number in range(_blocks(spec, settings, len(ids), experts, conditions)):
        e, places = int(np.reshape(block_to_expert, -1)[number]), _places(ids[number], rows, skip_dma)
        tokens = ids[number, places]
        factor = affinities[tokens, e][:, None]
        sums = np.einsum("th,hki->kti", x[tokens] * (factor if pre else 1.0), _wide(gate_up_proj_weight[e]))
        sums = sums * first_scale[e][:, None] + first_bias[e][:, None]
        gate, up = (
            each if limit == (None, None) else np.clip(each, *limit) for each, limit in zip(sums, clamps, strict=True)
        )
        saved[number][:, :, places] = gate.T, up.T
        middle = ACTIVATIONS[activation_function](gate) * up * (factor if post and inside else 1.0)
        saved_down[number, places] = result = middle @ _wide(down_proj_weight[e]) * last_scale[e] + last_bias[e]
        result = result * (factor if post and not inside else 1.0)
        out[tokens] = out[tokens] + result if is_tensor_update_accumulating else result
    if not (settings.checkpoint_activation or spec.implementation == MoECTEImplementation.shard_on_i_dropping):
        return out
    return (out, saved) if inside else (out, saved, saved_down)


def _places(ids: Any, rows: int, skip: SkipMode | None) -> Any:
    """Places of a block that have a token."""
    return np.flatnonzero((ids >= 0) & (ids < rows)) if skip and skip.skip_token else np.arange(len(ids))


def _wide(array: Any) -> Any:
    return np.asarray(array).astype(np.float64)


def _given(candidates: tuple[Any, ...], shape: tuple[int, ...], otherwise: float) -> Any:
    found = next((each for each in candidates if each is not None), None)
    return np.full(shape, otherwise) if found is None else _wide(found).reshape(shape)


def _blocks(spec: MoECTESpec, settings: ShardOnIConfig, blocks: int, experts: int, conditions: Any) -> int:
    if spec.implementation != MoECTEImplementation.shard_on_i_hybrid:
        return blocks
    static = max(0, blocks - experts) if settings.num_static_block is None else settings.num_static_block
    return max(min(static, blocks), int(np.sum(conditions)))
