"""Kernels whose signatures may still change."""
