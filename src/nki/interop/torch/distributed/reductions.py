"""The reductions of c10d: those that kernels have are theirs, in the order of the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import torch

from nki.collectives.shared import reduced
from nki.core.dtypes import BY_NAME, DType, as_dtype
from nki.core.errors import ArgumentError
from nki.core.source import Location
from nki.frontend.host import torch_memory
from nki.sim.numpy_arrays import NumpyArrays

_NAMES = {"sum": "add", "avg": "add", "premul_sum": "add", "product": "multiply", "min": "minimum", "max": "maximum"}
_BITWISE: dict[str, Callable[[Any, Any], Any]] = {
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
_EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "multiply": np.multiply,
    "minimum": np.minimum,
    "maximum": np.maximum,
}
_TRUTH = {"add": np.logical_or, "multiply": np.logical_and, "minimum": np.logical_and, "maximum": np.logical_or}


class Reduction(NamedTuple):
    """What a call reduces with.

    Attributes:
        name: as c10d spells it, in small letters.
        factor: of ``premul_sum``.
    """

    name: str
    factor: float = 1.0

    def check(self, dtype: torch.dtype, location: Location) -> None:
        """Refuse what has no meaning for a dtype.

        Raises:
            ArgumentError: "distributed.reduction".
        """
        floating = dtype.is_floating_point or dtype.is_complex
        known = self.name in _NAMES or self.name in _BITWISE
        fits = {"premul_sum": floating, "avg": dtype is not torch.bool}.get(self.name, True)
        if self.name in _BITWISE:
            fits = not floating
        if self.name in ("min", "max"):
            fits = not dtype.is_complex
        if not (known and fits):
            raise ArgumentError(
                "distributed.reduction",
                f"tensors of {dtype} are to be reduced with {self.name}",
                rule="sum, avg, product, min, max and premul_sum reduce numbers, band, bor and bxor integers; "
                "premul_sum takes floats, avg no truth values, min and max no complex numbers",
                source="torch.distributed.ReduceOp",
                fix="convert the tensors, or use another ReduceOp",
                location=location,
            )

    def of(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The reduction of CPU tensors of one shape and dtype, in their order; a tensor of its own.

        Sums, products, least and greatest ones of a dtype of the device are those of `nki.collectives`: in float32 with
        one rounding at the end, 32-bit integers exactly. 64-bit and complex numbers, which the device does not have,
        are reduced in their own precision.
        """
        dtype = parts[0].dtype
        if dtype is torch.bool or self.name in _BITWISE:
            function = _BITWISE.get(self.name) or _TRUTH[_NAMES[self.name]]
            return torch.from_numpy(np.ascontiguousarray(reduce(function, [part.numpy() for part in parts])))
        name = str(dtype).removeprefix("torch.")
        with np.errstate(all="ignore"):
            if name in BY_NAME:
                return self._of_device(parts, as_dtype(name))
            return self._exactly(parts)

    def _of_device(self, parts: Sequence[torch.Tensor], dtype: DType) -> torch.Tensor:
        x: Any = NumpyArrays()  # arithmetic is all that is needed of a machine
        arrays = [torch_memory(part.contiguous(), dtype) for part in parts]
        if self.name == "avg" and dtype.kind in ("int", "uint"):
            wide = reduce(np.add, [array.astype(np.int64) for array in arrays])
            found = np.trunc(wide / len(parts)).astype(dtype.numpy)
        else:
            before = (lambda value: x.multiply(value, np.float32(self.factor))) if self.name == "premul_sum" else None
            after = (lambda value: x.divide(value, np.float32(len(parts)))) if self.name == "avg" else None
            found = reduced(x, _NAMES[self.name], arrays, dtype, before, after)
        made = torch.empty(parts[0].shape, dtype=parts[0].dtype)
        torch_memory(made, dtype)[...] = found
        return made

    def _exactly(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        arrays = [part.resolve_conj().resolve_neg().numpy() for part in parts]
        if self.name == "premul_sum":
            arrays = [array * array.dtype.type(self.factor) for array in arrays]
        found = np.ascontiguousarray(reduce(_EXACT[_NAMES[self.name]], arrays))
        if self.name == "avg":
            found = _divided(found, len(parts))
        return torch.from_numpy(np.array(found, arrays[0].dtype))


def _divided(values: Any, count: int) -> Any:
    """Quotients; of integers towards zero, of complex numbers in both parts."""
    if values.dtype.kind in "iu":
        return np.sign(values) * (np.abs(values) // count)
    real = values.view(values.real.dtype)
    return (real / real.dtype.type(count)).view(values.dtype)
