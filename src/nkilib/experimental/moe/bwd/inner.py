"""The backward pass through the activation: gradients of the first products, with the intermediate dimension first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.core.moe.moe_cte.block import Share
from nkilib.core.moe.moe_cte.middle import repeated
from nkilib.core.utils.common_types import ActFnType
from nkilib.experimental.moe.bwd.job import Job, Tokens, turned_weights
from nkilib.streaming import Panel, columns_of, contract, sbuf, size

SLOPES = {
    ActFnType.SiLU: nl.silu_dx,
    ActFnType.GELU: nl.gelu_dx,
    ActFnType.Swish: nl.gelu_apprx_sigmoid_dx,
}
"""Derivatives of activation functions that Scalar has."""


@dataclass(frozen=True)
class Inner:
    """What the backward pass has of this core's part of the intermediate dimension.

    Attributes:
        scaled: panel (I, B): what the last product got, times the affinities.
        gate, up: panels (I, B): gradients of the activation's argument and of its factor.
        shares: (128, B) in float32, which sum up over partitions to the gradients of the affinities.
    """

    scaled: Panel
    gate: Panel
    up: Panel
    shares: Any


def inner_of(job: Job, share: Share, tokens: Tokens) -> Inner:
    """Gradients of the first products of a block."""
    layer, pmax = job.layer, nl.tile_size.pmax
    found = Inner([], [], [], sbuf((min(pmax, size(share.middle)), layer.block), nl.float32))
    factors = repeated(tokens.block, layer.block)
    saved = layer.saved_gate_up.select(0, tokens.block.number)
    weights = layer.down.select(0, tokens.block.expert)
    for part in streaming.spans(size(share.middle), pmax):
        rows = slice(share.middle.start + part.start, share.middle.start + part.stop)
        gate, up = (streaming.load(saved[which, rows]) for which in range(2))
        arriving = _arriving(turned_weights(weights[rows]), tokens.turned, size(part), layer.block)
        _tile(job, found, (gate, up), arriving, factors[0 : size(part)], first=part.start == 0)
    return found


def _tile(job: Job, found: Inner, saved: tuple[Any, Any], arriving: Any, factors: Any, *, first: bool) -> None:
    """One tile of the intermediate dimension, whose results join what was found."""
    layer, limits, (gate, up) = job.layer, job.clamps, saved
    active, slope = _of(layer.function, gate), _of(SLOPES[layer.activation], gate)
    middle = _product(active, up)
    part = _product(arriving, middle)
    shares = found.shares[0 : gate.shape[0]]
    if first:
        nisa.tensor_copy(dst=shares, src=part)
    else:
        nisa.tensor_tensor(dst=shares, data1=shares, data2=part, op=nl.add)
    found.scaled.append(_product(middle, factors, layer.dtype))
    arriving = _product(arriving, factors)
    gate_limits = limits.non_linear_clamp_upper_limit, limits.non_linear_clamp_lower_limit
    up_limits = limits.linear_clamp_upper_limit, limits.linear_clamp_lower_limit
    found.gate.append(_clamped(_product(arriving, _product(slope, up), layer.dtype), gate, gate_limits))
    found.up.append(_clamped(_product(arriving, active, layer.dtype), up, up_limits))


def _arriving(weights: Panel, gradient: Panel, height: int, tokens: int) -> Any:
    """The gradient of what the last product got, (height, tokens) in float32."""
    total = sbuf((height, tokens), nl.float32)
    for part in streaming.spans(tokens, nl.tile_size.psum_bank_fmax):
        sums = contract(weights, columns_of(gradient, part), streaming.psum((height, size(part))))
        nisa.tensor_copy(dst=total[:, part], src=sums)
    return total


def _of(function: Any, data: Any) -> Any:
    result = sbuf(data.shape, nl.float32)
    nisa.activation(dst=result, op=function, data=data)
    return result


def _product(first: Any, second: Any, dtype: Any = nl.float32) -> Any:
    result = sbuf(first.shape, dtype)
    nisa.tensor_tensor(dst=result, data1=first, data2=second, op=nl.multiply)
    return result


def _clamped(gradient: Any, values: Any, limits: tuple[float | None, float | None]) -> Any:
    """A gradient, 0 where the forward pass clamped values to a limit."""
    for limit, inside in zip(limits, (nl.less, nl.greater), strict=True):
        if limit is not None:
            nisa.scalar_tensor_tensor(
                dst=gradient, data=values, op0=inside, operand0=limit, op1=nl.multiply, operand1=gradient
            )
    return gradient
