"""Recurrences along the last dimension: linear ones, and the state space models of Mamba."""

from nkilib.experimental.scan.linear_scan import linear_scan
from nkilib.experimental.scan.selective_scan import selective_scan
from nkilib.experimental.scan.ssd import ssd

__all__ = ["linear_scan", "selective_scan", "ssd"]
