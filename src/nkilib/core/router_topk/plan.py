"""What a call of the router asks for, and where it gets tokens from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.language as nl
from nkilib import limits, streaming
from nkilib.core.router_topk import layouts
from nkilib.core.router_topk.layouts import (
    XHBMLayout_H_T__0,
    XHBMLayout_T_H__1,
    XSBLayout__128_Hdiv128_T__3,
    XSBLayout_tp102__0,
)
from nkilib.core.utils.common_types import RouterActFnType

SLOTS = 8
"""Values that Vector finds at once."""

_CHUNK = 256
"""Tokens that are loaded at once; of (H, T) in bfloat16 they are 512 bytes of a row."""


@dataclass(frozen=True)
class Router:
    """What a call asks for, and where results go; None where one is not wanted.

    Attributes:
        of_all: affinities are computed of all logits.
        normed: the affinities of the chosen experts are divided by their sum.
        indirect: DMA scatters affinities.
        shared: each core has its own tokens.
    """

    act_fn: RouterActFnType
    k: int
    experts: int
    of_all: bool
    normed: bool
    indirect: bool
    column_tiling: bool
    bias_by_tensor: bool
    shared: bool
    logits: Any
    index: Any
    affinities: Any
    eager: Any

    @property
    def scattered(self) -> bool:
        """Whether experts that were not chosen get 0."""
        return self.normed or not self.of_all

    @property
    def softmax(self) -> bool:
        """Whether affinities are exponentials, and not sigmoids."""
        return self.act_fn == RouterActFnType.SOFTMAX

    @property
    def by_dma(self) -> bool:
        """Whether DMA scatters affinities."""
        return self.scattered and self.indirect

    @property
    def sums_all(self) -> bool:
        """Whether affinities are divided by the sum of all experts'."""
        return self.softmax and not self.scattered

    @property
    def sums_chosen(self) -> bool:
        """Whether affinities are divided by the sum of the chosen experts'."""
        return self.scattered and (self.normed or self.softmax)

    @property
    def on_chip(self) -> bool:
        """Whether a result lies in SBUF, of which each core has its own."""
        return any(each is not None and in_sbuf(each) for each in (self.index, self.affinities, self.eager))

    @property
    def writes(self) -> bool:
        """Whether this core writes what it computes to HBM: if both compute it, the first one does."""
        return self.shared or nl.program_id(0) == 0

    @property
    def width(self) -> int:
        """Columns of logits: at least as many as Vector searches."""
        return max(self.experts, SLOTS)


@dataclass(frozen=True)
class Source:
    """Where hidden states come from: a tensor and its layout in HBM, or in SBUF.

    Attributes:
        tensor: the hidden states.
        hbm_layout: of those in HBM; None if they lie in SBUF.
        sb_layout: of those in SBUF.
    """

    tensor: Any
    hbm_layout: int | None
    sb_layout: int

    @property
    def weights_like(self) -> int:
        """Layout of the weights that meet them."""
        if self.hbm_layout is None:
            return self.sb_layout
        return XSBLayout_tp102__0 if self.hbm_layout == XHBMLayout_H_T__0 else XSBLayout__128_Hdiv128_T__3

    @property
    def tokens_first(self) -> bool:
        """Whether what `load` returns is (128, tokens, n), and not (128, n, tokens)."""
        return self.hbm_layout is None and self.sb_layout != XSBLayout__128_Hdiv128_T__3

    def load(self, tokens: slice) -> Any:
        """Some tokens in SBUF."""
        if self.hbm_layout == XHBMLayout_H_T__0:
            return layouts.columns(self.tensor, tokens)
        if self.hbm_layout == XHBMLayout_T_H__1:
            return layouts.transposed(self.tensor[tokens, :])
        return self.tensor[:, tokens, :] if self.tokens_first else self.tensor[:, :, tokens]

    def tiles(self, loaded: Any, rows: slice) -> list[Any]:
        """For each place the numbers of every partition, (128, rows), of some tokens of what was loaded."""
        if self.tokens_first:
            return [loaded[:, rows, place] for place in range(loaded.shape[2])]
        return [loaded[:, place, rows] for place in range(loaded.shape[1])]


