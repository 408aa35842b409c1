"""What the arguments of an MLP are to the products: projections, and where tokens come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nki.language as nl
from nkilib.core.mlp.gated_unit import GatedUnit, Source
from nkilib.core.mlp.plan import Plan
from nkilib.core.mlp.projections import Finish, Projection
from nkilib.core.mlp.spread_tokens import LEAST_RUN, MOST, SpreadTokens, loaded
from nkilib.core.mlp.static_scales import Static
from nkilib.core.mlp.tokens import Norm, Tokens
from nkilib.core.mlp.weight_products import in_tiles
from nkilib.rows import matrix
from nkilib.streaming import load, size


def multiplied_with(weights: Any, hidden: Any, eight: bool) -> Any:
    """dtype of what meets weights in a product: theirs, or beside 8 bits one of 16, unless `eight` keeps to 8."""
    if weights.dtype.itemsize > 1 or eight:
        return weights.dtype
    return hidden.dtype if hidden.dtype.itemsize == 2 else nl.bfloat16


def source_of(options: Mapping[str, Any], tokens: int, dtype: Any, stored: Any) -> Source:
    """Where tokens come from.

    Args:
        options: arguments by name.
        dtype: of the panels.
        stored: ``(tokens, features)`` in HBM, where sums with the residual go; or None.
    """
    hidden, residual, kind, eps = (
        options[name] for name in ("hidden_tensor", "fused_add_tensor", "normalization_type", "eps")
    )
    residual = None if residual is None else matrix(residual)
    vectors = (options["normalization_weights_tensor"], options["normalization_bias_tensor"])
    given, parts = _spread_already(options)
    if given is None:
        features = hidden.shape[-1]
        if dtype.itemsize == 1:
            static = Static.of(options["gate_up_in_scale"], dtype)
            return Tokens(matrix(hidden), residual, stored, Norm.of(kind, *vectors, eps), dtype, static)
        if tokens > MOST or features % nl.tile_size.pmax or features < LEAST_RUN * nl.tile_size.pmax:
            return Tokens(matrix(hidden), residual, stored, Norm.of(kind, *vectors, eps), dtype)
        given = loaded(matrix(hidden))
    return SpreadTokens(given, residual, stored, kind, *vectors, eps, dtype, parts)


def _spread_already(options: Mapping[str, Any]) -> tuple[Any, int]:
    """Tokens that come spread over partitions, ``(128, tokens, features / 128)`` in SBUF or None, in how many parts."""
    hidden, cores = options["hidden_tensor"], nl.num_programs(0)
    if options["transposed_in"]:
        tile = load(hidden)
        return tile.flatten_dims(1, 2).permute((0, 2, 1)), cores
    return (hidden, cores) if hidden.buffer == nl.sbuf else (None, 1)


def unit_of(options: Mapping[str, Any], source: Source, plan: Plan, dtype: Any) -> GatedUnit:
    """The three projections of a call, with their vectors in SBUF; `dtype` is that of the inner features."""
    gate = None if options["skip_gate_proj"] else _inner(options, source, plan, "gate", dtype)
    up = _inner(options, source, plan, "up", dtype)
    weights, bias, scale = (options[f"down_{name}"] for name in ("proj_weights_tensor", "proj_bias_tensor", "w_scale"))
    tiles = [view for part in plan.parts for view in in_tiles(weights[part, :])]
    factor = options["down_in_scale"] if dtype.itemsize == 1 else None
    down = Projection(tiles, bias, scale, input_scale=factor).on_rows(min(max(map(size, plan.rows)), nl.tile_size.pmax))
    return GatedUnit(
        gate, up, down, options["activation_fn"], dtype, None if factor is None else Static.of(factor, dtype)
    )


def _inner(options: Mapping[str, Any], source: Source, plan: Plan, name: str, dtype: Any) -> Finish:
    return Projection(
        source.order(options[f"{name}_proj_weights_tensor"]),
        options[f"{name}_proj_bias_tensor"],
        options[f"{name}_w_scale"],
        options[f"{name}_clamp_lower_limit"],
        options[f"{name}_clamp_upper_limit"],
        options["gate_up_in_scale"] if dtype.itemsize == 1 else None,
    ).on_partitions(plan.inner)
