"""Copies by the Scalar engine, which has less to do than Vector in many kernels, on every target."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl


def copied(into: Any, source: Any) -> None:
    """``into = source``, converted to its dtype."""
    if _newer():
        nisa.tensor_copy(dst=into, src=source, engine=nisa.engine.scalar)
    else:
        nisa.activation(dst=into, op=nl.copy, data=source)


def shifted(into: Any, source: Any, bias: Any, scale: Any = 1.0) -> None:
    """``into = source * scale + bias``, where both may be of rows, (partitions, 1).

    On NeuronCore-v2 Vector computes it: its Scalar is reported to leave the bias of a copy out.
    """
    if _newer():
        nisa.activation(dst=into, op=nl.copy, data=source, scale=scale, bias=bias)
    else:
        nisa.tensor_scalar(dst=into, data=source, op0=nl.multiply, operand0=scale, op1=nl.add, operand1=bias)


def _newer() -> bool:
    return bool(nisa.get_nc_version() >= nisa.nc_version.gen3)
