"""What the projections of latent attention share: hidden states as MX operands, normalized latents, rotation.

The first projection gives latents of queries, latents of keys and values, and a rotated part that all heads share.
Latents that are projected again are computed with their features on partitions, where the second product wants them:
nothing is transposed. Columns of the weights are permuted for it, feature ``512 t + 4 p + i`` of R stands in column
``i * R / 4 + 128 t + p``. The norm needs the sum of squares over features, which a product with ones brings to all
partitions at once.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.mla.deepseek.packed import BLOCK, X4, Packed, Weights, even, product, turned
from nkilib.experimental.quantize_mxfp8.swizzle import PACK, TILE
from nkilib.streaming import ceil_div, filled, load, psum, sbuf, size, spans

TOKENS = 512
"""That a bank of PSUM takes in float32."""


# ----------------------------------------------------------------------------------------------------- hidden states


def quantized_states(states: Any) -> Packed:
    """Hidden states (tokens, H) in HBM in the permuted order, quantized: (H, tokens)."""
    tokens, width = even(states.shape[0]), states.shape[1]
    made = Packed(width // TILE, tokens)
    parts = states.reshape((states.shape[0], PACK, made.tiles, BLOCK))
    for part in spans(states.shape[0], TOKENS):
        for tile in range(made.tiles):
            made.quantize(tile, turned(parts[part, :, tile, :], even(size(part))), part.start)
    return made


def packed_states(states: Any, width: int) -> Packed:
    """Hidden states (tokens, H and scales) that are quantized already, in natural order: (H, tokens).

    Words are transposed by DMA, and scales, which have the order of `Packed` already, by the Tensor engine.
    """
    tokens, tiles = states.shape[0], width // TILE
    made = Packed(tiles, even(tokens))
    if even(tokens) > tokens:
        nisa.memset(dst=made.data[:, :, tokens:].view(nl.uint32), value=0)
        nisa.memset(dst=made.scales[:, :, tokens:], value=0)
    words = states.view(X4)[:, 0 : width // PACK].reshape_dim(1, (tiles, BLOCK))
    for part in spans(tokens, BLOCK):
        nisa.dma_transpose(dst=made.data[:, :, part], src=words[part], dge_mode=nisa.dge_mode.none)
        scales = load(states[part, width:])
        for group in range(ceil_div(tiles, 4)):
            block = scales[:, group * BLOCK : (group + 1) * BLOCK].view(nl.float8_e5m2)
            moved = psum((BLOCK, size(part), 2), nl.float8_e5m2)  # bytes arrive in slots of two
            nisa.nc_transpose(dst=moved[:, :, 0], data=block, engine=nisa.engine.tensor)
            nisa.tensor_copy(dst=made.scales[:, group, part], src=moved.view(nl.uint8)[:, :, 0])
    return made


# ------------------------------------------------------------------------------------------------------------ latents


def normalized(states: Packed, weights: Weights, columns: slice, gamma: Any, eps: Any) -> Packed:
    """Latents (R, tokens) of permuted columns of the weights: divided by their rms, times gamma, quantized.

    Args:
        gamma: (1, R) in HBM.
        eps: (128, 1) in SBUF, added to the mean square.
    """
    tokens, rank = states.data.shape[2], size(columns)
    parts = spans(tokens, TOKENS)
    raw, sums = _raw(states, weights, columns, parts)
    scale = load(gamma.reshape((rank // TILE, BLOCK, PACK)).permute((1, 0, 2)), nl.float32)
    made = Packed(rank // TILE, tokens)
    for part, squares in zip(parts, sums, strict=True):
        shrink = sbuf(squares.shape, nl.float32)
        nisa.activation(dst=shrink, op=nl.rsqrt, data=squares, scale=1.0 / rank, bias=eps)
        for tile in range(made.tiles):
            values = sbuf((BLOCK, size(part), PACK), nl.bfloat16)
            for place in range(PACK):
                nisa.scalar_tensor_tensor(
                    dst=values[:, :, place],
                    data=raw[:, place * made.tiles + tile, part],
                    op0=nl.multiply,
                    operand0=scale[:, tile, place : place + 1],
                    op1=nl.multiply,
                    operand1=shrink,
                )
            made.quantize(tile, values.reshape((BLOCK, size(part) * PACK)), part.start)
    return made


def _raw(states: Packed, weights: Weights, columns: slice, parts: list[slice]) -> tuple[Any, list[Any]]:
    """Latents (128, R / 128, tokens) in SBUF, and for each part of the tokens the sum of squares on all partitions."""
    tokens, rank = states.data.shape[2], size(columns)
    raw, ones = sbuf((BLOCK, rank // BLOCK, tokens), nl.bfloat16), filled((BLOCK, BLOCK), nl.bfloat16, 1.0)
    sums = [psum((BLOCK, size(part))) for part in parts]
    for across in spans(rank, TILE):
        strip = weights.strip(slice(columns.start + across.start, columns.start + across.stop))
        for number, part in enumerate(parts):
            for chunk in spans(size(across), BLOCK):
                place = (across.start + chunk.start) // BLOCK
                found, square = product(strip, chunk, states, part), sbuf((BLOCK, size(part)), nl.bfloat16)
                nisa.tensor_copy(dst=raw[:, place, part], src=found)
                nisa.activation(dst=square, op=nl.square, data=found)
                nisa.nc_matmul(dst=sums[number], stationary=ones, moving=square, accumulate=place > 0)
    return raw, sums


def projected(states: Packed, tokens: slice, strips: list[Packed]) -> Any:
    """Products of some tokens, at most 128, with columns of weights, strip by strip: (tokens, columns) in float32."""
    held = slice(tokens.start, tokens.start + even(size(tokens)))
    made = sbuf((size(tokens), sum(strip.data.shape[2] for strip in strips)), nl.float32)
    first = 0
    for number, strip in enumerate(strips):
        width = strip.data.shape[2]
        sums = product(states, held, strip, slice(0, width))
        streaming.leave(made[:, first : first + width], sums[0 : size(tokens), :], number)
        first += width
    return made


def normalize_rows(values: Any, gamma: Any, eps: Any, into: Any) -> None:
    """``into = values / rms(values) * gamma``, each row of (tokens, columns) by itself.

    Args:
        gamma: (tokens, columns) in SBUF, in the order of the values.
        into: as many elements, perhaps in several dimensions.
    """
    shape = into.shape
    nisa.scalar_tensor_tensor(
        dst=into,
        data=values.reshape(shape),
        op0=nl.multiply,
        operand0=inverse_rms(values, eps),
        op1=nl.multiply,
        operand1=gamma.reshape(shape),
    )


def inverse_rms(values: Any, eps: Any) -> Any:
    """(tokens, 1) of (tokens, columns)."""
    total = sbuf((values.shape[0], 1), nl.float32)
    sum_squares(values, total)
    nisa.activation(dst=total, op=nl.rsqrt, data=total, scale=1.0 / values.shape[1], bias=eps[0 : values.shape[0], :])
    return total


def sum_squares(values: Any, into: Any) -> None:
    """The sum of squares (tokens, 1) of (tokens, columns), by Scalar."""
    nisa.activation(
        dst=sbuf(values.shape, nl.bfloat16),
        op=nl.square,
        data=values,
        reduce_op=nl.add,
        reduce_res=into,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
    )


# ----------------------------------------------------------------------------------------------------------- rotation


def angles(cos: Any, sin: Any, tokens: slice) -> tuple[Any, Any]:
    """Cosine and sine (tokens, R / 2) in float32, the first halves of rows (all tokens, R) in HBM."""
    half = cos.shape[1] // 2
    return load(cos[tokens, 0:half], nl.float32), load(sin[tokens, 0:half], nl.float32)


def rotate(values: Any, turn: tuple[Any, Any], into: Any, interleaved: bool) -> None:
    """Rotate pairs of (tokens, heads, R): neighbours if interleaved, else numbers that lie R / 2 apart.

    Args:
        turn: cosine and sine, (tokens, R / 2).
        into: (tokens, heads, R).
    """
    tokens, heads, width = values.shape
    half, shape = width // 2, (tokens, heads, width // 2)
    (a, b), (first, second) = _pairs(values, interleaved), _pairs(into, interleaved)
    cos, sin = (each.reshape((tokens, 1, half)).broadcast(1, heads) for each in turn)
    for target, factors, op in ((first, (cos, sin), nl.subtract), (second, (sin, cos), nl.add)):
        left, right = sbuf(shape, nl.float32), sbuf(shape, nl.float32)
        nisa.tensor_tensor(dst=left, data1=a, data2=factors[0], op=nl.multiply)
        nisa.tensor_tensor(dst=right, data1=b, data2=factors[1], op=nl.multiply)
        nisa.tensor_tensor(dst=target, data1=left, data2=right, op=op)


def _pairs(values: Any, interleaved: bool) -> tuple[Any, Any]:
    half = values.shape[2] // 2
    if interleaved:
        split = values.reshape_dim(2, (half, 2))
        return split[:, :, :, 0], split[:, :, :, 1]
    return values[:, :, 0:half], values[:, :, half:]


def check_ranks(ranks: tuple[int, int, int]) -> None:
    """Sizes of latents of queries, of keys, and of the rotated part.

    Raises:
        KernelLimit: they are out of bounds (``nkilib.shape``).
    """
    for name, rank in zip(("qk_lora_rank", "kv_lora_rank"), ranks, strict=False):
        limits.multiple(name, rank, TILE, "a tile of MX products contracts 512 numbers")
    limits.between("qk_rope_head_dim", ranks[2], 2, BLOCK, "it shares a bank of PSUM with other heads")
    limits.multiple("qk_rope_head_dim", ranks[2], 2, "pairs are rotated")
