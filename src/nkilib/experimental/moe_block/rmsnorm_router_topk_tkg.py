"""RMS norm and router of a mixture of experts in one: normalised tokens, the chosen experts, the affinities to them::

    normal = x / sqrt(sum(x**2) / hidden_actual + eps) * gamma
    logits = normal @ router_weights + router_bias
    chosen = the top_k largest logits
    affinities = sigmoid(logits) where chosen, 0 elsewhere; or the softmax of the chosen logits

Layouts: hidden_states (B, S, H), T = B * S tokens on partitions, 128 at a time; results (T, H), (T, top_k) and (T, E).
Dtypes: bfloat16, float16 or float32; sums and logits are float32, and what is multiplied with the weights has rounded
to `router_mm_dtype`, as the result has.

Limits: top_k <= 8, E <= 16,384, quantization_type NONE.

Plan: Scalar squares and sums up, Vector multiplies, the Tensor engine transposes the tokens and multiplies them with
the weights, which stay in SBUF; then it goes on as in `router_topk`. DMA bounds it. The cores share the tokens.

Source: nki/library/api/rmsnorm-router-topk-tkg.rst.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.qkv.hidden import one_ahead
from nkilib.core.rmsnorm.rms_norm import RowSums, load_factors, scale_rows
from nkilib.core.router_topk.choices import route
from nkilib.core.router_topk.plan import SLOTS, Router
from nkilib.core.router_topk.router_topk import load_bias, logits_of
from nkilib.core.utils.common_types import QuantizationType, RouterActFnType
from nkilib.rows import Pieces, RowBlock, matrix
from nkilib.stacks import Stack, empty, turned
from nkilib.streaming import leave, load, result, sbuf, size, spans, store

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)
_P = nl.tile_size.pmax

_TOGETHER = 8
"""Tiles of tokens whose experts are chosen one after the other: the functions of Scalar change once for all."""


@nki.jit
def rmsnorm_router_topk_tkg(
    hidden_states: nl.NkiTensor,
    gamma: nl.NkiTensor,
    router_weights: nl.NkiTensor,
    router_bias: nl.NkiTensor | None = None,
    eps: float = 1e-6,
    top_k: int = 1,
    hidden_actual: int | None = None,
    quantization_type: QuantizationType = QuantizationType.NONE,
    router_mm_dtype: Any = nl.bfloat16,
    router_act_fn: RouterActFnType = RouterActFnType.SIGMOID,
) -> tuple[nl.NkiTensor, nl.NkiTensor, nl.NkiTensor]:
    """Normalise tokens and choose their experts; the cores of the launch share the tokens.

    Args:
        hidden_states: (B, S, H) in HBM.
        gamma: (1, H), factors of the norm.
        router_weights: (H, E).
        router_bias: (1, E), or None for 0.
        eps: added to the mean square.
        top_k: experts of a token, at most 8.
        hidden_actual: numbers of a token that count for the mean, if the others are zeros; None for H.
        quantization_type: NONE. MX is documented and not built.
        router_mm_dtype: of the operands of the product, and of the normalised tokens.
        router_act_fn: SIGMOID or SOFTMAX.

    Returns:
        Normalised tokens (T, H), the experts of each (T, top_k) int32 in descending order of their logits, and the
        affinities (T, E) bfloat16.

    Raises:
        KernelLimit: shapes, dtypes, options beyond the limits above.
    """
    sizes = limits.shape("hidden_states", hidden_states, ("B", "S", "H"))
    limits.shape("router_weights", router_weights, ("H", "E"), sizes)
    tokens, experts = sizes["B"] * sizes["S"], sizes["E"]
    router = Router(
        act_fn=router_act_fn,
        k=top_k,
        experts=experts,
        of_all=False,
        normed=False,
        indirect=False,
        column_tiling=False,
        bias_by_tensor=False,
        shared=True,
        logits=None,
        index=result((tokens, max(top_k, 1)), nl.int32),
        affinities=result((tokens, experts), nl.bfloat16),
        eager=None,
    )
    _check(hidden_states, gamma, router_weights, router_bias, sizes, eps, hidden_actual, router)
    _check_dtypes(quantization_type, router_mm_dtype)
    normal = result((tokens, sizes["H"]), router_mm_dtype)
    flat, norm = matrix(hidden_states), _Norm(gamma, hidden_states, hidden_actual or sizes["H"], eps)
    weights: list[Any] = []
    tiles = spans(tokens, _P, shared=True)
    for group in spans(len(tiles), _TOGETHER):
        found = []
        coming = one_ahead(norm.of(flat, rows, router_mm_dtype) for rows in tiles[group])
        for rows, tile in zip(tiles[group], coming, strict=True):
            store(normal[rows], tile)
            stack = turned([tile], size(rows), sizes["H"], router_mm_dtype, _Leaving())
            bias = load_bias(router, router_bias)
            weights = weights or _weights(router_weights, router_mm_dtype)
            found.append(logits_of(router, _pieces(stack), weights, bias))
        for rows, logits in zip(tiles[group], found, strict=True):
            route(router, logits, rows)
    return normal, router.index, router.affinities


def _check(
    hidden: Any, gamma: Any, weights: Any, bias: Any, sizes: dict[str, int], eps: float, actual: Any, router: Router
) -> None:
    limits.shape("gamma", gamma, (1, "H"), sizes)
    for name, tensor in (("hidden_states", hidden), ("gamma", gamma), ("router_weights", weights)):
        limits.dtype(name, tensor, _FLOATS)
    if bias is not None:
        limits.shape("router_bias", bias, (1, "E"), sizes)
        limits.dtype("router_bias", bias, _FLOATS)
    limits.need(eps >= 0, "eps", eps, "eps is not negative", "pass a small positive number")
    limits.between("top_k", router.k, 1, SLOTS, "Vector finds eight values at once")
    limits.between("E", router.experts, router.k, 16_384, "top_k of them are chosen, and Vector searches 16,384")
    limits.between("hidden_actual", sizes["H"] if actual is None else actual, 1, sizes["H"])
    limits.one_of("router_act_fn", router.act_fn, (RouterActFnType.SOFTMAX, RouterActFnType.SIGMOID))


def _check_dtypes(quantization: QuantizationType, dtype: Any) -> None:
    limits.one_of("quantization_type", quantization, (QuantizationType.NONE, QuantizationType.MX))
    asked = None if quantization is QuantizationType.NONE else quantization
    limits.not_built({"quantization_type": asked}, "rmsnorm_router_topk_tkg")
    limits.one_of("router_mm_dtype", dtype, _FLOATS)


def _weights(source: Any, dtype: Any) -> list[Any]:
    """The weights (H, E) in pieces (128, E) that meet those of a stack of H."""
    tiles = []
    for slab in empty(source.shape[0], 1, dtype):
        rows = slab.rows_of(source, slice(0, slab.tile.shape[1]))
        tile = load(rows)
        if tile.dtype != dtype:
            rounded = sbuf(tile.shape, dtype)
            nisa.tensor_copy(dst=rounded, src=tile)
            tile = rounded
        tiles += [tile[:, piece] for piece in range(tile.shape[1])]
    return tiles


def _pieces(stack: Stack) -> list[Any]:
    """All pieces of a stack, (128, tokens) each."""
    return [slab.tile[:, piece] for slab in stack for piece in range(slab.tile.shape[1])]


class _Leaving:
    """Transposes leave PSUM by way of Vector and, every third time, of Scalar, which has less to do."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, into: Any, block: Any, pieces: slice) -> None:
        self._count += 1
        leave(into, block, self._count % 3 == 0)


