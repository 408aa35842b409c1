"""The kernels, by family."""
