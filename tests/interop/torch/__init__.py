"""Tests of kernels in PyTorch."""
