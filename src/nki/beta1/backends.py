"""``neuronxcc.nki.compiler.backends.neuron.dimensions``: dimensions of grids that models of serving libraries name."""

from __future__ import annotations

from nki.beta1.errors import refused
from nki.beta1.tracing.grid import GridAxis, nc

__all__ = ["VNC", "CCPipeline"]

VNC = nc
"""An older name of ``nl.nc``."""


def CCPipeline(factor: int) -> GridAxis:  # noqa: N802 - the name of the first NKI
    """What a kernel's work is cut into so that collectives begin earlier: ``kernel[CCPipeline(1) * nl.nc(2)]``.

    Raises:
        Beta1Error: another factor than 1 (``beta1.grid``): nothing runs beside a kernel here.
    """
    if factor != 1:
        raise refused(
            "grid",
            f"CCPipeline({factor!r})",
            "write CCPipeline(1), or nl.nc(2) alone",
            rule="kernels run alone here, so that no collective begins before one ends",
        )
    return GridAxis()
