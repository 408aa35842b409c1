"""Kernels whose signatures are stable."""
