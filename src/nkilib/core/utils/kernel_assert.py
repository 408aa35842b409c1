"""Checks of a kernel's own conditions, whose errors name the line of the kernel."""

from __future__ import annotations

from typing import Any

from nkilib.errors import KernelLimit


class KernelAssertion(KernelLimit, AssertionError):
    """A condition of a kernel that does not hold."""


def kernel_assert(condition: bool, error_text: str) -> None:
    """Refuse a call unless the condition holds.

    Raises:
        KernelAssertion: it does not (``nkilib.argument``); the message is `error_text`.
    """
    if not condition:
        raise KernelAssertion(
            "nkilib.argument",
            error_text,
            rule="a kernel's own conditions hold",
            fix="change what the message names",
        )


def assert_shape(tensor: Any, expected_shape: tuple[int, ...], tensor_name: str, error_text: str = "") -> None:
    """Refuse a tensor of another shape; the message has the name, both shapes and `error_text`.

    Raises:
        KernelAssertion: the shapes differ (``nkilib.argument``).
    """
    kernel_assert(
        tuple(tensor.shape) == tuple(expected_shape),
        f"{tensor_name} has shape {tuple(tensor.shape)}, not {tuple(expected_shape)}. {error_text}".rstrip(),
    )
