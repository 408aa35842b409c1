"""Tests of what PyTorch and JAX have in common."""
