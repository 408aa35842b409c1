"""Operators that are written in Python, which Dynamo leaves alone.

Between the graphs of a function that Dynamo breaks it looks at each Python function that is called, also at those that
PyTorch's dispatcher calls. It would compile the device itself, which takes a minute and gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._C._dynamo import eval_frame

_ALONE = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
"""For a function and all that it calls, as for those that `torch._dynamo.disable` makes."""


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, of which Dynamo compiles nothing, nor of what it calls."""
    if function is not torch.library.fallthrough_kernel:
        eval_frame.set_code_exec_strategy(function.__code__, _ALONE)
    return function


class Operators(torch.library.Library):
    """Implementations of operators, whose functions are `untraced`."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace, "IMPL")

    def impl(self, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        super().impl(op_name, untraced(fn), dispatch_key, **options)

    def fallback(self, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        super().fallback(untraced(fn), dispatch_key, **options)
