"""The engines of a NeuronCore and the other enumerations that instructions take."""

from __future__ import annotations

from enum import Enum, IntEnum


class engine(Enum):  # noqa: N801 - public name of the API
    """Engines of a NeuronCore; values as published (nki/api/nki/isa)."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(Enum):  # noqa: N801
    """What happens to the accumulator registers of an engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):  # noqa: N801
    """Who writes DMA descriptors: the compiler chooses, GpSimd, the hardware block, or the runtime beforehand."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):  # noqa: N801
    """What a dynamic address outside its tensor does."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):  # noqa: N801
    """Performance modes of the Tensor engine."""

    none = "none"
    double_row = "double_row"


class nc_version(IntEnum):  # noqa: N801
    """NeuronCore generations; they compare with each other and with their numbers."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class dma_engine(Enum):  # noqa: N801
    """Which DMA moves data between two cores."""

    dma = 1
    gpsimd_dma = 2
