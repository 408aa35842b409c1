"""Tests of kernels in JAX."""
