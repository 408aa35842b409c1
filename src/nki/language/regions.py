"""Questions about memory regions: is_hbm, is_sbuf, is_psum, is_on_chip."""

from __future__ import annotations

from typing import Any

from nki.core.tensor import MemoryRegion
from nki.language.arguments import public
from nki.spec.allocation import checked_region


@public
def is_hbm(buffer: Any) -> bool:
    """True for nl.private_hbm (nl.hbm) and nl.shared_hbm."""
    return checked_region(buffer).is_hbm


@public
def is_sbuf(buffer: Any) -> bool:
    """True for nl.sbuf."""
    return checked_region(buffer) is MemoryRegion.sbuf


@public
def is_psum(buffer: Any) -> bool:
    """True for nl.psum."""
    return checked_region(buffer) is MemoryRegion.psum


@public
def is_on_chip(buffer: Any) -> bool:
    """True for nl.sbuf and nl.psum, whose tensors have a partition dimension."""
    return checked_region(buffer).on_chip
