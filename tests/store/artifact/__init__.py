"""Compiled kernels as files."""
