"""``neuronxcc.nki.typing``: annotations of kernels, and tensors that have a shape and a dtype alone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from nki.beta1.language.loops import range
from nki.beta1.tracing.scalars import scalar as _scalar
from nki.frontend.host import ShapeDtype
from nki.spec.allocation import checked_dtype
from nki.typing import TensorAnnotation, mutable_tensor

if TYPE_CHECKING:
    from nki.beta1.tracing.scalars import scalar

mutable = "mutable"
"""``tensor[mutable]`` is what `mutable_tensor` is."""

__all__ = ["TensorAnnotation", "mutable", "mutable_tensor", "scalar", "tensor"]


class tensor:  # noqa: N801 - a name of the language
    """A tensor argument.

    ``tensor[128, 512]`` annotates a parameter; ``tensor[[128, 512], nl.float32]`` stands for an array where only shape
    and dtype count, as `nki.benchmark` takes it.
    """

    def __class_getitem__(cls, key: Any) -> Any:
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], list | tuple):
            return ShapeDtype(tuple(int(size) for size in key[0]), checked_dtype(key[1]))
        if key == mutable:
            return TensorAnnotation((), mutable=True)
        return TensorAnnotation(key if isinstance(key, tuple) else (key,))


def __getattr__(name: str) -> Any:
    """`scalar`, for a module whose loops may count with numbers of run time: its `range` takes them from here on."""
    if name != "scalar":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    sys._getframe(1).f_globals.setdefault("range", range)
    return _scalar


def teach(namespace: dict[str, Any]) -> None:
    """Give a module that has this one under a name a `range` that takes numbers of run time."""
    if "range" not in namespace and any([value is _THIS for value in namespace.values()]):
        namespace["range"] = range


_THIS = sys.modules[__name__]
