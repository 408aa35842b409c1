"""``nki.testing``: what helps to find out where a kernel leaves its reference."""

from __future__ import annotations

from nki.language.taps import tap

__all__ = ["tap"]
