"""Tests of the NumPy machine."""
