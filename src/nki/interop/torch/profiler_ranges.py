"""Spans of this package, such as compilation and execution, as ranges of ``torch.profiler`` while that records."""

from __future__ import annotations

from typing import Any

import torch

from nki.runtime.spans import show_ranges_while

# Not torch.profiler.record_function: that is an operator, which a graph that is being traced would have in it.
_Range: Any = torch._C._profiler._RecordFunctionFast


def install() -> None:
    """Show spans to the profiler from here on."""
    show_ranges_while(torch.autograd._profiler_enabled, "torch", _Range)
