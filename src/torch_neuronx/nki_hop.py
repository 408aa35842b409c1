"""The module in which the published package has `nki_op` and `wrap_nki`."""

from __future__ import annotations

from nki.interop.torch import nki_op, wrap_nki

__all__ = ["nki_op", "wrap_nki"]
