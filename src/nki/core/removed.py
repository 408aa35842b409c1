"""Names of earlier versions: reading one is an AttributeError that says what to write today."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from nki.core.errors import RemovedError


@dataclass(frozen=True, slots=True)
class Removed:
    """What became of a name.

    Attributes:
        since: version that no longer has it.
        instead: what to write today.
    """

    since: str
    instead: str


_SCALAR_OFFSET = "use nisa.tensor_copy with tensor.ap(..., scalar_offset=index)"

NKI: Mapping[str, Removed] = {
    "baremetal": Removed("0.1", "call the kernel: @nki.jit kernels run on NumPy, torch and JAX arrays"),
    "simulate_kernel": Removed("0.1", "use nki.simulate(kernel)(*arguments)"),
    "tensor": Removed("0.2", "annotate with nki.typing.tensor[shape]"),
}
LANGUAGE: Mapping[str, Removed] = {
    "arange": Removed("0.2", "slice the tensor: tensor[0:128, 0:512], or tensor.ap(pattern) for other strides"),
    "mgrid": Removed("0.2", "slice the tensor: tensor[0:128, 0:512], or tensor.ap(pattern) for other strides"),
    "par_dim": Removed("0.2", "put the partitions first: nl.ndarray((128, 512), ...)"),
}
ISA: Mapping[str, Removed] = {
    "tensor_copy_dynamic_dst": Removed("0.4", _SCALAR_OFFSET),
    "tensor_copy_dynamic_src": Removed("0.4", _SCALAR_OFFSET),
}


def missing_name(module: str, name: str, removed: Mapping[str, Removed]) -> AttributeError:
    """The error of ``module.__getattr__(name)``: a `RemovedError` if an earlier version had the name."""
    item = removed.get(name)
    if item is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    return RemovedError(
        "name.removed",
        f"{module}.{name} does not exist since NKI {item.since}",
        rule=f"{module} has the names of NKI 0.3 and later",
        source="release-notes/components/nki.rst",
        fix=item.instead,
    )


def warn_deprecated(name: str, instead: str) -> None:
    """A DeprecationWarning at the place that reads ``module.name``."""
    warnings.warn(f"{name} is deprecated; use {instead}", DeprecationWarning, stacklevel=3)
