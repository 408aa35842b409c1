"""The names that engines had in ``nki.isa`` before there was `engine`."""

from __future__ import annotations

from nki.core.names.removed import warn_deprecated
from nki.spec.engine import engine

OLD_ENGINES = {
    "tensor_engine": engine.tensor,
    "vector_engine": engine.vector,
    "scalar_engine": engine.scalar,
    "gpsimd_engine": engine.gpsimd,
    "unknown_engine": engine.unknown,
}


def old_engine(name: str) -> engine:
    """An engine by its old name, with a DeprecationWarning where ``nki.isa.__getattr__`` was asked for it."""
    warn_deprecated(f"nisa.{name}", f"nisa.engine.{OLD_ENGINES[name].name}", calls=3)
    return OLD_ENGINES[name]
