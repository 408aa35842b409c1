"""A warning has the file and the line of the user's call, also where a framework lies between it and the package."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import nki.interop.jax
import nki.interop.torch
from nki.report import NkiWarning


def _torch() -> Any:
    compiled = torch.compile(lambda x: torch.linalg.svdvals(x) + 1, backend="neuron", options={"fallback": "host"})
    return compiled(torch.eye(4))  # the call of torch


def _jax() -> Any:
    compiled = nki.interop.jax.compile(lambda x: jnp.linalg.svd(x)[1], fallback="host")
    return compiled(np.eye(4, dtype=np.float32))  # the call of jax


@pytest.mark.parametrize(("call", "name"), [(_torch, "torch"), (_jax, "jax")])
def test_a_warning_is_at_the_call(call: Callable[[], Any], name: str) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    lines = Path(__file__).read_text().splitlines()
    mine = [each for each in found if each.category is NkiWarning]
    assert [each.filename for each in mine] == [__file__]
    assert f"# the call of {name}" in lines[mine[0].lineno - 1]
