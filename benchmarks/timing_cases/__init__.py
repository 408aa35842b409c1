"""Kernels whose times are published, written anew from their descriptions."""
