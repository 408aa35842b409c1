"""Which arguments an operator's body writes to, held against what its declaration says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from nki.core.errors import LaunchError
from nki.core.source import of_function
from nki.report import warn
from nki.spec.rule import Finding

_SOURCE = "torch.library.custom_op, mutates_args"


class MutationWatch:
    """One run of a body.

    Args:
        name: the operator, ``ns::op``; an attribute.
        body: the user's function.
        arguments: what it was called with, by parameter.
        declared: the parameters that it may write to.
    """

    def __init__(
        self, name: str, body: Callable[..., Any], arguments: Mapping[str, Any], declared: frozenset[str]
    ) -> None:
        self.name, self._body, self._declared = name, body, declared
        self._tensors = [(key, tensor) for key, value in arguments.items() for tensor in _tensors(value)]
        self._versions = [_version(tensor) for _, tensor in self._tensors]
        self._written: set[str] = set()

    def writes(self, tensor: torch.Tensor) -> None:
        """A kernel is about to write to a tensor: refused if that is the memory of an undeclared argument."""
        self._note(_place(tensor))

    def finish(self) -> None:
        """Look for what PyTorch's own operators wrote to, and for declared arguments that nobody wrote to."""
        for (_, tensor), before in zip(self._tensors, self._versions, strict=True):
            if _version(tensor) != before:
                self._note(_place(tensor))
        for key in sorted(self._declared - self._written):
            warn(self._unwritten(key))

    def pass_on(self, outer: MutationWatch) -> None:
        """Tell the operator whose body called this one what it wrote to."""
        for key, tensor in self._tensors:
            if key in self._written:
                outer.writes(tensor)

    def _note(self, place: int) -> None:
        """A storage is written to; of several arguments in it, the declared ones are meant."""
        keys = {key for key, tensor in self._tensors if _place(tensor) == place}
        if keys and not keys & self._declared:
            key = min(keys)
            raise self.refusal(key)
        self._written |= keys & self._declared

    def refusal(self, key: str) -> LaunchError:
        """Why the argument must not be written to."""
        return LaunchError(
            "torch.undeclared-write",
            f"{self.name} writes to its argument {key}, which mutates_args does not name",
            rule="an operator declares every argument that it writes to: graphs are rearranged around it",
            source=_SOURCE,
            fix=f"declare it: mutates_args={sorted({*self._declared, key})}",
            location=of_function(self._body.__code__),
        )

    def _unwritten(self, key: str) -> Finding:
        return Finding(
            "torch.unwritten-argument",
            "warning",
            f"{self.name} declares that it writes to {key}, but does not",
            "mutates_args names what is written to, and nothing else",
            _SOURCE,
            f"leave {key} out of mutates_args",
            of_function(self._body.__code__),
            {},
        )


_ACTIVE: ContextVar[MutationWatch | None] = ContextVar("nki_torch_watch", default=None)
"""The body that this context runs: PyTorch calls operators in it without a way to hand something on."""


def active_watch() -> MutationWatch | None:
    """The body that is being watched."""
    return _ACTIVE.get()


@contextmanager
def watching(watch: MutationWatch | None) -> Iterator[None]:
    """Watch what happens inside; with None, nothing is watched."""
    outer = _ACTIVE.get()
    token = _ACTIVE.set(watch)
    try:
        yield
        if watch is not None:
            watch.finish()
            if outer is not None:
                watch.pass_on(outer)
    finally:
        _ACTIVE.reset(token)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [item for item in value if isinstance(item, torch.Tensor)] if isinstance(value, tuple | list) else []


def _place(tensor: torch.Tensor) -> int:
    """What identifies the storage of a tensor."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor.untyped_storage()._cdata


def _version(tensor: torch.Tensor) -> int:
    """How often it was written to; tensors of inference mode do not count."""
    return 0 if tensor.is_inference() else tensor._version
