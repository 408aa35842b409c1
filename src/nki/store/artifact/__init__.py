"""Compiled kernels as files: written, read with distrust, validated; docs/artifact.md."""

from nki.store.artifact.container import load, pack, save
from nki.store.artifact.contents import Artifact

__all__ = ["Artifact", "load", "pack", "save"]
