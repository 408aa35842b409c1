"""Kernels that run: a function, its arguments, and what NumPy says."""
