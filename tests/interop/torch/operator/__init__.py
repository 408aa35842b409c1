"""Tests of kernels as operators of PyTorch."""
