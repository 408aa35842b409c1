"""Which operators of PyTorch are taken apart before the graph is imported, nearly all of them by PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

from nki.graph.importers.torch.decompositions.attention import fused_attention
from nki.graph.importers.torch.decompositions.derivatives import derivatives
from nki.graph.importers.torch.decompositions.distributions import draws
from nki.graph.importers.torch.decompositions.foreach import for_each
from nki.graph.importers.torch.decompositions.grid_sample import samplers
from nki.graph.importers.torch.decompositions.grouped_products import grouped, of_libraries
from nki.graph.importers.torch.decompositions.order_statistics import spelled_out
from nki.graph.importers.torch.decompositions.quantize import quantized
from nki.graph.importers.torch.decompositions.scatter import scattered
from nki.graph.importers.torch.decompositions.transformer import fast_path
from nki.graph.importers.torch.import_graph import converters

_MORE = (
    "aten._addmm_activation", "aten._batch_norm_no_update", "aten._batch_norm_with_update_functional",
    "aten._native_batch_norm_legit", "aten.addr", "aten.batch_norm_backward", "aten.dist", "aten.frexp",
    "aten.grid_sampler_2d", "aten.huber_loss", "aten.ldexp",
    "aten.native_batch_norm", "aten.native_group_norm_backward", "aten.tril_indices",
    "aten.triu_indices", "aten.upsample_bicubic2d", "aten.upsample_bilinear2d", "aten.upsample_nearest2d",
)  # fmt: skip


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOT autograd and ``ExportedProgram.run_decompositions``: core ATen, but what has a converter.

    Operators of libraries are in it as soon as the library has defined them.
    """
    return {**_of_pytorch(), **of_libraries()}


@cache  # PyTorch's operators are those of the process
def _of_pytorch() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    wanted = [getattr(aten, name.removeprefix("aten.")) for name in _MORE if hasattr(aten, name.removeprefix("aten."))]
    table = {**core_aten_decompositions(), **get_decompositions(wanted)}
    converted = converters().keys() - _ANYHOW
    for operator in [operator for operator in table if str(operator) in converted]:
        del table[operator]
    return {**table, **fast_path(), **for_each(), **grouped(), **own_decompositions()}


@cache  # the modules do not change
def own_decompositions() -> dict[Any, Callable[..., Any]]:
    """Decompositions that PyTorch does not have, operator by operator."""
    families = spelled_out, scattered, quantized, draws, derivatives, samplers, fused_attention
    return {operator: function for family in families for operator, function in family().items()}


_ANYHOW = frozenset(("aten._unsafe_index.Tensor", "aten.t.default", "aten.transpose.int"))
"""Taken apart although there is a converter for graphs that have them."""
