"""The indexer of DeepSeek's sparse attention: scores of all keys for each query, and where the largest are (trn3).

Math, with rotate on the first R columns of a head, numbers that lie R / 2 apart::

    q_h = rotate(qr @ W_q)_h        k = rotate(layer_norm(Q(x) @ W_k) * gamma + beta)        w = x @ W_w.T / sqrt(H D)
    score[t, s] = sum over h of w[t, h] * relu(q_h[t] . k[s]) + mask[t, s]          topk: the largest of score[t]

Layouts: x (B * S, dim); weights of MX products packed, with a scale for 32 numbers, as `operands` says; the queries'
latents qr quantized already; the cache of keys (B, D, positions). Q is the quantization to MX of bfloat16; queries,
keys and the products of x with W_w are in bfloat16, sums in float32. The largest are found among scores in bfloat16.

Limits: D of 128, dim and the rank of qr multiples of 512, R even and at most D, 8 to 65,535 positions, NeuronCore-v4.

Engines: Tensor multiplies; Scalar cuts products off at 0 and Vector weighs and adds them, which bounds the kernel,
each head of each query and key once. GpSimd searches eight queries at a time. Cores have tiles of 128 tokens each.
Source: sparse-attention-indexer-mx-bf16score.rst of the published library; DeepSeek-V3.2-Exp, section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming
from nkilib.experimental.mla.deepseek.latents import rotate
from nkilib.experimental.mla.deepseek.packed import BLOCK
from nkilib.experimental.qkv.head_products import groups
from nkilib.experimental.quantize_mxfp8.swizzle import PACK, TILE
from nkilib.experimental.sparse_attention_indexer.found import EIGHT, Found
from nkilib.experimental.sparse_attention_indexer.keys import Keys, angles_of, keep, quantized, stored
from nkilib.experimental.sparse_attention_indexer.operands import (
    FineWeights,
    Stored,
    check_fine,
    check_stored,
    turned,
)
from nkilib.streaming import load, psum, sbuf, share, size, spans

_HEAD = 128
_TILES = 4
"""Of 128 tokens, for which weights of queries and keys are loaded once."""
_NAME = "sparse_attention_indexer_mx_bf16score"
_PHASES = ("all", "kproj", "score")


@nki.jit
def sparse_attention_indexer_mx_bf16score(
    x: nl.NkiTensor,
    wq_b: nl.NkiTensor,
    wk: nl.NkiTensor,
    k_norm_gamma: nl.NkiTensor,
    k_norm_beta: nl.NkiTensor,
    weights_proj: nl.NkiTensor,
    cos: nl.NkiTensor,
    sin: nl.NkiTensor,
    k_cache: nl.NkiTensor,
    mask: nl.NkiTensor,
    n_heads: int,
    head_dim: int,
    rope_head_dim: int,
    index_topk: int,
    start_pos: int,
    use_hadamard: bool = False,
    batch_size: int = 1,
    wq_b_scale: nl.NkiTensor | None = None,
    wk_scale: nl.NkiTensor | None = None,
    k_scale_cache: nl.NkiTensor | None = None,
    x_non_mx: nl.NkiTensor | None = None,
    x_mx_data: nl.NkiTensor | None = None,
    x_mx_scale: nl.NkiTensor | None = None,
    qr_qtz_hbm: nl.NkiTensor | None = None,
    qr_scale_hbm: nl.NkiTensor | None = None,
    phase: str = "all",
    k_seq_out_hbm: nl.NkiTensor | None = None,
    end_pos_arg: int | None = None,
    emit_flat_topk: bool = False,
    emit_tiled_topk: bool = False,
) -> tuple[nl.NkiTensor, nl.NkiTensor | None]:
    """Scores, and the positions of the largest.

    Args:
        x: (B * S, dim), bfloat16 or float32.
        wq_b, wq_b_scale: (rank / 4, n_heads * head_dim) packed, and (rank / 32, ...) uint8.
        wk, wk_scale: (dim / 4, head_dim) packed, and (dim / 32, head_dim) uint8.
        k_norm_gamma, k_norm_beta: (head_dim,).
        weights_proj: (n_heads, dim), bfloat16.
        cos, sin: (S, rope_head_dim / 2).
        k_cache: (B, head_dim, positions), bfloat16; phase "all" puts keys at ``start_pos`` and behind it.
        mask: (B * S, end_pos), added to scores, bfloat16 or float32.
        n_heads, head_dim, rope_head_dim: H, D and R.
        index_topk: positions of each query.
        start_pos: position of the first token.
        use_hadamard, k_scale_cache: have no effect, as published.
        batch_size: B.
        x_non_mx: x in bfloat16, for W_w.
        x_mx_data, x_mx_scale: x quantized, for W_k: (tiles, 128, dim / 4), packed and uint8.
        qr_qtz_hbm, qr_scale_hbm: qr quantized: (tiles, 128, rank / 512, 128), packed and uint8.
        phase: "all"; "kproj" makes only keys; "score" takes those of the cache as they are.
        k_seq_out_hbm: (B * S, head_dim), bfloat16, where "kproj" puts keys.
        end_pos_arg: keys of "score"; by default, and in "all", ``start_pos + S``.
        emit_flat_topk: positions as (B * S, index_topk) int32, each query's in any order.
        emit_tiled_topk: positions as (tiles, 16, 128, index_topk / 16) int32: query ``8 t + g`` of a tile has rows
            ``16 g`` to ``16 g + 15`` of its part t.

    Returns:
        Scores (B * S, end_pos) in float32, and positions. Without the last two options these are (tiles, 16, 128,
        index_topk) uint32: row ``16 g + j % 16``, column ``j // 16`` of part t has position j of query ``8 t + g``,
        the smallest score first; zeros are elsewhere. After "kproj": k_seq_out_hbm, and None.

    Raises:
        KernelLimit: arguments that do not fit, outside of the limits, or an older target.
    """
    _check_options(phase, emit_flat_topk, emit_tiled_topk, use_hadamard or None, k_scale_cache)
    k_seq_out_hbm = limits.belonging(_NAME, "k_seq_out_hbm", k_seq_out_hbm, phase == "kproj", "phase")
    sizes = _check_shapes(x, k_norm_gamma, k_norm_beta, cos, sin, batch_size, head_dim, rope_head_dim)
    pieces = _pieces(batch_size, sizes["S"])
    end = _end(phase, start_pos + sizes["S"], end_pos_arg, x_mx_data, x_mx_scale)
    if phase != "score":
        _check_keys(wk, wk_scale, x_mx_data, x_mx_scale, len(pieces), sizes["dim"])
    if phase != "kproj":
        _check_scores(n_heads, index_topk, start_pos, end, x, weights_proj, mask, k_cache, x_non_mx, batch_size)
        rank = check_stored(("qr_qtz_hbm", "qr_scale_hbm"), qr_qtz_hbm, qr_scale_hbm, len(pieces), None)
        check_fine("wq_b", wq_b, wq_b_scale, rank, n_heads * head_dim)
    if phase != "score":
        maker = Keys.of(FineWeights(wk, wk_scale), k_norm_gamma, k_norm_beta, cos, sin)
        for piece in share(pieces):
            states = quantized(x[piece.rows]) if x_mx_data is None else stored(x_mx_data, x_mx_scale, piece.number)
            keys = maker.made(states, piece.tokens)
            if phase == "kproj":
                streaming.store(k_seq_out_hbm[piece.rows], keys)
            else:
                keep(keys, k_cache[piece.batch], start_pos + piece.tokens.start)
        _meet(k_seq_out_hbm if phase == "kproj" else k_cache)
    if phase == "kproj":
        return k_seq_out_hbm, None
    found = Found.new(len(pieces), x.shape[0], end, index_topk, emit_flat_topk, emit_tiled_topk)
    source, up = x if x_non_mx is None else x_non_mx, FineWeights(wq_b, wq_b_scale)
    call = _Scores(n_heads, cos, sin, up, _turned_weights(weights_proj), source, mask, k_cache)
    for block in _blocks(share(pieces)):
        queries = call.queries(Stored(qr_qtz_hbm, qr_scale_hbm, [piece.number for piece in block]), block)
        for number, piece in enumerate(block):  # GpSimd searches one while the others score the next
            call.store(queries[:, :, number * BLOCK : number * BLOCK + size(piece.rows)], piece, found.scores)
            found.search(piece.rows, piece.number)
    _meet(found.scores, found.places)
    return found.scores, found.places


# ------------------------------------------------------------------------------------------------------------- pieces


@dataclass(frozen=True)
class _Piece(nl.NKIObject):
    """At most 128 tokens of a sequence.

    Attributes:
        number: of the piece among all.
        batch: which sequence.
        tokens: of the sequence.
        rows: the same ones, of all sequences.
    """

    number: int
    batch: int
    tokens: slice
    rows: slice


def _pieces(batch: int, sequence: int) -> list[_Piece]:
    """All tokens."""
    places = [(each, part) for each in range(batch) for part in spans(sequence, BLOCK)]
    return [
        _Piece(number, each, part, slice(each * sequence + part.start, each * sequence + part.stop))
        for number, (each, part) in enumerate(places)
    ]


def _blocks(pieces: list[_Piece]) -> list[list[_Piece]]:
    """Pieces that follow each other in one sequence, a few together."""
    found: list[list[_Piece]] = []
    for piece in pieces:
        if found and found[-1][0].batch == piece.batch and len(found[-1]) < _TILES:
            found[-1].append(piece)
        else:
            found.append([piece])
    return found


def _meet(*tensors: Any) -> None:
    """All cores wait until tensors are written."""
    if nl.num_programs(0) > 1:
        for each in tensors:
            nisa.core_barrier(data=each, cores=(0, 1))


# ------------------------------------------------------------------------------------------------------------- scores


@dataclass(frozen=True)
class _Scores:
    """What makes scores.

    Attributes:
        heads: H.
        cos, sin: (S, R / 2) in HBM.
        up: W_q.
        factors: W_w, (128, dim / 512, 4, H) in SBUF.
        source: x, in HBM.
        mask: (B * S, end) in HBM.
        cache: keys (B, D, positions) in HBM.
    """

    heads: int
    cos: Any
    sin: Any
    up: FineWeights
    factors: Any
    source: Any
    mask: Any
    cache: Any

    def store(self, queries: Any, piece: _Piece, target: Any) -> None:
        """Scores of queries (D, H, tokens) for all keys of their sequence, into (B * S, end) in HBM."""
        weights = self._weights(piece.rows)
        for positions in spans(self.mask.shape[1], nl.tile_size.psum_bank_fmax):
            keys, sums = load(self.cache[piece.batch, :, positions]), load(self.mask[piece.rows, positions], nl.float32)
            for head in range(self.heads):
                _add(sums, queries[:, head, :], keys, weights[:, head : head + 1])
            streaming.store(target[piece.rows, positions], sums)

    def queries(self, latents: Stored, pieces: list[_Piece]) -> Any:
        """Rotated queries (D, H, tokens) in bfloat16, of pieces of one sequence."""
        tokens, rotated = sum(size(piece.rows) for piece in pieces), 2 * self.cos.shape[1]
        made = sbuf((_HEAD, self.heads, tokens), nl.bfloat16)
        turn = [angles_of(self.cos, self.sin, piece.tokens) for piece in pieces]
        for group in groups(latents, tokens, self.up, self.heads, _HEAD):
            count, heads = size(group.tokens), size(group.heads)
            rows, rest = sbuf((count, heads, _HEAD), nl.bfloat16), sbuf((count, heads, rotated), nl.float32)
            for some, sums in group.sums:
                streaming.leave(rest[:, some, :], sums[:, :, 0:rotated], 0)
                if rotated < _HEAD:
                    streaming.leave(rows[:, some, rotated:], sums[:, :, rotated:], 1)
            rotate(rest, turn[group.tokens.start // BLOCK], rows[:, :, 0:rotated], interleaved=False)
            moved = psum((_HEAD, heads, count), nl.bfloat16)
            for head in range(heads):
                nisa.nc_transpose(dst=moved[:, head, :], data=rows[:, head, :], engine=nisa.engine.tensor)
            nisa.tensor_copy(dst=made[:, group.heads, group.tokens], src=moved)
        return made

    def _weights(self, rows: slice) -> Any:
        """What each head counts for each token, (tokens, H)."""
        count, made = size(rows), psum((size(rows), self.heads))
        for tile, values in enumerate(turned(self.source[rows])):
            for place in range(PACK):
                nisa.nc_matmul(
                    dst=made,
                    stationary=values[:, 0:count, place],
                    moving=self.factors[:, tile, place, :],
                    accumulate=tile + place > 0,
                )
        scaled = sbuf((count, self.heads), nl.float32)
        nisa.activation(dst=scaled, op=nl.copy, data=made, scale=(self.heads * _HEAD) ** -0.5)
        return scaled


def _add(sums: Any, queries: Any, keys: Any, weight: Any) -> None:
    """Add to (tokens, keys) what one head gives."""
    found, kept = psum(sums.shape), sbuf(sums.shape, nl.bfloat16)
    nisa.nc_matmul(dst=found, stationary=queries, moving=keys)
    nisa.activation(dst=kept, op=nl.relu, data=found)
    nisa.scalar_tensor_tensor(dst=sums, data=kept, op0=nl.multiply, operand0=weight, op1=nl.add, operand1=sums)


def _turned_weights(weights: Any) -> Any:
    """(128, dim / 512, 4, H) of (H, dim) in HBM: 512 of dim in a tile, four neighbours each."""
    heads, width = weights.shape
    made = sbuf((BLOCK, width // TILE, PACK, heads), nl.bfloat16)
    for some in spans(heads, BLOCK):
        for tile, values in enumerate(turned(weights[some])):
            nisa.tensor_copy(dst=made[:, tile, :, some].permute((0, 2, 1)), src=values[:, 0 : size(some), :])
    return made


# ------------------------------------------------------------------------------------------------------------- limits


def _check_options(phase: str, flat: bool, tiled: bool, hadamard: Any, scales: Any) -> None:
    limits.generation(_NAME, 4, "it has instructions for MX numbers")
    limits.one_of("phase", phase, _PHASES)
    limits.need(
        not (flat and tiled),
        "emit_tiled_topk",
        "given with emit_flat_topk",
        "positions come in one form",
        "pass one of both",
    )
    limits.without_effect(_NAME, "keys are kept in bfloat16", use_hadamard=hadamard, k_scale_cache=scales)


def _end(phase: str, tokens: int, asked: int | None, data: Any, scales: Any) -> int:
    """How many keys there are."""
    if phase == "score":
        limits.without_effect(_NAME, "keys are in the cache", x_mx_data=data, x_mx_scale=scales)
        return tokens if asked is None else asked
    limits.without_effect(_NAME, "keys end with the tokens", end_pos_arg=asked)
    return tokens


def _check_shapes(
    x: Any, gamma: Any, beta: Any, cos: Any, sin: Any, batch: int, head: int, rotated: int
) -> dict[str, int]:
    """Sizes S and dim."""
    sizes = limits.shape("x", x, ("B * S", "dim"))
    limits.dtype("x", x, (nl.bfloat16, nl.float32))
    limits.multiple("dim", sizes["dim"], TILE, "a tile of MX products contracts 512 numbers")
    limits.between("batch_size", batch, 1, max(1, sizes["B * S"]))
    limits.multiple("B * S", sizes["B * S"], batch, "batches have as many tokens each")
    limits.between("head_dim", head, _HEAD, _HEAD, "partitions hold a head")
    limits.between("rope_head_dim", rotated, 2, head, "it is a part of a head")
    limits.multiple("rope_head_dim", rotated, 2, "pairs are rotated")
    for name, each in (("k_norm_gamma", gamma), ("k_norm_beta", beta)):
        limits.shape(name, each, (head,))
        limits.dtype(name, each, (nl.bfloat16, nl.float32))
    sequence = sizes["B * S"] // batch
    for name, each in (("cos", cos), ("sin", sin)):
        limits.shape(name, each, (sequence, rotated // 2))
        limits.dtype(name, each, (nl.bfloat16, nl.float32))
    return {"S": sequence, "dim": sizes["dim"]}


def _check_keys(weights: Any, scales: Any, data: Any, data_scales: Any, pieces: int, width: int) -> None:
    check_fine("wk", weights, scales, width, _HEAD)
    if data is not None or data_scales is not None:
        check_stored(("x_mx_data", "x_mx_scale"), data, data_scales, pieces, width)


def _check_scores(
    heads: int,
    wanted: int,
    start: int,
    end: int,
    x: Any,
    weights: Any,
    mask: Any,
    cache: Any,
    narrow: Any,
    batch: int,
) -> None:
    rows, width = x.shape
    limits.between("start_pos", start, 0, end)
    limits.between("end_pos", end, EIGHT, 65_535, "GpSimd searches so many elements")
    limits.between("index_topk", wanted, 1, min(end, 32_767), "as many of end_pos positions are taken")
    limits.between("n_heads", heads, 1, nl.tile_size.psum_bank_fmax, "a bank of PSUM holds their weights")
    limits.shape("weights_proj", weights, (heads, width))
    limits.dtype("weights_proj", weights, (nl.bfloat16,))
    limits.shape("mask", mask, (rows, end))
    limits.dtype("mask", mask, (nl.bfloat16, nl.float32))
    positions = limits.shape("k_cache", cache, (batch, _HEAD, "positions"))["positions"]
    limits.between("end_pos", end, 1, positions, "the cache has so many positions")
    limits.dtype("k_cache", cache, (nl.bfloat16,))
    if narrow is not None:
        limits.shape("x_non_mx", narrow, (rows, width))
        limits.dtype("x_non_mx", narrow, (nl.bfloat16,))
