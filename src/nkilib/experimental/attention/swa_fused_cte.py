"""A block of sliding-window attention for prefill, from hidden states to hidden states, over a cache of blocks::

    q, k, v = hidden_states @ qkv_weight + qkv_bias        of each head; q and k are rotated by cos and sin
    a = softmax(scale * q @ k.T, and a sink) @ v           of the last sliding_window keys up to the query's own
    out = a @ op_weight + op_bias

A token's keys before the call, `prior_tokens` of them, lie in a cache of blocks: position p in slot ``p % block_size``
of block ``block_tables[b, p // block_size]``. New tokens begin a block: where n blocks hold the prior ones, token s
goes to position ``n * block_size + s``.

Layouts: hidden_states (B, S, H), caches (blocks, num_kv_heads, block_size, d_head), which are written to. Dtypes:
bfloat16, float16 or float32, sums are float32; attention multiplies in bfloat16. Limits: d_head even and at most 128,
block_size a power of two, positions and slots below 2**24; caches of 8-bit floats are not built.

Plan: projection, attention and output projection are those of `qkv`, `attention_cte` and `output_projection_cte`, one
after the other by way of HBM, with their engine plans; the Tensor engine bounds them. DMA gathers the window of prior
keys by index, for the queries that see them, and scatters new ones. Two cores share tokens or columns, then heads, then
columns.

Source: nki/library/api/swa-fused-cte.rst; OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nkilib import limits
from nkilib.core.attention.attention_cte import attention_cte
from nkilib.core.output_projection.output_projection_cte.output_projection_cte import project
from nkilib.core.qkv.qkv import qkv
from nkilib.core.utils.common_types import QKVOutputLayout
from nkilib.streaming import ceil_div, filled, load, load_repeated, result, sbuf, share, size, spans, store

_FLOATS = (nl.bfloat16, nl.float16, nl.float32)
_FLOAT8 = (nl.float8_e4m3, nl.float8_e4m3fn, nl.float8_e5m2)

_P = int(nl.tile_size.pmax)

_EXACT = 1 << 24
"""Positions and slots below are exact in float32, in which they are computed."""

_NOWHERE = -(2.0**30)
"""Added to an index of what is left out: as uint32 it is beyond every tensor."""


@nki.jit
def swa_fused_cte(
    hidden_states: nl.NkiTensor,
    qkv_weight: nl.NkiTensor,
    op_weight: nl.NkiTensor,
    k_cache: nl.NkiTensor,
    v_cache: nl.NkiTensor,
    block_tables: nl.NkiTensor,
    cos_cache: nl.NkiTensor,
    sin_cache: nl.NkiTensor,
    sink: nl.NkiTensor,
    prior_tokens: nl.NkiTensor,
    qkv_bias: nl.NkiTensor,
    op_bias: nl.NkiTensor,
    scale: float = 1.0,
    sliding_window: int = 128,
    block_size: int = 128,
    num_q_heads: int = 16,
    num_kv_heads: int = 2,
    d_head: int = 64,
    k_scale: nl.NkiTensor | None = None,
    v_scale: nl.NkiTensor | None = None,
) -> tuple[nl.NkiTensor, nl.NkiTensor, nl.NkiTensor]:
    """Attention of new tokens and of the window before them, with its projections.

    Args:
        hidden_states: (B, S, H).
        qkv_weight: (H, I), columns of all heads of queries, then of keys, then of values.
        op_weight: (num_q_heads * d_head, H).
        k_cache, v_cache: (blocks, num_kv_heads, block_size, d_head), written to; keys are rotated.
        block_tables: (B, most blocks) int32, which block of the caches has the positions of a sequence.
        cos_cache, sin_cache: (B, S, d_head) of the new tokens, both halves alike.
        sink: (B, num_q_heads) float32, a score of each head that counts in the sums without a value of its own.
        prior_tokens: (1, 1) int32, tokens of every sequence that are in the caches.
        qkv_bias: (1, I).
        op_bias: (1, H).
        scale: of the scores, positive.
        sliding_window: keys that a query sees at most, its own among them.
        block_size: slots of a block.
        num_q_heads, num_kv_heads, d_head: heads and their size; each head of keys serves as many heads of queries.
        k_scale, v_scale: of caches of 8-bit floats, which are documented and not built.

    Returns:
        (B, S, H), and both caches.

    Raises:
        KernelLimit: shapes or dtypes that do not fit together, and what is not built.
    """
    sizes = _checked(locals())
    heads = num_q_heads + 2 * num_kv_heads
    out = result(hidden_states.shape, hidden_states.dtype)
    for b in range(sizes["B"]):
        one = slice(b, b + 1)
        made = qkv(
            hidden_states[one],
            qkv_weight,
            QKVOutputLayout.NBSd,
            qkv_bias,
            fused_rope=True,
            cos_cache=cos_cache[one],
            sin_cache=sin_cache[one],
            d_head=d_head,
            num_q_heads=num_q_heads,
            num_kv_heads=num_kv_heads,
        ).reshape((heads, sizes["S"], d_head))
        _meet(made)
        keys, values = made[num_q_heads : num_q_heads + num_kv_heads], made[num_q_heads + num_kv_heads :]
        paged = _Paged(block_tables[b], num_kv_heads, block_size, prior_tokens)
        attention = _attended(made, sink[b], paged, (k_cache, v_cache), scale, sliding_window)
        paged.put((k_cache, v_cache), (keys, values))
        project(attention.reshape((1, *attention.shape)), op_weight, op_bias, None, into=out[one])
    return out, k_cache, v_cache


def _attended(heads: Any, sink: Any, paged: _Paged, caches: tuple[Any, Any], scale: float, window: int) -> Any:
    """The results of all queries, (queries' heads, d, S) in HBM.

    What most queries see is known beforehand, and `attention_cte` is fast then. Those that see prior keys, of which
    there may be fewer than the window has, are computed once more.
    """
    queries = sink.shape[0]
    keys = slice(queries, queries + paged.heads)
    values = slice(keys.stop, heads.shape[0])
    options: dict[str, Any] = {
        "sink": sink.reshape((queries, 1)),
        "sliding_window": window,
        "tp_k": True,
        "tp_out": True,
    }
    attention = attention_cte(heads[:queries], heads[keys], heads[values], scale, **options)
    few = min(window - 1, heads.shape[1])
    if few:
        options["k_prior"], options["v_prior"] = (paged.window(cache, window) for cache in caches)
        options["prior_used_len"] = paged.used(window)
        q, k, v = (heads[part, :few] for part in (slice(0, queries), keys, values))
        first = attention_cte(q, k, v, scale, **options)
        _meet(first)
        _meet(attention)
        for head in share(list(range(queries))):
            store(attention[head, :, :few], load(first[head]))
    _meet(attention)
    return attention


def _meet(tensor: Any) -> None:
    """Wait until both cores have written their parts."""
    if nl.num_programs(0) > 1:
        nisa.core_barrier(data=tensor, cores=(0, 1))


@dataclass
class _Paged:
    """Where tokens of one sequence are in caches of blocks.

    Attributes:
        table: (most blocks,) in HBM.
        heads: of a block.
        slots: of a block, a power of two.
        prior: (1, 1) in HBM, tokens that are there.
    """

    table: Any
    heads: int
    slots: int
    prior: Any

    def window(self, cache: Any, width: int) -> Any:
        """The last tokens that are there, (heads, width, d) in HBM of this core, and zeros behind them."""
        kept = nl.ndarray((self.heads, width, cache.shape[-1]), dtype=cache.dtype, buffer=nl.private_hbm)
        numbers = _numbers(width)
        count = self._prior(numbers.shape[0])
        first = _computed(count, nl.subtract, float(width), nl.maximum, 0.0)
        used = _computed(count, nl.minimum, float(width))
        left_out = _computed(numbers, nl.greater_equal, used, nl.multiply, _NOWHERE)
        lines = self._lines(_computed(numbers, nl.add, first), width, left_out)
        for column, part in enumerate(spans(width, _P)):
            for head in range(self.heads):
                tile = filled((size(part), cache.shape[-1]), cache.dtype, 0.0)
                source = _flat(cache).vector_select(0, lines[head][: size(part), column : column + 1])
                nisa.dma_copy(dst=tile, src=source, oob_mode=nisa.oob_mode.skip)
                store(kept[head, part], tile)
        return kept

    def put(self, caches: tuple[Any, ...], tokens: tuple[Any, ...]) -> None:
        """New keys and values, (heads, S, d) of HBM each, into blocks behind those of prior tokens; cores share S."""
        count = tokens[0].shape[1]
        numbers = _numbers(count)
        begun = _computed(self._prior(numbers.shape[0]), nl.add, self.slots - 1.0)
        whole = _shifted(_shifted(begun, nl.right_shift, self._bits), nl.left_shift, self._bits)
        lines = self._lines(_computed(numbers, nl.add, _computed(whole, nl.add, 0.0)), count, None)
        for column, part in share(list(enumerate(spans(count, _P)))):
            for cache, made in zip(caches, tokens, strict=True):
                for head in range(self.heads):
                    target = _flat(cache).vector_select(0, lines[head][: size(part), column : column + 1])
                    nisa.dma_copy(dst=target, src=load(made[head, part]))

    def used(self, width: int) -> Any:
        """How many tokens are there, at most `width`: (1,) in HBM of this core."""
        kept = nl.ndarray((1,), dtype=nl.float32, buffer=nl.private_hbm)
        store(kept, _computed(self._prior(1), nl.minimum, float(width)))
        return kept

    @property
    def _bits(self) -> int:
        return self.slots.bit_length() - 1

    def _prior(self, partitions: int) -> Any:
        """How many tokens are there, on each partition, in float32."""
        return _computed(load_repeated(self.prior, partitions), nl.add, 0.0)

    def _lines(self, position: Any, count: int, left_out: Any) -> list[Any]:
        """The line (blocks * heads * slots) of each position in float32, like `_numbers`, for every head.

        Args:
            left_out: for each of them 0, or what makes an index one that is skipped; None for no such position.
        """
        block = _moved(_shifted(position, nl.right_shift, self._bits), left_out)
        slot = _shifted(position, nl.bitwise_and, self.slots - 1)
        found, table = filled(block.shape, nl.int32, 0), self.table.reshape((self.table.shape[0], 1))
        skip: dict[str, Any] = {} if left_out is None else {"oob_mode": nisa.oob_mode.skip}
        for column, part in enumerate(spans(count, _P)):
            here = slice(0, size(part)), slice(column, column + 1)
            nisa.dma_copy(dst=found[here], src=table.vector_select(0, block[here]), **skip)
        line = sbuf(block.shape, nl.float32)
        nisa.scalar_tensor_tensor(
            dst=line, data=found, op0=nl.multiply, operand0=float(self.heads * self.slots), op1=nl.add, operand1=slot
        )
        of_heads = (_computed(line, nl.add, float(head * self.slots)) for head in range(self.heads))
        return [_moved(_integers(each), left_out) for each in of_heads]


def _flat(cache: Any) -> Any:
    return cache.reshape((cache.size // cache.shape[-1], cache.shape[-1]))


def _numbers(count: int) -> Any:
    """Numbers below a count in float32, 128 in each column of a tile, and some more in the last one."""
    tile = sbuf((min(_P, count), ceil_div(count, _P)), nl.float32)
    nisa.iota(dst=tile, pattern=[[_P, tile.shape[1]]], channel_multiplier=1)
    return tile


def _computed(tile: Any, op0: Any, operand0: Any, op1: Any = None, operand1: Any = None) -> Any:
    """``(tile op0 operand0) op1 operand1`` in a new tile of float32; operands are numbers or columns."""
    made = sbuf(tile.shape, nl.float32)
    more: dict[str, Any] = {} if op1 is None else {"op1": op1, "operand1": operand1}
    nisa.tensor_scalar(dst=made, data=tile, op0=op0, operand0=operand0, **more)
    return made


def _integers(tile: Any) -> Any:
    if tile.dtype == nl.int32:
        return tile
    made = sbuf(tile.shape, nl.int32)
    nisa.tensor_copy(dst=made, src=tile)
    return made


def _shifted(tile: Any, op: Any, operand: int) -> Any:
    """A bitwise operation on whole numbers, in a new tile of int32."""
    made = sbuf(tile.shape, nl.int32)
    nisa.tensor_scalar(dst=made, data=_integers(tile), op0=op, operand0=operand)
    return made


def _moved(index: Any, by: Any) -> Any:
    """An index in int32, moved exactly; itself if there is nothing to move it by."""
    if by is None:
        return index
    made = sbuf(index.shape, nl.int32)
    nisa.tensor_tensor(dst=made, data1=index, data2=_integers(by), op=nl.add)
    return made


def _checked(a: dict[str, Any]) -> dict[str, int]:
    """Sizes by name, after all checks of the arguments, by name."""
    k_cache = a["k_cache"]
    limits.not_built(
        {
            "k_cache": k_cache.dtype if k_cache.dtype in _FLOAT8 else None,
            "k_scale": a["k_scale"],
            "v_scale": a["v_scale"],
        },
        "swa_fused_cte",
    )
    limits.generation("swa_fused_cte", 3, "DMA gathers and scatters by index")
    d, queries, keys, slots = (a[name] for name in ("d_head", "num_q_heads", "num_kv_heads", "block_size"))
    limits.between("num_kv_heads", keys, 1, queries)
    limits.multiple("num_q_heads", queries, keys, "each head of keys serves as many heads of queries")
    limits.between("d_head", d, 2, int(nl.tile_size.pmax), "products contract over it on 128 partitions")
    limits.multiple("d_head", d, 2, "a rotation turns its halves")
    power = slots >= 1 and slots & (slots - 1) == 0
    limits.need(power, "block_size", slots, "block_size is a power of two", "use caches with such blocks")
    limits.between("sliding_window", a["sliding_window"], 1, _EXACT, "positions are float32")
    limits.need(a["scale"] > 0, "scale", a["scale"], "scale is positive", "negate the queries' weights")
    sizes = limits.shape("hidden_states", a["hidden_states"], ("B", "S", "H"))
    sizes["I"], sizes["N * d"] = (queries + 2 * keys) * d, queries * d
    for name, shape in {
        "qkv_weight": ("H", "I"),
        "op_weight": ("N * d", "H"),
        "k_cache": ("blocks", keys, slots, d),
        "v_cache": ("blocks", keys, slots, d),
        "block_tables": ("B", "most blocks"),
        "cos_cache": ("B", "S", d),
        "sin_cache": ("B", "S", d),
        "sink": ("B", queries),
        "prior_tokens": (1, 1),
        "qkv_bias": (1, "I"),
        "op_bias": (1, "H"),
    }.items():
        limits.shape(name, a[name], shape, sizes)
    limits.between("slots of all blocks", sizes["blocks"] * keys * slots, 1, _EXACT, "they are computed in float32")
    limits.dtype("hidden_states", a["hidden_states"], _FLOATS)
    limits.same_dtype(**{name: a[name] for name in ("hidden_states", "qkv_weight", "op_weight", "k_cache", "v_cache")})
    for name in ("block_tables", "prior_tokens"):
        limits.dtype(name, a[name], (nl.int32,))
    return sizes
