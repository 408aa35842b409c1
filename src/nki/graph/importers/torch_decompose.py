"""Which operators of PyTorch are taken apart before the graph is imported, nearly all of them by PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

from nki.graph.importers.torch_fast_path import fast_path
from nki.graph.importers.torch_foreach import for_each
from nki.graph.importers.torch_grouped import grouped
from nki.graph.importers.torch_spelled_out import spelled_out
from nki.graph.importers.torch_table import CONVERTERS

_MORE = (
    "aten.addr", "aten.huber_loss", "aten.logcumsumexp", "aten.native_group_norm_backward",
    "aten.upsample_nearest2d_backward", "aten.grid_sampler_2d", "aten.upsample_bicubic2d",
    "aten._native_batch_norm_legit", "aten.max_pool3d_with_indices", "aten.upsample_bilinear2d",
    "aten.upsample_nearest2d",
)  # fmt: skip


@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOT autograd and ``ExportedProgram.run_decompositions``: core ATen, but what has a converter."""
    aten = torch.ops.aten
    wanted = [getattr(aten, name.removeprefix("aten.")) for name in _MORE if hasattr(aten, name.removeprefix("aten."))]
    table = {**core_aten_decompositions(), **get_decompositions(wanted)}
    for operator in [operator for operator in table if str(operator) in CONVERTERS and str(operator) not in _ANYHOW]:
        del table[operator]
    return {**table, **fast_path(), **for_each(), **grouped(), **spelled_out()}


_ANYHOW = frozenset(("aten._unsafe_index.Tensor", "aten.t.default", "aten.transpose.int"))
"""Taken apart although there is a converter for graphs that have them."""
