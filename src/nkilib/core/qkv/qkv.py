"""The projection of hidden states to queries, keys and values, with what stands before and after it in a transformer.

Math, for hidden states x (B, S, H), residuals m and a, and weights W (H, I) of queries, then keys, then values::

    x = x + m + a                                     fused_residual_add
    x = x / sqrt(mean(x^2) + eps) * gamma             RMS_NORM; LAYER_NORM takes the mean off and adds a bias
    y = x @ W + bias                                  sums in float32
    y = y / sqrt(mean(y^2) + eps) * gamma             of each head of queries and keys, before or after the rotation
    y = y * cos + (-y2, y1) * sin                     of each head (y1, y2) of queries and keys, fused_rope

Layouts: x is (B, S, H), or (B, H, S) with transposed_in, or (128, B * S, H / 128) in SBUF. The result is BSD (B, S, I),
NBSd (N, B, S, d) or NBdS (N, B, d, S), or queries (B, S, q) beside caches of keys and values, which are written.
bfloat16, float16 or float32, which stays float32. Weights may be float8, with a scale for each column (ROW), or with a
scale each for queries, keys and values, where hidden states are rounded to float8 too (STATIC).

Limits: none of S, H and I beyond what SBUF holds; d <= 128 in layouts by head.

Engines: Tensor transposes tokens and keeps 128 of them while weights stream through it; Scalar normalises, Vector adds,
rotates and empties PSUM with Scalar. Tensor bounds it from 256 tokens on; with fewer the loading of weights does. Up to
16 tokens are spread over the partitions as they are loaded, and nothing is transposed.
Source: qkv.rst of the published library; Su et al., "RoFormer", 2021; Zhang and Sennrich, "Root Mean Square Layer
Normalization", 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import nki
import nki.language as nl
from nkilib.core.mlp.tokens import Norm
from nkilib.core.qkv.checks import check
from nkilib.core.qkv.heads import KINDS, Heads, Rotation, head_norms
from nkilib.core.qkv.hidden import FEW, FewHidden, Hidden, Work, over_scale, spread
from nkilib.core.qkv.outputs import Cache, Divided, Inside, SquaredSums, Whole, limits_of
from nkilib.core.utils.common_types import (
    DtypeMode,
    NormType,
    QKNormConfig,
    QKVOutputLayout,
    QKVWeightLayout,
    QuantizationType,
    StridedInputConfig,
)
from nkilib.epilogue import Epilogue
from nkilib.fp8 import Static
from nkilib.products import own, products, row_blocks
from nkilib.stacks import batches
from nkilib.streaming import ceil_div, result, sbuf, size

_DECODING = 96
"""Tokens of a batch up to which a call is a decoding step, and returns the sum with the residuals too."""

_EVEN = 9
"""Tiles of tokens from which on two cores share them, where their number is odd."""


_NARROW, _EVEN_NARROW = 1024, 4
"""Columns up to which work on tokens is much beside their products, and the tiles that are enough then."""


@nki.jit
def qkv(
    input: nl.NkiTensor,
    fused_qkv_weights: nl.NkiTensor,
    output_layout: QKVOutputLayout = QKVOutputLayout.BSD,
    bias: nl.NkiTensor | None = None,
    quantization_type: QuantizationType = QuantizationType.NONE,
    qkv_w_scale: nl.NkiTensor | None = None,
    qkv_in_scale: nl.NkiTensor | None = None,
    fused_residual_add: bool | None = False,
    mlp_prev: nl.NkiTensor | None = None,
    attention_prev: nl.NkiTensor | None = None,
    fused_norm_type: NormType = NormType.NO_NORM,
    gamma_norm_weights: nl.NkiTensor | None = None,
    layer_norm_bias: nl.NkiTensor | None = None,
    norm_eps: float = 1e-06,
    hidden_actual: int | None = None,
    fused_rope: bool | None = False,
    cos_cache: nl.NkiTensor | None = None,
    sin_cache: nl.NkiTensor | None = None,
    k_cos_cache: nl.NkiTensor | None = None,
    k_sin_cache: nl.NkiTensor | None = None,
    d_head: int | None = None,
    num_q_heads: int | None = None,
    num_kv_heads: int | None = None,
    k_cache: nl.NkiTensor | None = None,
    v_cache: nl.NkiTensor | None = None,
    k_scale: nl.NkiTensor | None = None,
    v_scale: nl.NkiTensor | None = None,
    fp8_max: float | None = None,
    fp8_min: float | None = None,
    kv_dtype: Any = None,
    use_block_kv: bool = False,
    transpose_k_cache: bool = False,
    fp8_packed: bool = False,
    block_size: int | None = None,
    slot_mapping: nl.NkiTensor | None = None,
    store_output_in_sbuf: bool = False,
    sbm: Any = None,
    use_auto_allocation: bool = False,
    load_input_with_DMA_transpose: bool = True,
    is_h_dim_4h_transposed: bool = False,
    weight_layout: QKVWeightLayout = QKVWeightLayout.CONTIGUOUS,
    transposed_in: bool = False,
    qk_norm_pre_rope: QKNormConfig | None = None,
    qk_norm_post_rope: QKNormConfig | None = None,
    qk_norm_pre_rope_q_gamma: nl.NkiTensor | None = None,
    qk_norm_pre_rope_k_gamma: nl.NkiTensor | None = None,
    qk_norm_post_rope_q_gamma: nl.NkiTensor | None = None,
    qk_norm_post_rope_k_gamma: nl.NkiTensor | None = None,
    qk_norm_pre_rope_q_beta: nl.NkiTensor | None = None,
    qk_norm_pre_rope_k_beta: nl.NkiTensor | None = None,
    qk_norm_post_rope_q_beta: nl.NkiTensor | None = None,
    qk_norm_post_rope_k_beta: nl.NkiTensor | None = None,
    strided_input_config: StridedInputConfig | None = None,
    output_hbm: nl.NkiTensor | None = None,
    dtype_mode: DtypeMode = DtypeMode.NON_OCP,
    q_squared_sum_out: nl.NkiTensor | None = None,
    k_squared_sum_out: nl.NkiTensor | None = None,
    v_squared_sum_out: nl.NkiTensor | None = None,
) -> Any:
    """Queries, keys and values of hidden states.

    Args:
        input: (B, S, H) in HBM.
        fused_qkv_weights: (H, I), queries, then keys, then values.
        output_layout: of the result.
        bias: (1, I).
        quantization_type: NONE, STATIC or ROW.
        qkv_w_scale: what weights were divided by: (128, 3) with STATIC, (128, I) with ROW; rows are equal, or one.
        qkv_in_scale: what hidden states are divided by with STATIC: (128, 1), rows are equal, or one.
        fused_residual_add: whether `mlp_prev` and `attention_prev`, like `input`, are added to it.
        fused_norm_type: of the hidden states.
        gamma_norm_weights, layer_norm_bias: (1, H).
        norm_eps: added to the mean square, or to the variance.
        hidden_actual: the features that count, where the others are padding with zeros; by default H.
        fused_rope: whether queries and keys are rotated.
        cos_cache, sin_cache: (B, S, d_head).
        k_cos_cache, k_sin_cache: of keys, where they differ.
        d_head, num_q_heads, num_kv_heads: where heads count.
        k_cache, v_cache: (B, most tokens, num_kv_heads * d_head), whose first S tokens are written; or with
            use_block_kv (blocks, block_size, num_kv_heads * d_head).
        k_scale, v_scale: (128, 1), rows are equal, or one: what keys and values are divided by.
        fp8_max, fp8_min: that they are clipped to; by default the largest number of the caches' dtype.
        kv_dtype: of the caches, if given.
        slot_mapping: (B, S), uint32 or int32: the place of each token in all blocks.
        store_output_in_sbuf: whether the result, (B * S, I), stays in SBUF.
        sbm, use_auto_allocation: of no effect, as the compiler allocates memory; it is told.
        load_input_with_DMA_transpose: whether DMA transposes hidden states that nothing else happens to before the
            product; the Tensor engine transposes all others.
        transposed_in: whether `input` is (B, H, S).
        qk_norm_pre_rope, qk_norm_post_rope: norms of heads, RMS_NORM.
        qk_norm_pre_rope_q_gamma and the other three: their weights, (1, d_head).
        q_squared_sum_out, k_squared_sum_out, v_squared_sum_out: (B, S, 1), written: the sum of squares of the projected
            queries, keys or values of each token, before norms of heads and rotation.
        output_hbm: of the shape of the result, written instead of a new tensor.
        dtype_mode: which float8 STATIC computes with.

    Returns:
        The result; with caches queries and both caches; in a decoding step with residuals the result and the sum
        (B, S, H).

    Raises:
        KernelLimit: arguments that do not fit together, or an option that is not built.
    """
    given = SimpleNamespace(**locals())
    sizes = check(given)
    heads = heads_of(given, sizes)
    target, dtype = outputs_of(given, sizes, heads)
    static = Static(given.qkv_in_scale, given.qkv_w_scale, dtype_mode) if given.qkv_in_scale is not None else None
    share_rows, added = shares_rows(given, sizes), added_of(given, sizes)
    unit = d_head or 1
    mine = slice(0, sizes["I"]) if share_rows else own(sizes["I"], unit)
    for work in works(given, sizes, static, added, share_rows):
        finish = Finish(given, work, static, heads, dtype)
        for rows, columns, sums in products(
            work.stack,
            fused_qkv_weights,
            columns=mine,
            biases=finish.begin,
            unit=unit,
            together=work.together,
            between=work.between,
        ):
            tokens = slice(work.tokens.start + rows.start, work.tokens.start + rows.stop)
            target.put(finish(sums, tokens, columns), tokens, columns)
    return target.made() if added is None else (target.made(), added)


def shares_rows(given: Any, sizes: dict[str, int]) -> bool:
    """Whether cores share the tokens, and not the columns."""
    if squares_of(given):
        return True
    tiles = ceil_div(sizes["B"] * sizes["S"], nl.tile_size.pmax)
    enough = _EVEN_NARROW if sizes["I"] <= _NARROW else _EVEN
    return tiles % nl.num_programs(0) == 0 or tiles >= enough


def squares_of(given: Any) -> dict[str, Any]:
    """Where sums of squares go, by kind of head."""
    named = {kind: getattr(given, f"{kind}_squared_sum_out") for kind in KINDS}
    return {kind: target for kind, target in named.items() if target is not None}


def added_of(given: Any, sizes: dict[str, int]) -> Any:
    """A new tensor for the sum with residuals, which a decoding step returns; None elsewhere."""
    few = sizes["S"] <= _DECODING and sizes["B"] * sizes["S"] <= nl.tile_size.pmax
    if not (given.fused_residual_add and few and not given.fused_rope):
        return None
    return result((sizes["B"], sizes["S"], sizes["H"]), given.input.dtype)


def heads_of(given: Any, sizes: dict[str, int]) -> Heads:
    """What is done to heads."""
    width, counts = sizes["I"], (given.d_head, given.num_q_heads, given.num_kv_heads)
    if None in counts:
        return Heads(given.d_head or 0, (width, width, width), {}, {}, {})
    head, queries, keys = counts
    rotations = {}
    if given.fused_rope:
        flat = lambda cache: cache.reshape((sizes["B"] * sizes["S"], head))  # noqa: E731
        rotations["q"] = rotations["k"] = Rotation(flat(given.cos_cache), flat(given.sin_cache))
        if given.k_cos_cache is not None:
            rotations["k"] = Rotation(flat(given.k_cos_cache), flat(given.k_sin_cache))
    return Heads(
        head,
        (queries * head, (queries + keys) * head, width),
        head_norms(given.qk_norm_pre_rope, given.qk_norm_pre_rope_q_gamma, given.qk_norm_pre_rope_k_gamma),
        head_norms(given.qk_norm_post_rope, given.qk_norm_post_rope_q_gamma, given.qk_norm_post_rope_k_gamma),
        rotations,
    )


def outputs_of(given: Any, sizes: dict[str, int], heads: Heads) -> tuple[Any, Any]:
    """Where results go, and the dtype of the tiles that go there."""
    batch, sequence, width = sizes["B"], sizes["S"], sizes["I"]
    dtype = nl.bfloat16 if given.quantization_type is QuantizationType.STATIC else given.input.dtype
    if given.store_output_in_sbuf:
        return Inside(sbuf((batch * sequence, width), dtype)), dtype
    if given.k_cache is None:
        return Whole.of(given.output_layout, (batch, sequence, width), heads.head, dtype, given.output_hbm), dtype
    slots = None if given.slot_mapping is None else given.slot_mapping.reshape((batch * sequence, 1))
    keys, values = (
        Cache(cache, slots, sequence, scale, *limits_of(cache.dtype, given.fp8_min, given.fp8_max))
        for cache, scale in ((given.k_cache, given.k_scale), (given.v_cache, given.v_scale))
    )
    queries = given.output_hbm
    if queries is None:
        queries = result((batch, sequence, heads.ends[0]), dtype)
    return Divided(queries, keys, values, heads.ends), dtype if given.k_scale is None else nl.float32


def works(given: Any, sizes: dict[str, int], static: Static | None, added: Any, shared: bool) -> Iterator[Work]:
    """All tokens of this core in groups, with the stacks that they become."""
    tokens, width, kind = sizes["B"] * sizes["S"], sizes["H"], given.fused_norm_type
    inside, actual = given.input.buffer == nl.sbuf, given.hidden_actual or width
    plain = kind is not NormType.LAYER_NORM and width % nl.tile_size.pmax == 0
    flat = [None if each is None else each.reshape((tokens, width)) for each in (*residuals(given), added)]
    if inside or (tokens <= FEW and plain and not given.transposed_in):
        tile = given.input if inside else spread(given.input.reshape((tokens, width)))
        dtype = given.input.dtype if static is None else nl.float32  # so that it is rounded once
        norm = (kind, given.gamma_norm_weights, given.norm_eps, actual, dtype)
        stack = FewHidden(tile, tuple(flat[:-1]), flat[-1], *norm).stack()
        yield Work(slice(0, tokens), static.quantized(stack) if static else stack)
    elif given.transposed_in:
        for block in row_blocks(tokens, width, given.input.dtype.itemsize, shared=shared):
            stacks = batches(given.input, block, 1024)
            yield Work(block, (static.quantized(stack) for stack in stacks) if static else stacks)
    else:
        norm_of_rows = Norm.of(kind, given.gamma_norm_weights, given.layer_norm_bias, given.norm_eps, actual)
        if static is not None:
            norm_of_rows = over_scale(norm_of_rows, static, width)
        rows, by_dma = given.input.reshape((tokens, width)), given.load_input_with_DMA_transpose
        hidden = Hidden(rows, tuple(flat[:-1]), flat[-1], norm_of_rows, static, by_dma)
        yield from hidden.works(ceil_div(sizes["I"], nl.tile_size.psum_bank_fmax), shared=shared)


def residuals(given: Any) -> tuple[Any, ...]:
    """What is added to the hidden states."""
    return (given.mlp_prev, given.attention_prev) if given.fused_residual_add else ()


class Finish:
    """From sums in PSUM to finished heads in SBUF."""

    def __init__(self, given: Any, work: Work, static: Static | None, heads: Heads, dtype: Any) -> None:
        depth, rows, factors = given.fused_qkv_weights.shape[0], size(work.tokens), None
        if given.quantization_type is QuantizationType.ROW:
            factors = given.qkv_w_scale[0:1]
        self._heads, self._dtype, self._shrinks = heads, dtype, work.shrinks
        self._summed = dtype if heads.idle else nl.float32
        scales = [1.0] * 3 if static is None else [static.scale[:, i : i + 1] for i in range(3)]
        # without scales of their own, queries, keys and values are one part
        self._parts = KINDS if static else ()
        late = bool(work.shrinks)
        self._epilogues = [Epilogue(self._summed, depth, rows, given.bias, scale, factors, late) for scale in scales]
        self.begin = self._epilogues[0].begin
        targets, ends = squares_of(given), dict(zip(KINDS, heads.ends, strict=True))
        self._squares = SquaredSums(targets, heads.parts, ends) if targets else None

    def __call__(self, sums: Any, tokens: slice, columns: slice) -> Any:
        """A new tile with the finished columns of some tokens."""
        tile = sbuf(sums.shape, self._summed)
        parts = self._heads.parts(columns) if self._parts else [("q", columns)]
        for kind, part in parts:
            here = slice(part.start - columns.start, part.stop - columns.start)
            shrink = self._shrinks.get(tokens.start)
            self._epilogues[KINDS.index(kind)](sums[:, here], part, tile[:, here], shrink)
        if self._squares is not None:
            self._squares.add(tile, tokens, columns)
        return tile if self._heads.idle else self._heads.finished(tile, tokens, columns, self._dtype)
