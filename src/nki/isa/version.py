"""Which NeuronCore a kernel is made for."""

from __future__ import annotations

from nki.spec.engine import nc_version
from nki.spec.sink import current_target

PUBLIC = (
    "get_nc_version",
    "get_nc_sub_version",
)
"""What this family exports besides its instructions."""


def get_nc_version() -> nc_version:
    """The generation: of the target of the running kernel, on the host of the one that the environment names."""
    return nc_version(current_target().generation)


def get_nc_sub_version() -> int:
    """The revision of the silicon within the generation: 0, or 1 for the second one."""
    return current_target().sub_version
