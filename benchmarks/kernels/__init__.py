"""Kernels of ordinary kinds and sizes, for measuring what the compiler makes of them."""
