"""Graphs of PyTorch as modules of the graph compiler."""
