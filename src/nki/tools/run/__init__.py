"""``nki run``: kernels, compiled files and models."""
