"""Keys of the indexer: projected in MX, normalized over their columns, rotated, and kept in the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import streaming
from nkilib.experimental.mla.deepseek.latents import projected, rotate
from nkilib.experimental.mla.deepseek.packed import BLOCK, Packed, even
from nkilib.experimental.quantize_mxfp8.swizzle import PACK, TILE
from nkilib.experimental.sparse_attention_indexer.operands import FineWeights, Stored, turned
from nkilib.streaming import filled, load_repeated, sbuf, size, transpose

EPS = 1e-6
"""Added to the variance."""


@dataclass(frozen=True)
class Keys:
    """What makes keys.

    Attributes:
        strip: their weights, (K, D) in SBUF.
        gamma, beta: (128, D) in SBUF.
        cos, sin: (S, R / 2) in HBM.
        eps: (128, 1) in SBUF.
    """

    strip: Packed
    gamma: Any
    beta: Any
    cos: Any
    sin: Any
    eps: Any

    @classmethod
    def of(cls, weights: FineWeights, gamma: Any, beta: Any, cos: Any, sin: Any) -> Keys:
        """Of tensors in HBM."""
        width = gamma.shape[0]
        scale, shift = (load_repeated(each, BLOCK, nl.float32) for each in (gamma, beta))
        return cls(weights.strip(slice(0, width)), scale, shift, cos, sin, filled((BLOCK, 1), nl.float32, EPS))

    def made(self, states: Packed, tokens: slice) -> Any:
        """Keys (tokens, D) in bfloat16 of as many states, whose angles are those of the tokens of a sequence."""
        count = size(tokens)
        raw = projected(states, slice(0, count), [self.strip])
        normal = self._normalized(raw)
        keys = sbuf(raw.shape, nl.bfloat16)
        turn = angles_of(self.cos, self.sin, tokens)
        rotated = 2 * self.cos.shape[1]
        rotate(normal[:, 0:rotated].expand_dim(1), turn, keys[:, 0:rotated].expand_dim(1), interleaved=False)
        if rotated < raw.shape[1]:
            nisa.activation(dst=keys[:, rotated:], op=nl.copy, data=normal[:, rotated:])
        return keys

    def _normalized(self, raw: Any) -> Any:
        count = raw.shape[0]
        stats, moments = sbuf((count, 6), nl.float32), sbuf((count, 2), nl.float32)
        nisa.bn_stats(dst=stats, data=raw)
        nisa.bn_aggr(dst=moments, data=stats)
        scale, normal = sbuf((count, 1), nl.float32), sbuf(raw.shape, nl.float32)
        nisa.activation(dst=scale, op=nl.rsqrt, data=moments[:, 1:2], bias=self.eps[0:count, :])
        nisa.tensor_scalar(
            dst=normal, data=raw, op0=nl.subtract, operand0=moments[:, 0:1], op1=nl.multiply, operand1=scale
        )
        nisa.tensor_tensor(dst=normal, data1=normal, data2=self.gamma[0:count, :], op=nl.multiply)
        nisa.tensor_tensor(dst=normal, data1=normal, data2=self.beta[0:count, :], op=nl.add)
        return normal


def angles_of(cos: Any, sin: Any, tokens: slice) -> tuple[Any, Any]:
    """Cosine and sine (tokens, R / 2) in float32 of (S, R / 2) in HBM."""
    return streaming.load(cos[tokens], nl.float32), streaming.load(sin[tokens], nl.float32)


def quantized(rows: Any) -> Packed:
    """States (K, tokens) of at most 128 rows (tokens, K) in HBM, quantized."""
    tokens = even(rows.shape[0])
    made = Packed(rows.shape[1] // TILE, tokens)
    for tile, values in enumerate(turned(rows)):
        made.quantize(tile, values.reshape((BLOCK, tokens * PACK)))
    return made


def stored(data: Any, scales: Any, tile: int) -> Packed:
    """States of one tile of tokens that were quantized before, (tiles, 128, K / 512 * 128) in HBM."""
    words, kept = (each.reshape_dim(2, (each.shape[2] // BLOCK, BLOCK)) for each in (data, scales))
    return Stored(words, kept, [tile])


def keep(keys: Any, cache: Any, first: int) -> None:
    """Keys (tokens, D) as columns of a cache (D, positions), from the first one on."""
    streaming.store(cache[:, first : first + keys.shape[0]], transpose(keys))
