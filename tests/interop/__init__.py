"""Tests of kernels inside frameworks."""
