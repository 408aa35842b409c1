"""MLIR contexts that know the two dialects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import nki.isa  # noqa: F401 - fills the registry
from nki.core.locks import rlock
from nki.ir.mlir import Context, IsTerminatorTrait, Module, load_dialects
from nki.ir.nisa import nisa_irdl
from nki.ir.types import TERMINATORS, nki_irdl
from nki.spec.instruction import REGISTRY, Instruction

_LOCK = rlock()


def new_context() -> Context:
    """A context of its own, with the dialects as the registry is now."""
    context = Context()
    # One thread uses a context at a time (`session`), and starting a pool costs more than it would save.
    context.enable_multithreading(False)
    with context:
        load_dialects(Module.parse(nki_irdl() + nisa_irdl(REGISTRY.values())))
        for name in TERMINATORS:
            IsTerminatorTrait.attach(name)
    return context


@lru_cache(maxsize=1)  # the last one: it is new only where instructions were declared since
def _context_for(instructions: tuple[Instruction[Any], ...]) -> Context:
    return new_context()


def shared_context() -> Context:
    """The context of this process: what is uniqued in it is small and shared by all kernels."""
    return _context_for(tuple(REGISTRY.values()))


@contextmanager
def session(context: Context) -> Iterator[Context]:
    """Use a context, alone."""
    with _LOCK, context:
        yield context
