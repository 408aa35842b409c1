"""Hardware generations as data: load one by name and ask it for numbers and features."""

from nki.target.load import DEFAULT_TARGET, load_target, read_target, target_names
from nki.target.model import FEATURES, TIMING, Provenance, Target

__all__ = [
    "DEFAULT_TARGET",
    "FEATURES",
    "TIMING",
    "Provenance",
    "Target",
    "load_target",
    "read_target",
    "target_names",
]
