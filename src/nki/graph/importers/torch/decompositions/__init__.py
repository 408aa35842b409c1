"""Operators of PyTorch in terms of others, before the graph is imported."""
