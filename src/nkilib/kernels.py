"""All kernels under one name each: ``from nkilib.kernels import mlp``; each is loaded when it is asked for."""

from __future__ import annotations

from typing import Any

from nkilib.catalogue import CATALOGUE, kernel


def __getattr__(name: str) -> Any:
    if name in CATALOGUE:
        return kernel(name)
    raise AttributeError(f"nkilib has no kernel {name!r}; it has {', '.join(sorted(CATALOGUE))}", name=name)


def __dir__() -> list[str]:
    return sorted(CATALOGUE)
