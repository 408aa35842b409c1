"""Kernels of NKI 0.2 to 0.6 in the spellings of 0.7: a file for each kind of change."""
