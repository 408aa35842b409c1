"""The words that kernels are written in, each in a small kernel that runs."""
