"""Spans of this package, such as compilation and execution, as ranges of ``jax.profiler`` while that records."""

from __future__ import annotations

import jax

from nki.runtime import show_ranges


def install() -> None:
    """Show spans to the profiler from here on; an annotation costs next to nothing while nobody records."""
    show_ranges("jax", jax.profiler.TraceAnnotation)
