"""Transfers between tensors whose addresses are known before a model runs."""

from __future__ import annotations

import nki.isa as nisa
from nki.core.nki_tensor import NkiTensor

_BEFOREHAND = nisa.dge_mode.none
"""The runtime writes the descriptors when the model is loaded: a transfer then starts in a fraction of the time in
which hardware would generate them (nki/guides/architecture/trainium2_arch.rst)."""


def copy(dst: NkiTensor, src: NkiTensor) -> None:
    """``dst = src``, in element order."""
    nisa.dma_copy(dst=dst, src=src, dge_mode=_BEFOREHAND)


def transpose(dst: NkiTensor, src: NkiTensor) -> None:
    """``dst = src``, the first dimension of one the last of the other."""
    nisa.dma_transpose(dst=dst, src=src, dge_mode=_BEFOREHAND)
