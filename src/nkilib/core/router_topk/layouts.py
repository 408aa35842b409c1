"""How hidden states lie in HBM and in SBUF, and how they and the router's weights are loaded.

With n = H / 128, partition p holds n of the H numbers of every token. Which ones, says the layout in SBUF:

=====  ====================  ==============================================
value  shape                 hidden number at partition p, place j
=====  ====================  ==============================================
0      (128, T, n)           p * n + j
1      (128, T, n)           (j // (n/2)) * H/2 + p * n/2 + j % (n/2)
2      (128, T, n)           j * 128 + p
3      (128, n, T)           j * 128 + p
=====  ====================  ==============================================

A product sums over partitions and places, so that any layout will do as long as the weights have it too. Layouts 0 and
1 make each partition read neighbours; 2 and 3 are what transposing while loading makes.
"""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
from nkilib import limits, streaming

XHBMLayout_H_T__0 = 0
XHBMLayout_T_H__1 = 1

XSBLayout_tp102__0 = 0
XSBLayout_tp2013__1 = 1
XSBLayout_tp201__2 = 2
XSBLayout__128_Hdiv128_T__3 = 3

_P = 128
_PART_BYTES = 4096
"""Bytes of a partition that are loaded by a transfer, at least."""


def router_topk_input_x_load(
    x: nl.NkiTensor, hbm_layout: int = XHBMLayout_H_T__0, sb_layout: int = XSBLayout_tp2013__1
) -> nl.NkiTensor:
    """Hidden states of HBM in SBUF.

    Args:
        x: (H, T) with `hbm_layout` 0, which goes with `sb_layout` 3; (T, H) with 1, which goes with 0, 1 and 2.
        hbm_layout, sb_layout: see above.

    Returns:
        (128, T, n), or (128, n, T) in layout 3, of the dtype of `x`.
    """
    limits.one_of("hbm_layout", hbm_layout, (XHBMLayout_H_T__0, XHBMLayout_T_H__1))
    fitting = (XSBLayout__128_Hdiv128_T__3,) if hbm_layout == XHBMLayout_H_T__0 else (0, 1, 2)
    limits.one_of("sb_layout", sb_layout, fitting)
    hidden, tokens = x.shape if hbm_layout == XHBMLayout_H_T__0 else (x.shape[1], x.shape[0])
    limits.multiple("H", hidden, _P, "each of 128 partitions holds as many of its numbers")
    places = hidden // _P
    if sb_layout == XSBLayout__128_Hdiv128_T__3:
        return _copied(x.reshape((places, _P, tokens)).permute((1, 0, 2)))
    if sb_layout == XSBLayout_tp102__0:
        return _copied(x.reshape((tokens, _P, places)).permute((1, 0, 2)))
    if sb_layout == XSBLayout_tp2013__1:
        limits.multiple("H", hidden, 2 * _P, "layout 1 has two halves")
        halves = x.reshape((tokens, 2, _P, places // 2)).permute((2, 0, 1, 3))
        return _copied(halves).reshape((_P, tokens, places))
    turned = streaming.sbuf((_P, tokens, places), x.dtype)
    nisa.tensor_copy(dst=turned.permute((0, 2, 1)), src=transposed(x))
    return turned


def router_topk_input_w_load(w: nl.NkiTensor, x_sb_layout: int, name: str = "") -> nl.NkiTensor:
    """The router's weights (H, E) in SBUF as (128, n, E), where they meet hidden states of this layout.

    Args:
        w: (H, E) in HBM.
        x_sb_layout: of the hidden states, 0 to 3.
        name: of the tensor.
    """
    limits.one_of("x_sb_layout", x_sb_layout, (0, 1, 2, 3))
    hidden, experts = w.shape
    limits.multiple("H", hidden, _P, "each of 128 partitions holds as many of its numbers")
    places = hidden // _P
    if x_sb_layout == XSBLayout_tp102__0:
        return _copied(w.reshape((_P, places, experts)), name)
    if x_sb_layout == XSBLayout_tp2013__1:
        limits.multiple("H", hidden, 2 * _P, "layout 1 has two halves")
        halves = w.reshape((2, _P, places // 2, experts)).permute((1, 0, 2, 3))
        return _copied(halves, name).reshape((_P, places, experts))
    return _copied(w.reshape((places, _P, experts)).permute((1, 0, 2)), name)


def transposed(x: nl.NkiTensor) -> nl.NkiTensor:
    """Rows (T, H) of HBM in layout 3, transposed by DMA."""
    tokens, hidden = x.shape
    turned = streaming.sbuf((_P, hidden // _P, tokens), x.dtype)
    rows = x.reshape((tokens, hidden // _P, _P))
    for part in _parts(turned):
        nisa.dma_transpose(dst=turned[:, part], src=rows[:, part], dge_mode=nisa.dge_mode.none)
    return turned


def columns(x: nl.NkiTensor, tokens: slice) -> nl.NkiTensor:
    """Some columns of (H, T) in HBM as (128, n, tokens), where partition p holds the numbers from p * n on.

    A partition reads n runs of neighbours, and a single one if all tokens are wanted.
    """
    hidden, count = x.shape
    return _copied(x.reshape((_P, hidden // _P, count))[:, :, tokens])


def _copied(source: nl.NkiTensor, name: str = "") -> nl.NkiTensor:
    """A view of HBM in a new tile; its many short pieces are described before the kernel starts."""
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf, name=name)
    for part in _parts(tile):
        nisa.dma_copy(dst=tile[:, part], src=source[:, part], dge_mode=nisa.dge_mode.none)
    return tile


def _parts(tile: nl.NkiTensor) -> list[slice]:
    """Pieces of dimension 1 that are transfers of their own, so that products begin before all of a tile is there."""
    each = tile.size // tile.shape[0] // tile.shape[1] * tile.dtype.itemsize
    return streaming.spans(tile.shape[1], max(1, streaming.ceil_div(_PART_BYTES, each)))
