"""Which NeuronCore a kernel is made for."""

from __future__ import annotations

from nki.options import from_environment
from nki.spec.engine import nc_version
from nki.spec.sink import active_sink
from nki.target.load import DEFAULT_TARGET, load_target
from nki.target.model import Target

PUBLIC = (
    "get_nc_version",
    "get_nc_sub_version",
)
"""What this family exports besides its instructions."""


def get_nc_version() -> nc_version:
    """The generation: of the target of the running kernel, on the host of the one that the environment names."""
    return nc_version(_target().generation)


def get_nc_sub_version() -> int:
    """The revision of the silicon within the generation: 0, or 1 for the second one."""
    return _target().sub_version


def _target() -> Target:
    sink = active_sink()
    return load_target(from_environment().target or DEFAULT_TARGET) if sink is None else sink.target