def hidden_states(x: Any, hidden: int, hbm_layout: int, sb_layout: int) -> tuple[int, Source]:
    """Number of tokens, and how to get at them."""
    if in_sbuf(x):
        limits.one_of("x_sb_layout", sb_layout, (0, 1, 2, 3))
        last = sb_layout == XSBLayout__128_Hdiv128_T__3
        named = limits.shape("x", x, (128, hidden // 128, "T") if last else (128, "T", hidden // 128))
        return named["T"], Source(x, None, sb_layout)
    limits.one_of("x_hbm_layout", hbm_layout, (XHBMLayout_H_T__0, XHBMLayout_T_H__1))
    named = limits.shape("x", x, (hidden, "T") if hbm_layout == XHBMLayout_H_T__0 else ("T", hidden))
    return named["T"], Source(x, hbm_layout, sb_layout)


def check(router: Router, x: Any, w: Any, w_bias: Any, tokens: int) -> None:
    """Refuse what the kernel does not compute."""
    limits.one_of("act_fn", router.act_fn, (RouterActFnType.SOFTMAX, RouterActFnType.SIGMOID))
    limits.dtype("x", x, (nl.bfloat16, nl.float16, nl.float32))
    limits.same_dtype(x=x, w=w)
    limits.multiple("H", w.shape[0], 128, "each of 128 partitions holds as many of its numbers")
    limits.between("k", router.k, 1, SLOTS, "Vector finds eight values at once")
    limits.between("E", router.experts, router.k, 16_384, "k of them are chosen, and Vector searches 16,384")
    limits.between("T", tokens, 1, 128 if router.on_chip else 1 << 24, "results in SBUF have a token on each partition")
    if w_bias is not None:
        limits.shape("w_bias", w_bias.reshape((1, w_bias.size)), (1, router.experts))
    sizes = {"T": tokens, "E": router.experts, "k": router.k}
    limits.shape("router_logits", router.logits, ("T", "E"), sizes) if router.logits is not None else None
    limits.shape("expert_affinities", router.affinities, ("T", "E"), sizes)
    limits.shape("expert_index", router.index, ("T", "k"), sizes) if router.index is not None else None
    limits.need(
        not (router.indirect and router.scattered and in_sbuf(router.affinities)),
        "use_indirect_dma_scatter",
        "True, and expert_affinities lies in SBUF",
        "DMA scatters to HBM",
        "pass use_indirect_dma_scatter=False",
    )
    limits.need(
        nl.num_programs(0) > 1 or not router.shared,
        "shard_on_tokens",
        "True on one core",
        "two cores share tokens",
        "launch router_topk[2], or pass shard_on_tokens=False",
    )


def in_sbuf(tensor: Any) -> bool:
    """Whether a tensor lies in SBUF."""
    return bool(tensor.buffer == nl.sbuf)


def eager_result(wanted: bool, index: Any) -> Any:
    """A new tensor for the affinities of the chosen experts, where their indices lie."""
    if not wanted:
        return None
    place = nl.sbuf if in_sbuf(index) else nl.shared_hbm
    return nl.ndarray(tuple(index.shape), dtype=nl.float32, buffer=place)


def chunks(router: Router, tokens: int, source: Source) -> list[slice]:
    """Tokens of this core, in pieces that are loaded together."""
    first, last = 0, tokens
    if router.shared:
        core, cores = nl.program_id(0), nl.num_programs(0)
        first, last = tokens * core // cores, tokens * (core + 1) // cores
    return [slice(first + each.start, first + each.stop) for each in streaming.spans(last - first, _CHUNK)]
