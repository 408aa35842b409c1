"""Activations of 8 bits with a scale that is known beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nkilib.core.utils.kernel_helpers import get_max_positive_value_for_dtype
from nkilib.streaming import load, sbuf


@dataclass(frozen=True)
class Static:
    """One scale for all activations.

    Attributes:
        inverse: ``1 / scale``, float32 (128, 1) in SBUF.
        largest: number of the dtype of 8 bits; larger ones become it.
    """

    inverse: Any
    largest: float

    @classmethod
    def of(cls, scale: Any, dtype: Any) -> Static:
        """Of a scale (128, 1) in HBM, for activations that become `dtype`."""
        inverse = sbuf(scale.shape, nl.float32)
        nisa.reciprocal(dst=inverse, data=load(scale))
        return cls(inverse, get_max_positive_value_for_dtype(dtype) or 0.0)

    def round(self, target: Any, value: Any) -> None:
        """Activations over their scale, in 8 bits."""
        scaled = sbuf(value.shape, nl.float32)
        inverse, largest = self.inverse[0 : value.shape[0], :], self.largest
        nisa.tensor_scalar(dst=scaled, data=value, op0=nl.multiply, operand0=inverse, op1=nl.minimum, operand1=largest)
        nisa.tensor_scalar(dst=target, data=scaled, op0=nl.maximum, operand0=-largest)
