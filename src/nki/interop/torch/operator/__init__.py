"""Kernels as operators of PyTorch: `nki_op`, `wrap_nki`, and calls that become part of a graph."""
