"""Models in the few operations and types that kernels are written for."""
