"""Which operators on tensors of the device ran by programs of their own, and which ones on the CPU, and why."""

from __future__ import annotations

from collections import Counter

_RAN: Counter[str] = Counter()
"""How often an operator ran on the CPU, told of the process; one count for each operator, until `forget`."""

_MADE: Counter[str] = Counter()
"""How often an operator ran on the device, told of the process; one count for each operator, until `forget`."""

_REASONS: dict[str, str] = {}
"""Why an operator last ran on the CPU, told of the process; one text for each operator, until `forget`."""


def note(operator: str) -> None:
    """An operator runs on the CPU."""
    _RAN[operator] += 1


def left(operator: str, reason: str) -> None:
    """Why an operator is left to the CPU."""
    _REASONS[operator] = reason


def made(operator: str) -> None:
    """An operator ran by a program of its own."""
    _MADE[operator] += 1


def provenance() -> dict[str, int]:
    """How often each operator ran on the CPU since the last `forget`; kernels and programs are not among them."""
    return dict(sorted(_RAN.items()))


def on_device_counts() -> dict[str, int]:
    """How often each operator ran by a program of its own since the last `forget`."""
    return dict(sorted(_MADE.items()))


def reasons() -> dict[str, str]:
    """Why each operator was left to the CPU, the last time since the last `forget`."""
    return dict(sorted(_REASONS.items()))


def forget() -> None:
    """Count from zero."""
    for each in (_RAN, _MADE, _REASONS):
        each.clear()
