"""Convolutions of sequences and volumes."""

from nkilib.experimental.conv.conv1d import conv1d
from nkilib.experimental.conv.conv3d import conv3d

__all__ = ["conv1d", "conv3d"]
