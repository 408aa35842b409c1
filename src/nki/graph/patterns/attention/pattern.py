"""The pattern of attention: what recognises it, with the kernel that computes it."""

from __future__ import annotations

from nki.graph.patterns import Pattern
from nki.graph.patterns.attention.kernel import attention
from nki.graph.patterns.attention.match import match

ATTENTION = Pattern("attention", match, attention, choose="faster")
