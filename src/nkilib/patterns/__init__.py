"""Kernels of this library for parts of models: what the graph compiler puts in by itself, where it is faster.

Each file has a `Pattern`: a matcher, which recognises a part however a framework writes it, and a kernel that hands the
part's tensors to functions of this library. Distributions name them in the group ``nki.patterns`` of entry points.
"""
