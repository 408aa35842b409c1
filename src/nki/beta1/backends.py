"""``neuronxcc.nki.compiler.backends.neuron``: names of the compiler's inside that published files import.

Models of serving libraries name dimensions of grids, and kernels name the types of tiles and indices.
"""

from __future__ import annotations

from nki.beta1.errors import refused
from nki.beta1.tensors.index import Index
from nki.beta1.tensors.tensor import Tensor
from nki.beta1.tracing.grid import GridAxis, nc

__all__ = ["VNC", "CCPipeline", "TileIndex", "local_tile"]

TileIndex = Index
"""The type of an index expression."""

local_tile = Tensor
"""The type of a tile on chip."""

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
