"""Which operators of PyTorch ran on the CPU although their tensors are on the device."""

from __future__ import annotations

from collections import Counter

_RAN: Counter[str] = Counter()


def note(operator: str) -> None:
    """An operator runs on the CPU."""
    _RAN[operator] += 1


def provenance() -> dict[str, int]:
    """How often each operator ran on the CPU since the last `forget`; kernels are not among them."""
    return dict(sorted(_RAN.items()))


def forget() -> None:
    """Count from zero."""
    _RAN.clear()
