"""Stages of `torch.distributed.pipelining` that are alone: no other stage tells them shapes, or votes with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._utils import InferenceMode

from nki.core.errors import LaunchError
from nki.interop.torch.user_location import user_line


@contextmanager
def alone() -> Iterator[None]:
    """Let each stage decide for itself that it knows its shapes, which stages else agree on by messages.

    A stage that does not know them raises LaunchError ``step.shapes``.
    """
    kept = PipelineStage._warmup_forward_vote, PipelineStage._warmup_backward_result
    PipelineStage._warmup_forward_vote = _own_vote
    PipelineStage._warmup_backward_result = _same_result
    try:
        yield
    finally:
        PipelineStage._warmup_forward_vote, PipelineStage._warmup_backward_result = kept


def _own_vote(stage: Any, has_backward: bool, received_acc: torch.Tensor | None = None) -> torch.Tensor:
    if InferenceMode.needs_dynamic(stage._user_meta, has_backward):
        raise LaunchError(
            "step.shapes",
            f"stage {stage.stage_index} of a pipeline would learn its shapes from the stage before it",
            rule="one stage is compiled alone, and gets no messages",
            fix="write PipelineStage(..., input_args=, output_args=) with tensors of the shapes of a batch",
            location=user_line(),
        )
    return torch.ones(1, dtype=torch.int32)


def _same_result(stage: Any, received_result: torch.Tensor | None = None) -> torch.Tensor:
    return torch.ones(1, dtype=torch.int32) if received_result is None else received_result
