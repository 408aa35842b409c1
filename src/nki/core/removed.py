"""Names that are not there: reading one is an AttributeError that says what to write today, or a name that is close."""

from __future__ import annotations

import difflib
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nki.core.errors import RemovedError


@dataclass(frozen=True, slots=True)
class Removed:
    """What became of a name.

    Attributes:
        since: version that no longer has it; "" if no documented version had it, but kernels use it.
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
_CAST = "use nl.copy(x, dtype=...), or give the dst of an instruction that dtype"
_WIDE = "no engine computes with 64 bits"
_LAUNCH = "launch the kernel on two cores with kernel[2](...), and divide the work by nl.program_id(0)"

LANGUAGE: Mapping[str, Removed] = {
    "all_reduce": Removed("0.2", "exchange tiles between two cores with nisa.sendrecv, and add them with nl.add"),
    "arange": Removed("0.2", "slice the tensor: tensor[0:128, 0:512], or tensor.ap(pattern) for other strides"),
    "atomic_rmw": Removed("0.2", "use nisa.dma_compute(dst=out, srcs=[tile, out], reduce_op=nl.add)"),
    "cast": Removed("", _CAST),
    "constexpr": Removed("", "leave the annotation out: arguments that are no arrays are constants of the kernel"),
    "dot": Removed("", "use nl.matmul(x, y), or nisa.nc_matmul"),
    "float64": Removed("", f"use nl.float32: {_WIDE}"),
    "int64": Removed("", f"use nl.int32: {_WIDE}"),
    "loop_reduce": Removed(
        "0.2", "accumulate in the loop: nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.add)"
    ),
    "mgrid": Removed("0.2", "slice the tensor: tensor[0:128, 0:512], or tensor.ap(pattern) for other strides"),
    "nc": Removed("0.2", _LAUNCH),
    "par_dim": Removed("0.2", "put the partitions first: nl.ndarray((128, 512), ...)"),
    "spmd_dim": Removed("0.2", _LAUNCH),
    "static_cast": Removed("", _CAST),
}
_FUNCTION = "write nl.{name}(tensor, ...)"
TENSOR: Mapping[str, str] = {
    "T": "write nl.transpose(tensor), or tensor.permute(dims) for a view of it",
    "astype": "write nl.copy(tensor, dtype=...)",
    "to": "write nl.copy(tensor, dtype=...)",
    "copy": "write nl.copy(tensor)",
    "transpose": "write nl.transpose(tensor), or tensor.permute(dims) for a view of it",
    "dot": "write nl.matmul(x, y)",
    "item": "load it with nisa.scalar_load(tensor): values are known when the kernel runs",
    "numpy": "use functions of nki.language: values are known when the kernel runs",
    "fill": "write tensor[...] = value",
    "expand_dims": "write tensor.expand_dim(dim)",
    "squeeze": "write tensor.squeeze_dim(dim)",
    "unsqueeze": "write tensor.expand_dim(dim)",
    "flatten": "write tensor.flatten_dims(start_dim, end_dim)",
    **{
        name: _FUNCTION.format(name=name) for name in ("sum", "mean", "max", "min", "prod", "var", "exp", "sqrt", "abs")
    },
}
"""Attributes of NumPy's arrays and torch's tensors: what to write instead."""

ISA: Mapping[str, Removed] = {
    "tensor_copy_dynamic_dst": Removed("0.4", _SCALAR_OFFSET),
    "tensor_copy_dynamic_src": Removed("0.4", _SCALAR_OFFSET),
}


_CLOSE = 0.7
"""How much two names have in common, of 1, if one may be a misspelling of the other."""


def missing_name(module: str, name: str, removed: Mapping[str, Removed]) -> AttributeError:
    """The error of ``module.__getattr__(name)``: a `RemovedError` if `removed` has the name.

    For other names it is a plain AttributeError, as Python's own, with the names of the module that are close.
    """
    item = removed.get(name)
    if item is None:
        return AttributeError(f"module {module!r} has no attribute {name!r}{_close(module, name)}", name=name)
    return RemovedError(
        "name.removed",
        f"{module}.{name} does not exist" + (f" since NKI {item.since}" if item.since else ""),
        rule=f"{module} has the names of NKI 0.3 and later",
        source="release-notes/components/nki.rst",
        fix=item.instead,
    )


def missing_attribute(shown: str, on_chip: bool, name: str, names: Sequence[str]) -> AttributeError:
    """The error of ``tensor.name``.

    Args:
        shown: the tensor in messages.
        on_chip: whether functions of nki.language take it as it is.
        name: what it does not have.
        names: what it has.
    """
    if name in TENSOR:
        return RemovedError(
            "tensor.attribute",
            f"{shown} has no {name!r}",
            rule="functions of nki.language and instructions compute with tensors",
            fix=TENSOR[name] if on_chip else re.sub(r"\bnl\.(\w+)\(tensor", r"nl.\1(nl.load(tensor)", TENSOR[name]),
        )
    close = difflib.get_close_matches(name, names, n=2, cutoff=_CLOSE)
    told = f"; did you mean {' or '.join(close)}?" if close else ""
    return AttributeError(f"'NkiTensor' object has no attribute {name!r}{told}", name=name)


def _close(module: str, name: str) -> str:
    if name.startswith("__"):  # Python asks for these of every module
        return ""
    close = difflib.get_close_matches(name, sys.modules[module].__all__, n=2, cutoff=_CLOSE)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def warn_deprecated(name: str, instead: str) -> None:
    """A DeprecationWarning at the place that reads ``module.name``."""
    warnings.warn(f"{name} is deprecated; use {instead}", DeprecationWarning, stacklevel=3)