class _Norm:
    """The norm of tokens, with what it needs for all of them."""

    def __init__(self, gamma: Any, hidden: Any, count: int, eps: float) -> None:
        self._factors = load_factors(gamma, matrix(hidden))
        self._count, self._eps = count, eps

    def of(self, flat: Any, rows: slice, dtype: Any) -> Any:
        """Normalised rows of a matrix in HBM, in a new tile (rows, columns)."""
        pieces = Pieces(RowBlock(rows.start, size(rows), 1), flat)
        inverse, normal = self._inverse(pieces), sbuf((size(rows), 1, flat.shape[1]), dtype)
        for (part, tile), factor in zip(pieces, self._factors, strict=True):
            scale_rows(tile, inverse, factor, into=normal[:, :, part])
        return normal[:, 0]

    def _inverse(self, pieces: Pieces) -> Any:
        """``1 / sqrt(mean(x**2) + eps)`` by Vector: Scalar would load a table for it, and again that of squares."""
        means, inverse = RowSums(pieces), sbuf((pieces.block.partitions, 1), nl.float32)
        for place, (_, tile) in enumerate(pieces):
            means.add(place, tile, nl.square, scale=self._count**-0.5)
        nisa.tensor_scalar(dst=inverse, data=means.total(), op0=nl.add, operand0=self._eps, op1=nl.power, operand1=-0.5)
        return inverse
