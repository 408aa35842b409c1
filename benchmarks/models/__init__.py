"""Whole models of PyTorch and JAX, compiled and compared with the framework: ``python -m benchmarks.models``."""
